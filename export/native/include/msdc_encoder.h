/* C interface of the msdc sentence encoder: text in, vector out, from a bundle folder.
 *
 * Every function that can fail returns a status and, where `error` is not NULL, writes one NUL-terminated line
 * there, in whole UTF-8 characters, with U+FFFD for whatever could control a terminal. Nothing is kept outside the
 * handles. A handle may be shared by threads: calls that run the program wait for each other, in the order in which they
 * came, and those of a batch once per text, so that a query never waits for another thread's list. Tokenizing does not
 * wait. Texts are UTF-8 with an explicit length; malformed bytes become U+FFFD, as
 * in SentencePiece.
 *
 * A bundle's seal and hashes show damage, not origin: whoever changes a bundle can rewrite them. Files that this core
 * reads itself (bundle.json, golden.json, the tokenizer) are bounded: n bytes cost at most n times a constant. The program
 * is run by ExecuTorch or ONNX Runtime, which a hostile one can crash. An app that loads bundles which it did not ship
 * checks a signature first: the Android and Swift modules have BundleSignature, a command line has minisign. The core has no
 * cryptography of its own but SHA-256.
 */
#ifndef MSDC_ENCODER_H
#define MSDC_ENCODER_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define MSDC_API __declspec(dllexport)
#else
#define MSDC_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Grows when a struct or a signature below changes. */
#define MSDC_INTERFACE_VERSION 5

typedef enum msdc_status {
  MSDC_OK = 0,
  MSDC_BAD_ARGUMENT = 1, /* by the caller: NULL, a wrong width, a text past 64 MiB */
  MSDC_DAMAGED = 2,      /* in the bundle: missing, truncated, edited, not of this format */
  MSDC_UNSUPPORTED = 3,  /* a bundle this build cannot run; the line names one that can */
  MSDC_RUNTIME = 4,      /* the inference runtime failed, or gave a vector with NaN or infinity */
  MSDC_MEMORY = 5,
  MSDC_GOLDEN = 6,       /* self-test: the vectors or ids differ from those stored at export */
  MSDC_CANCELLED = 7,    /* the caller's msdc_stop stopped a batch, or msdc_index_interrupt a statement */
  /* Of an index (msdc_index.h). */
  MSDC_OTHER_MODEL = 8,  /* it is intact, and its vectors are of another model */
  MSDC_REPLACED = 9,     /* its path has another file than the one that was opened, or none */
  MSDC_LOCKED = 10,      /* another connection has held the lock for longer than the index waits */
  MSDC_FULL = 11,        /* the disk is full */
  MSDC_READ_ONLY = 12    /* the file cannot be written, or was opened to be read */
} msdc_status;

typedef struct msdc_encoder msdc_encoder;
typedef struct msdc_tokenizer msdc_tokenizer;

typedef struct msdc_options {
  uint32_t size;       /* sizeof(msdc_options) of the caller */
  int32_t threads;     /* threads of one inference; 0 means 1. The ExecuTorch pool belongs to the process. */
  int32_t check_files; /* non-zero: compare the sha256 of every file that is read with bundle.json */
} msdc_options;

typedef struct msdc_self_test_result {
  int32_t texts;
  int32_t ids_differ;
  float min_cosine;
  float mean_cosine;
} msdc_self_test_result;

/* "executorch", "onnx" or "none": what this build of the core runs programs with. */
MSDC_API const char *msdc_runtime(void);

/* Open a bundle folder (bundle.json, tokenizer, program). `options` may be NULL. */
MSDC_API msdc_status msdc_open(const char *folder, const msdc_options *options, msdc_encoder **encoder, char *error,
                               size_t error_size);
MSDC_API void msdc_close(msdc_encoder *encoder);

/* Runs the bundle's program in the caller's own binding of a runtime: `count` ids in, `width` numbers out; non-zero on
 * failure. `prompt_tokens`: how many ids at the front are not pooled, the second input (int64 [1]) of a program that
 * takes a prompt (msdc_find_program), 0 for others. Called on the thread that called msdc_encode, never twice at a time
 * for one encoder. */
typedef int32_t (*msdc_program)(void *context, const int32_t *ids, size_t count, size_t prompt_tokens, float *vector,
                                size_t width);

/* An encoder whose program the caller runs (an app that takes the runtime from its vendor's package). `runtime` is
 * "executorch" or "onnx": which of the bundle's programs that is. */
MSDC_API msdc_status msdc_open_with(const char *folder, const msdc_options *options, const char *runtime,
                                    msdc_program program, void *context, msdc_encoder **encoder, char *error,
                                    size_t error_size);

