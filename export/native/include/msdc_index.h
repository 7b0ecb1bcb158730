/* C interface of a search index: documents that are found by words and by meaning, in one SQLite file, the one of
 * `msdc search` and `msdc.open_index`.
 *
 * Vectors come from the caller, whose runtime may be asynchronous: a batch splits documents into texts, the caller encodes
 * them, and msdc_index_write takes the vectors, in one transaction. A search is a request in JSON, whose text the caller
 * encodes too. Calls on one index wait for each other; several processes may open one file: one writes, any number read.
 *
 * Functions return a status and a line as those of msdc_encoder.h. Of an index, MSDC_DAMAGED, MSDC_OTHER_MODEL, MSDC_REPLACED,
 * MSDC_LOCKED, MSDC_FULL and MSDC_READ_ONLY leave what was written before intact: a write is complete or absent.
 */
#ifndef MSDC_INDEX_H
#define MSDC_INDEX_H

#include "msdc_encoder.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Documents of a batch, at most: each is one transaction. */
#define MSDC_INDEX_BLOCK 256

typedef struct msdc_index msdc_index;
typedef struct msdc_index_batch msdc_index_batch;

/* What documents and queries are encoded with: an encoder, or the tokenizer of its bundle where another runtime encodes.
 * The other is NULL; both are NULL for searches by words. It is not kept after the call. */
typedef struct msdc_index_model {
  const msdc_encoder *encoder;
  const msdc_tokenizer *tokenizer;
} msdc_index_model;

typedef struct msdc_index_options {
  uint32_t size;       /* sizeof(msdc_index_options) of the caller */
  int32_t read_only;   /* non-zero: refuse to write */
  int32_t check;       /* non-zero: compare all content with its checksums; else what is read later is compared */
  int32_t lock_ms;     /* how long to wait for another process's lock; 0 means 60,000 */
  const void *bytes;   /* with `path` NULL: the content of a file, which is copied; NULL for a new index */
  size_t bytes_size;
} msdc_index_options;

/* Open the index in the file `path`, created with the first documents where it is missing; NULL: in memory. A file that this
 * user cannot write is read into memory. `options` NULL: check, write. `model` NULL: an index of any model, for searches by
 * words and for msdc_index_rebuild. MSDC_OTHER_MODEL: an intact index of another model. */
MSDC_API msdc_status msdc_index_open(const char *path, const msdc_index_options *options, const msdc_index_model *model,
                                     msdc_index **index, char *error, size_t error_size);
/* The file alone holds everything then, unless another process has it open. */
MSDC_API void msdc_index_close(msdc_index *index);

/* {"documents": their number, "unread": how many are found by their words only, "model": its name or null,
 * "relevant": the least cosine of a relevant entry, a threshold for msdc_index_search, or null} */
MSDC_API msdc_status msdc_index_state(msdc_index *index, msdc_on_text json, void *context, char *error, size_t error_size);

/* The ids of all documents as a JSON list, in the order in which they were added. */
MSDC_API msdc_status msdc_index_ids(msdc_index *index, msdc_on_text json, void *context, char *error, size_t error_size);

/* The document of an id as a JSON object of strings (id, text, title, metadata); `json` is not called without one. */
MSDC_API msdc_status msdc_index_get(msdc_index *index, const char *id, size_t id_size, msdc_on_text json, void *context,
                                    char *error, size_t error_size);

/* Documents on their way in: [{"text": ..., "id": ..., "title": ..., "metadata": a JSON object as a string}, ...], at most
 * MSDC_INDEX_BLOCK. Only `text` is required; without an id the index gives one. `replaces` non-zero: documents of the same id
 * are replaced, the last of equal ids stays, and an unchanged text is not encoded again; else an id that is there is an error
 * of msdc_index_write. Close the batch after writing it. */
MSDC_API msdc_status msdc_index_documents(msdc_index *index, const msdc_index_model *model, const char *documents,
                                          size_t documents_size, int32_t replaces, msdc_index_batch **batch, char *error,
                                          size_t error_size);

