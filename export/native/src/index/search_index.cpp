#include "search_index.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "failure.h"
#include "json.h"
#include "ranking.h"
#include "search.h"
#include "words.h"

namespace msdc {

namespace {

using Lock = std::lock_guard<std::mutex>;

// A number that entries with the same stored words have in common.
int64_t form_of(const std::string& title, const std::string& text) {
  const std::string stored = title + '\0' + text;
  return (int64_t{crc_of(stored)} << 20) + static_cast<int64_t>(stored.size() % (1 << 20));
}

// Characters (code points) `start` to `end` of a text.
std::string part_of(const std::string& text, int64_t start, int64_t end) {
  size_t from = text.size(), to = text.size();
  int64_t position = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if ((static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) continue;  // not the first byte of a character
    if (position == start) from = at;
    if (position++ == end) {
      to = at;
      break;
    }
  }
  return from < to ? text.substr(from, to - from) : std::string();
}

std::string json_list(const std::vector<int64_t>& numbers) {
  std::string out = "[";
  for (const int64_t number : numbers) out.append(out.size() > 1 ? "," : "").append(std::to_string(number));
  return out += "]";
}

}  // namespace

SearchIndex::SearchIndex(const OpenOptions& options, std::optional<Model> model) : file_(options) {
  if (!model) return;
  if (!file_.is_empty()) require_model(*model);
  adopt(*model);
}

void SearchIndex::adopt(const Model& model) {
  model_ = model;
}

// Compares the model again if another connection has written or rebuilt the file since.
void SearchIndex::require_model(const Model& model) {
  const std::optional<std::string> stored = database().text("model");
  if (!stored || (stored == compared_ && model_ && model.source == model_->source)) return;
  database().each("check", {model.source}, [&](const Row& row) {
    if (row.is_null(0)) return;
    fail(MSDC_OTHER_MODEL, file_.label() + ": " + row.text(0) + ", not with this " + model.name +
                               "; open it with that model, or without one and rebuild it");
  });
  compared_ = stored;
}

SearchIndex::State SearchIndex::state() {
  const Lock lock(mutex_);
  State out;
  Transaction transaction(database(), false);
  if (!file_.is_empty()) {
    out.documents = database().integer("count").value_or(0);
    out.unread = database()
                     .integer("SELECT count(*) FROM documents WHERE id NOT IN (SELECT document FROM passages WHERE block "
                              "IS NOT NULL)")
                     .value_or(0);
    out.model = database().text("SELECT value FROM facts WHERE name = 'name'");
    out.relevant = database().text("relevant");
  }
  transaction.commit();
  return out;
}

std::vector<std::string> SearchIndex::ids() {
  const Lock lock(mutex_);
  std::vector<std::string> out;
  Transaction transaction(database(), false);
  if (!file_.is_empty()) database().each("ids", {}, [&](const Row& row) { out.push_back(row.text(0)); });
  transaction.commit();
  return out;
}

std::optional<Document> SearchIndex::get(const std::string& id) {
  const Lock lock(mutex_);
  std::optional<Document> out;
  Transaction transaction(database(), false);
  if (!file_.is_empty()) {
    database().each("document", {id}, [&](const Row& row) { out = read_document(database(), row); });
  }
  transaction.commit();
  return out;
}

// --- writing ----------------------------------------------------------------------------------------------------------

Batch SearchIndex::batch(std::vector<Document> documents, bool replaces, const TextModel* model) {
  if (documents.size() > search_constants().block) {
    fail(MSDC_BAD_ARGUMENT, std::to_string(documents.size()) + " documents in a batch; at most " +
                                std::to_string(search_constants().block));
  }
  const Lock lock(mutex_);
  if (model_.has_value() != (model != nullptr) || (model == nullptr && !file_.is_in_memory())) {
    fail(MSDC_BAD_ARGUMENT, file_.label() + ": opened without a model, which only words need not");
  }
  Batch out(replaces ? Batch::Kind::update : Batch::Kind::add,
            model == nullptr ? Model() : Model::of(model->manifest));
  out.take(std::move(documents));
  if (model != nullptr) {
    if (out.model().source != model_->source) {
      fail(MSDC_OTHER_MODEL, file_.label() + ": opened with another model than " + out.model().name);
    }
    out.split(*model, stored(out, *model));
  }
  return out;
}

// What the index has under the ids of a batch, and under other ids with the same words: these are not encoded again.
Batch::Stored SearchIndex::stored(const Batch& batch, const TextModel& model) {
  Batch::Stored out;
  if (file_.is_empty()) return out;
  std::set<std::string> keys;
  std::vector<int64_t> forms;
  for (const Document& document : batch.documents()) {
    keys.insert(Batch::stored_key(document));
    forms.push_back(form_of(index_words(document.title), index_words(document.text)));
  }
  std::map<int64_t, Block> blocks;
  std::map<std::string, std::string> prefixes;                // of titles
  std::map<int64_t, std::pair<std::string, bool>> documents;  // key of a document, and whether its passages are taken
  Transaction transaction(database(), false);
  require_model(batch.model());
  database().each("stored", {batch.keys(), json_list(forms)}, [&](const Row& row) {
    const Document document{row.text(0), row.text(2), row.text(1)};
    const int64_t owner = row.integer(3), start = row.integer(4), end = row.integer(5), number = row.integer(8);
    if (crc_of_passage(owner, start, end) != row.integer(6)) {
      database().damaged("a passage of document " + document.id);
    }
    Passage passage{start, end, 0, {}};
    if (!row.is_null(7)) {
      const int64_t block_row = row.integer(7);
      if (blocks.count(block_row) == 0) {
        database().each("block", {block_row},
                        [&](const Row& entry) { blocks[block_row] = Block::read(database(), entry); });
      }
      const Block& block = blocks[block_row];
      size_t position = 0;
      while (position < block.count() && block.passage(position) != number) ++position;
      if (position == block.count()) database().damaged("the vector of passage " + std::to_string(number));
      passage.scale = block.scale(position);
      passage.codes = block.codes.substr(position * block.width(), block.width());
    }
    const auto [prefix, is_new_title] = prefixes.emplace(document.title, "");
    if (is_new_title) {
      prefix->second = title_prefix(model.tokenizer, model.manifest.default_prompt, document.title,
                                    has_text(document.title));
    }
    out.vectors[prefix->second + part_of(document.text, start, end)] = passage;
    const auto [entry, is_new] = documents.emplace(owner, std::pair(Batch::stored_key(document), false));
    if (is_new) {
      entry->second.second = keys.count(entry->second.first) != 0 && out.documents.count(entry->second.first) == 0;
    }
    if (entry->second.second) out.documents[entry->second.first].push_back(std::move(passage));
  });
  transaction.commit();
  return out;
}

SearchIndex::Progress SearchIndex::write(const Batch& batch, const float* vectors, size_t count, size_t width) {
  const std::vector<std::vector<Passage>> passages = batch.passages(vectors, count, width);
  const Lock lock(mutex_);
  Progress out;
  file_.prepare_to_write();
  bool is_finished = false;
  {
    Transaction transaction(database(), true);
    if (batch.kind() == Batch::Kind::rebuild) {
      is_finished = write_rebuilt(batch, passages, &out);
    } else {
      write_documents(batch, passages);
      out.written = out.done = out.total = static_cast<int64_t>(batch.documents().size());
    }
    transaction.commit();
  }
  if (is_finished) adopt(batch.model());
  file_.checkpoint();
  return out;
}

void SearchIndex::write_documents(const Batch& batch, const std::vector<std::vector<Passage>>& passages) {
  if (file_.is_empty()) {  // the tables are created with the first documents
    database().run_all("schema");
    if (model_) {
      database().run("add_facts", {model_->source, model_->name, model_->source, model_->cosines});
      compared_ = model_->source;
    }
  } else if (model_) {
    require_model(batch.model());
  }
  if (batch.kind() == Batch::Kind::update) remove_documents(&database(), batch.keys());
  BlockWriter writer(&database());
  for (size_t i = 0; i < batch.documents().size(); ++i) {
    Document document = batch.documents()[i];
    if (document.id.empty()) document.id = database().text("key", {batch.keys()}).value_or("");
    if (database().has_row("document", {document.id})) {
      fail(MSDC_BAD_ARGUMENT,
           file_.label() + ": a document " + quoted(document.id) + " exists already; use update");
    }
    const int64_t row = insert(document);
    for (const Passage& passage : passages[i]) writer.add(row, passage);
  }
  writer.finish();
}

// Writes a document and its words; returns its row.
int64_t SearchIndex::insert(const Document& document) {
  const std::string title = index_words(document.title), text = index_words(document.text);
  database().run("add_document", {document.id, document.text, document.title, document.metadata,
                                  int64_t{crc_of(document)}, form_of(title, text)});
  const int64_t row = sqlite3_last_insert_rowid(database().connection());
  database().run("add_words", {row, title, text});
  return row;
}

int64_t SearchIndex::remove(const std::vector<std::string>& ids) {
  const Lock lock(mutex_);
  // A transaction would write to a file without tables.
  if (file_.is_empty() || !database().has_row("SELECT 1 FROM documents LIMIT 1")) return 0;
  file_.prepare_to_write();
  int64_t count = 0;
  {
    Transaction transaction(database(), true);
    count = remove_documents(&database(), msdc::json_list(ids));
    transaction.commit();
  }
  file_.checkpoint();
  return count;
}

// --- another model ----------------------------------------------------------------------------------------------------

bool SearchIndex::is_rebuilt(const Model& model) {
  const std::string state = database().text("rebuild_state", {model.source}).value_or("");
  if (state == "other") {
    fail(MSDC_OTHER_MODEL, file_.label() + ": another process rebuilds it with another model");
  }
  return state == "rebuilt";
}

std::optional<Batch> SearchIndex::rebuild(const TextModel& text_model) {
  const Lock lock(mutex_);
  const Model model = Model::of(text_model.manifest);
  const auto state = [&] { return database().text("rebuild_state", {model.source}).value_or(""); };
  if (file_.is_empty() || state() == "rebuilt") {
    if (!file_.is_empty()) compared_ = database().text("model");
    adopt(model);
    return std::nullopt;
  }
  if (state() == "other") {
    file_.prepare_to_write();
    Transaction transaction(database(), true);
    database().run_all("create_rebuilt");
    database().run("begin_rebuild", {model.source});
    database().run("add_rebuild", {model.source});
    transaction.commit();
  }
  std::vector<int64_t> rows;
  std::vector<Document> documents;
  Transaction transaction(database(), false);
  database().each("next_rebuilt", {static_cast<int64_t>(search_constants().block)}, [&](const Row& row) {
    rows.push_back(row.integer(0));
    documents.push_back(read_document(database(), row, 1));
  });
  transaction.commit();
  Batch out(Batch::Kind::rebuild, model);
  out.take(std::move(rows), std::move(documents));
  out.split(text_model, {});
  return out;
}

// Whether the index is one of the batch's model now.
bool SearchIndex::write_rebuilt(const Batch& batch, const std::vector<std::vector<Passage>>& passages,
                                Progress* progress) {
  if (is_rebuilt(batch.model())) {  // by another process
    compared_ = database().text("model");
    return true;
  }
  std::vector<int64_t> unbuilt;
  database().each("unbuilt", {json_list(batch.rows())}, [&](const Row& row) { unbuilt.push_back(row.integer(0)); });
  for (const int64_t document : unbuilt) {
    const auto position = std::find(batch.rows().begin(), batch.rows().end(), document) - batch.rows().begin();
    for (const Passage& passage : passages[static_cast<size_t>(position)]) {
      const bool has_vector = !passage.codes.empty();
      const double scale = has_vector ? static_cast<double>(passage.scale) : 0;
      database().run("add_rebuilt",
                     {document, passage.start, passage.end, has_vector ? Argument(scale) : nullptr,
                      has_vector ? Argument::blob(passage.codes) : nullptr,
                      int64_t{crc_of_passage(document, passage.start, passage.end, scale, passage.codes)}});
    }
    ++progress->written;
  }
  database().each("count_rebuilt", {}, [&](const Row& row) {
    progress->done = row.integer(0);
    progress->total = row.integer(1);
  });
  if (database().has_row("next_rebuilt", {int64_t{1}})) return false;
  replace_passages(&database());
  const Model& model = batch.model();
  database().run("add_facts", {model.source, model.name, model.source, model.cosines});
  compared_ = model.source;
  return true;
}

// --- search -----------------------------------------------------------------------------------------------------------

// Without a model a search for both is by words.
std::string SearchIndex::mode_of(const SearchRequest& request) const {
  if (model_ || request.mode == "words") return request.mode;
  if (request.mode == "vectors") {
    fail(MSDC_BAD_ARGUMENT, file_.label() + ": opened without a model, which only words need not");
  }
  return "words";
}

std::optional<std::string> SearchIndex::query_text(const SearchRequest& request, const TextModel* model) {
  const Lock lock(mutex_);
  if (request.like || mode_of(request) == "words" || model == nullptr) return std::nullopt;
  std::string text = read_plan(&database(), parse_query(request.query, request.has_operators)).text;
  if (!Reader(model->tokenizer).reads(text)) return std::nullopt;
  return text;
}

std::string SearchIndex::search(SearchRequest request, const std::vector<float>& vector) {
  const Lock lock(mutex_);
  if (!request.like) request.mode = mode_of(request);
  const bool compares = !vector.empty() && request.mode != "words" && !request.like;
  if (compares && vector.size() != model_->width) {
    fail(MSDC_BAD_ARGUMENT, "a vector of " + std::to_string(vector.size()) + " numbers; the model's have " +
                                std::to_string(model_->width));
  }
  file_.require_same_file();
  QueryPlan plan = read_plan(&database(), parse_query(request.query, request.has_operators));
  Transaction transaction(database(), false);  // one state of the file for the whole search
  std::vector<SearchHit> hits;
  if (request.like) {
    hits = similar(request, std::move(plan));
  } else if (!file_.is_empty()) {
    if (compares) {
      require_model(*model_);
      vectors_.refresh(&database());
      if (vectors_.differs(vector)) database().damaged("the width of its vectors");
      vectors_.compare(vector);
    }
    hits = Ranking(&database(), compares ? &vectors_ : nullptr, request, std::move(plan)).hits();
  }
  std::string out = json_of(hits, request.is_utf16, database());
  transaction.commit();
  return out;
}

// The nearest to a document by the stored vectors, of whatever model.
std::vector<SearchHit> SearchIndex::similar(const SearchRequest& request, QueryPlan plan) {
  std::optional<int64_t> source;
  if (!file_.is_empty()) source = database().integer("number", {*request.like});
  if (!source) fail(MSDC_BAD_ARGUMENT, "no document " + quoted(*request.like) + " in the index");
  vectors_.refresh(&database());
  const std::vector<float> mean = vectors_.mean_of(*source);
  if (mean.empty()) {
    fail(MSDC_BAD_ARGUMENT, "document " + quoted(*request.like) + " has no vector: the model could not read it");
  }
  vectors_.compare(mean);
  return Ranking(&database(), &vectors_, request, std::move(plan), source).hits();
}

// --- the file's life --------------------------------------------------------------------------------------------------

void SearchIndex::check() {
  const Lock lock(mutex_);
  file_.check(true);
}

void SearchIndex::backup(const std::string& path) {
  const Lock lock(mutex_);
  file_.backup(path);
}

void SearchIndex::bytes(const std::function<void(std::string_view)>& on_bytes) {
  const Lock lock(mutex_);
  file_.bytes(on_bytes);
}

void SearchIndex::compact() {
  const Lock lock(mutex_);
  file_.compact();
}

}  // namespace msdc