/* The bundle's program for `runtime`: its file inside the folder, 1 where it has the methods embed, unit, pool (0:
 * forward alone), how often unit is applied, and 1 where forward takes the number of the prompt's tokens too (models
 * that do not pool them). `file` receives a NUL-terminated name. */
MSDC_API msdc_status msdc_find_program(const char *folder, const char *runtime, char *file, size_t file_size,
                                       int32_t *multi_method, int32_t *repeats, int32_t *takes_prompt, char *error,
                                       size_t error_size);

MSDC_API int32_t msdc_width(const msdc_encoder *encoder);      /* numbers in a vector, by default */
MSDC_API int32_t msdc_max_length(const msdc_encoder *encoder); /* longest input in tokens, special ids included */

/* The prompt that the bundle holds under `name`, NUL-terminated UTF-8, valid until msdc_close; NULL where it holds none
 * of that name. `name` NULL: the default prompt, "" where the bundle has none. */
MSDC_API const char *msdc_prompt(const msdc_encoder *encoder, const char *name);

/* The same; an unknown name is MSDC_BAD_ARGUMENT, and the line lists the known ones. */
MSDC_API msdc_status msdc_find_prompt(const msdc_encoder *encoder, const char *name, const char **prompt, char *error,
                                      size_t error_size);

/* Vector of one text; longer texts are cut at msdc_max_length. `prompt` (NUL-terminated UTF-8) is put before the text;
 * NULL takes the bundle's default prompt, "" none. A text without tokens (blank, where the tokenizer adds no special
 * ids: static embeddings) has the vector zero. `width` is msdc_width(), or smaller for the first numbers of the
 * vector alone. */
MSDC_API msdc_status msdc_encode(msdc_encoder *encoder, const char *prompt, const char *text, size_t text_size,
                                 float *vector, size_t width, char *error, size_t error_size);

/* Called before each text of a batch with the number of vectors that are ready; non-zero stops the batch. */
typedef int32_t (*msdc_stop)(void *context, size_t done);

/* Vectors of `count` texts: `count` rows of `width` numbers in `vectors`; prompt and width as in msdc_encode, one prompt
 * for all texts (call it once per prompt). `stop` may be NULL. MSDC_CANCELLED where it stopped the batch; the rows that
 * were ready are filled. Calls of other threads run between two texts. */
MSDC_API msdc_status msdc_encode_batch(msdc_encoder *encoder, const char *prompt, const char *const *texts,
                                       const size_t *text_sizes, size_t count, float *vectors, size_t width,
                                       msdc_stop stop, void *stop_context, char *error, size_t error_size);

/* How many of `count` texts, with their prompt as in msdc_encode, have more tokens than msdc_max_length: msdc_encode cuts
 * these. */
MSDC_API msdc_status msdc_count_truncated(const msdc_encoder *encoder, const char *prompt, const char *const *texts,
                                          const size_t *text_sizes, size_t count, size_t *truncated, char *error,
                                          size_t error_size);

/* Vector of ids that already carry the special ids; no prompt is added. */
MSDC_API msdc_status msdc_encode_ids(msdc_encoder *encoder, const int32_t *ids, size_t count, float *vector,
                                     size_t width, char *error, size_t error_size);

/* Ids of one text with special ids and without any prompt, cut to the longest input; `*count` is how many there are, at most `capacity`
 * (msdc_max_length always suffices). */
MSDC_API msdc_status msdc_encoder_tokenize(const msdc_encoder *encoder, const char *text, size_t text_size,
                                           int32_t *ids, size_t capacity, size_t *count, char *error,
                                           size_t error_size);

/* Run the golden texts of the bundle and compare ids and vectors. MSDC_GOLDEN where an id differs, the mean cosine is
 * under `promise` (that of the export is 0.999), or a single cosine is more than ten times as far from 1 as that
 * allows: rounding of 8-bit activations differs a little between processors, a wrong program differs much. `result` is
 * filled in both cases. */
MSDC_API msdc_status msdc_self_test(msdc_encoder *encoder, float promise, msdc_self_test_result *result,
                                    char *error, size_t error_size);

/* The files that an app needs to run the bundle with `runtime`, read from bundle.json alone: tokenizer, program and
 * golden.json, one line "name<TAB>bytes<TAB>sha256\n" each, NUL-terminated. `*size` is the number of bytes that `lines`
 * needs; with a smaller `capacity` nothing is written and the status is MSDC_BAD_ARGUMENT. */