/* The next documents of an index whose model was replaced: `*batch` is NULL once all have vectors of `model`, of which the
 * index then is. Until then it stays an index of its former model. Begun anew after an interruption, it continues. */
MSDC_API msdc_status msdc_index_rebuild(msdc_index *index, const msdc_index_model *model, msdc_index_batch **batch,
                                        char *error, size_t error_size);

/* Calls `text` for each text to encode, in order, with the model's default prompt. There may be none. */
MSDC_API msdc_status msdc_index_texts(const msdc_index_batch *batch, msdc_on_text text, void *context, char *error,
                                      size_t error_size);

typedef struct msdc_index_progress {
  int64_t written;     /* documents of this batch */
  int64_t done, total; /* of a rebuild: documents with new vectors, and all */
} msdc_index_progress;

/* Write a batch in one transaction, with `count` vectors of `width` numbers, one for each of its texts. */
MSDC_API msdc_status msdc_index_write(msdc_index *index, const msdc_index_batch *batch, const float *vectors, size_t count,
                                      size_t width, msdc_index_progress *progress, char *error, size_t error_size);
MSDC_API void msdc_index_batch_close(msdc_index_batch *batch);

/* Remove documents by id, a JSON list; `*removed` is the number of those that were there. */
MSDC_API msdc_status msdc_index_remove(msdc_index *index, const char *ids, size_t ids_size, int64_t *removed, char *error,
                                       size_t error_size);

/* A request is a JSON object; only `query`, or `like` in its place, is required:
 *   "query": text   "top": 5   "offset": 0   "mode": "both", "words" or "vectors"   "threshold": null, or least cosine
 *   "where": conditions that all hold, as a string of JSON: [[column, [alternative, ...], excluded], ...]; an alternative is a
 *            value, null for no value, or [least, most] with null for no bound; excluded (0 or 1): none of them
 *   "like": the id of a document: those nearest to it, by the mean of its stored vectors; no text is encoded
 *   "order": columns that sort the hits which match, at most three: ["-day", ...], a minus for the greatest value first
 *   "boost": [[conditions, bonus], ...]: what documents that conditions hold for get on their score, at most 16
 *   "group": null, or a column of which each value has at most "group_size" (1) hits; "top" and "offset" count groups
 *   "distinct": true    documents with the same words are one hit
 *   "syntax": "operators" ("words in quotes" first, none with -excluded words) or "plain"
 *   "offsets": "characters" (code points) or "utf16"
 * Calls `text` with what is to be encoded for it; not at all where a search needs no vector. */
MSDC_API msdc_status msdc_index_query(msdc_index *index, const msdc_index_model *model, const char *request,
                                      size_t request_size, msdc_on_text text, void *context, char *error,
                                      size_t error_size);

/* The hits of a request as a JSON list, best first: id, text, title, metadata (a string), score, cosine, words (null where
 * they are no part of the score), start and end of the passage to show, matches ([start, end] of each), count (documents with
 * the same words). `vector` is that of msdc_index_query's text; NULL and 0 without one. */
MSDC_API msdc_status msdc_index_search(msdc_index *index, const char *request, size_t request_size, const float *vector,
                                       size_t width, msdc_on_text hits, void *context, char *error, size_t error_size);

/* Compare the whole file with its checksums. */
MSDC_API msdc_status msdc_index_check(msdc_index *index, char *error, size_t error_size);

/* Write a copy of one state to the new file `path`, without unused space. */
MSDC_API msdc_status msdc_index_backup(msdc_index *index, const char *path, char *error, size_t error_size);

/* The file of an index in memory: a complete backup, which msdc_index_open takes as bytes. There are none before the first
 * documents. */
MSDC_API msdc_status msdc_index_bytes(msdc_index *index, msdc_on_text bytes, void *context, char *error, size_t error_size);

/* Give the space of removed documents back to the disk. Needs about the size of the index as free space. */
MSDC_API msdc_status msdc_index_compact(msdc_index *index, char *error, size_t error_size);

/* End the statement that another thread runs on this index: its call returns MSDC_CANCELLED. */
MSDC_API void msdc_index_interrupt(msdc_index *index);

#ifdef __cplusplus
}
#endif
#endif
