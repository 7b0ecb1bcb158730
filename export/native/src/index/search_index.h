// A search index: documents, their words (FTS5) and the vectors of their passages (int8), in one SQLite file. What the Python
// package's msdc/search has is the oracle.
//
// Vectors come from outside, by a runtime that may be asynchronous: `batch` splits documents into texts to encode, and
// `write` takes their vectors, in one transaction. Calls wait for each other.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "batch.h"
#include "index_file.h"
#include "ranking.h"
#include "search_request.h"
#include "vectors.h"

namespace msdc {

class SearchIndex {
 public:
  // `model` encodes documents and queries; none: an index of any model, for searches by words and for `rebuild`.
  // Throws Failure(MSDC_OTHER_MODEL) for an intact index of another one.
  SearchIndex(const OpenOptions& options, std::optional<Model> model);

  struct State {
    int64_t documents = 0;
    int64_t unread = 0;  // documents that are found by their words only
    std::optional<std::string> model;
    std::optional<std::string> relevant;  // the least cosine of a relevant entry, as JSON
  };
  State state();
  std::vector<std::string> ids();
  std::optional<Document> get(const std::string& id);

  // Documents on their way in, at most one block of 256. `model` may be null for an index in memory that has none:
  // its documents are found by their words.
  Batch batch(std::vector<Document> documents, bool replaces, const TextModel* model);
  // The next documents of an index of another model; none once it is one of this model.
  std::optional<Batch> rebuild(const TextModel& model);

  struct Progress {
    int64_t written = 0;         // documents
    int64_t done = 0, total = 0;  // of a rebuild: documents with new vectors, and all
  };
  Progress write(const Batch& batch, const float* vectors, size_t count, size_t width);
  int64_t remove(const std::vector<std::string>& ids);

  // The text to encode for a search; none where it is by words, or the model cannot read it.
  std::optional<std::string> query_text(const SearchRequest& request, const TextModel* model);
  // `vector` is that of `query_text`, empty without one. A request for what is like a document has none.
  std::string search(SearchRequest request, const std::vector<float>& vector);

  void check();
  void backup(const std::string& path);
  // The file of an index in memory.
  void bytes(const std::function<void(std::string_view)>& on_bytes);
  void compact();
  // Ends a statement that is running, from another thread.
  void interrupt() { sqlite3_interrupt(file_.database().connection()); }

 private:
  Database& database() { return file_.database(); }
  std::vector<SearchHit> similar(const SearchRequest& request, QueryPlan plan);
  std::string mode_of(const SearchRequest& request) const;
  void require_model(const Model& model);
  void adopt(const Model& model);
  bool is_rebuilt(const Model& model);
  int64_t insert(const Document& document);
  void write_documents(const Batch& batch, const std::vector<std::vector<Passage>>& passages);
  bool write_rebuilt(const Batch& batch, const std::vector<std::vector<Passage>>& passages, Progress* progress);
  Batch::Stored stored(const Batch& batch, const TextModel& model);

  std::mutex mutex_;
  IndexFile file_;
  std::optional<Model> model_;
  std::optional<std::string> compared_;  // the file's model, once `model_` was compared with it
  PassageVectors vectors_;
};

}  // namespace msdc