MSDC_API msdc_status msdc_bundle_files(const char *folder, const char *runtime, char *lines, size_t capacity,
                                       size_t *size, char *error, size_t error_size);

/* Cosine of two vectors; 0 where one of them is zero. */
MSDC_API float msdc_cosine(const float *a, const float *b, size_t width);

/* The `k` rows of `vectors` (`count` rows of `width` numbers) with the largest cosine to `query`, best first, equal ones
 * by row. `rows` and `cosines` have room for `k`; `*found` is the smaller of `k` and `count`. A cosine that is not a
 * number ranks last. */
MSDC_API msdc_status msdc_top_k(const float *query, const float *vectors, size_t count, size_t width, size_t k,
                                int32_t *rows, float *cosines, size_t *found, char *error, size_t error_size);

/* Parts of a search index, for a caller with an engine of its own; msdc_index.h is the whole. */

/* sha256 of the model that the bundle was exported from ("" where bundle.json does not say), and its name; valid until
 * msdc_close. */
MSDC_API const char *msdc_source(const msdc_encoder *encoder);
MSDC_API const char *msdc_name(const msdc_encoder *encoder);

/* One passage: characters (code points) `start` to `end` of the text, and its vector as `width` 8-bit numbers times
 * `scale`; NULL where the model cannot read it. Non-zero stops. */
typedef int32_t (*msdc_passage)(void *context, size_t start, size_t end, float scale, const int8_t *vector,
                                size_t width);

/* The passages of a document, in order, encoded with the default prompt and `title` (may be empty) before each.
 * `titled`: non-zero where any document that is added with it has a title. */
MSDC_API msdc_status msdc_index_document(msdc_encoder *encoder, const char *title, size_t title_size, const char *text,
                                         size_t text_size, int32_t titled, msdc_passage passage, void *context,
                                         char *error, size_t error_size);

/* Receives a text, which is valid during the call. */
typedef void (*msdc_on_text)(void *context, const char *text, size_t size);

/* The words of a text as an index stores them, with blanks between, other spellings at the end. */
MSDC_API msdc_status msdc_search_words(const char *text, size_t text_size, msdc_on_text words, void *context, char *error,
                                       size_t error_size);

/* The plan of a query as JSON, which the statements of search.sql take. With `operators` (non-zero) "words in quotes" and
 * -excluded words have a meaning; else quotes and minus are text. */
MSDC_API msdc_status msdc_search_plan(const char *query, size_t query_size, int32_t operators, msdc_on_text plan,
                                      void *context, char *error, size_t error_size);

/* Receives a span: its first character (code point), and one past its last. */
typedef void (*msdc_on_span)(void *context, size_t start, size_t end);

/* What to show of a text: calls `span` for each place to highlight, in order, and writes the number of the passage to show
 * to `*best`. `terms` are those of a plan, one in each line; empty for none. The `count` passages, at least one, are
 * characters `starts[i]` to `ends[i]` with `cosines[i]`: the best has the highest sum of cosine and share of the terms inside
 * it, with `by_cosine` (non-zero) the highest cosine; of equals the first. */
MSDC_API msdc_status msdc_search_show(const char *text, size_t text_size, const char *terms, size_t terms_size,
                                      const int64_t *starts, const int64_t *ends, const float *cosines, size_t count,
                                      int32_t by_cosine, size_t *best, msdc_on_span span, void *context, char *error,
                                      size_t error_size);

/* zlib's CRC-32, begun with the value `start`. */
MSDC_API uint32_t msdc_crc32(uint32_t start, const void *bytes, size_t size);

/* sha256 of a file as 64 hexadecimal digits and NUL, for a caller that downloads a bundle. */
MSDC_API msdc_status msdc_file_sha256(const char *path, char digits[65], char *error, size_t error_size);

/* The tokenizer alone. */
MSDC_API msdc_status msdc_tokenizer_open(const char *folder, int32_t check_files, msdc_tokenizer **tokenizer,
                                         char *error, size_t error_size);
MSDC_API void msdc_tokenizer_close(msdc_tokenizer *tokenizer);
MSDC_API int32_t msdc_tokenizer_max_length(const msdc_tokenizer *tokenizer);
MSDC_API msdc_status msdc_tokenize(const msdc_tokenizer *tokenizer, const char *text, size_t text_size, int32_t *ids,
                                   size_t capacity, size_t *count, char *error, size_t error_size);

#ifdef __cplusplus
}
#endif
#endif
