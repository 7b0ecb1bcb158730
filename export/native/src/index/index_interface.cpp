// The C interface over SearchIndex: exceptions end here.
#include "msdc_index.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "interface.h"
#include "json.h"
#include "search_index.h"

struct msdc_index {
  msdc::SearchIndex index;
};

struct msdc_index_batch {
  msdc::Batch batch;
};

namespace {

using msdc::guarded;
using msdc::need;
using msdc::view;

std::optional<msdc::TextModel> text_model(const msdc_index_model* model) {
  if (model == nullptr) return std::nullopt;
  need(model->encoder == nullptr || model->tokenizer == nullptr, "an encoder and a tokenizer; one of them is enough");
  if (model->encoder != nullptr) {
    return msdc::TextModel{model->encoder->encoder.manifest(), model->encoder->encoder.tokenizer()};
  }
  if (model->tokenizer == nullptr) return std::nullopt;
  return msdc::TextModel{model->tokenizer->manifest, model->tokenizer->tokenizer};
}

msdc::TextModel required_model(const msdc_index_model* model) {
  const std::optional<msdc::TextModel> out = text_model(model);
  need(out.has_value(), "no encoder and no tokenizer");
  return *out;
}

msdc_index_options read_options(const msdc_index_options* options) {
  msdc_index_options values = {sizeof(msdc_index_options), 0, 1, 0, nullptr, 0};
  // A caller built with an older, shorter struct leaves the newer fields at their defaults.
  if (options != nullptr) std::memcpy(&values, options, std::min<size_t>(options->size, sizeof values));
  need(values.lock_ms >= 0, "lock_ms must be at least 0");
  return values;
}

}  // namespace

extern "C" {

msdc_status msdc_index_open(const char* path, const msdc_index_options* options, const msdc_index_model* model,
                            msdc_index** index, char* error, size_t error_size) {
  return guarded(error, error_size, [&] {
    need(index != nullptr, "no place for the index");
    *index = nullptr;
    const msdc_index_options values = read_options(options);
    need(values.bytes == nullptr || path == nullptr, "a path and bytes; one of them is enough");
    msdc::OpenOptions open;
    if (path != nullptr) {
      need(*path != '\0', "an empty path");
      open.path = path;
    }
    open.bytes = {static_cast<const char*>(values.bytes), values.bytes == nullptr ? 0 : values.bytes_size};
    open.is_read_only = values.read_only != 0;
    open.checks = values.check != 0;
    if (values.lock_ms > 0) open.lock_ms = values.lock_ms;
    const std::optional<msdc::TextModel> reader = text_model(model);
    std::optional<msdc::Model> stored;
    if (reader) stored = msdc::Model::of(reader->manifest);
    *index = new msdc_index{{open, stored}};
  });
}

void msdc_index_close(msdc_index* index) { delete index; }

msdc_status msdc_index_state(msdc_index* index, msdc_on_text json, void* context, char* error, size_t error_size) {
  return guarded(error, error_size, [&] {
    need(index != nullptr && json != nullptr, "no index or no receiver");
    const msdc::SearchIndex::State state = index->index.state();
    const std::string out = "{\"documents\":" + std::to_string(state.documents) +
                            ",\"unread\":" + std::to_string(state.unread) +
                            ",\"model\":" + (state.model ? msdc::json_quote(*state.model) : "null") +
                            ",\"relevant\":" + state.relevant.value_or("null") + "}";
    json(context, out.data(), out.size());
  });
}

msdc_status msdc_index_ids(msdc_index* index, msdc_on_text json, void* context, char* error, size_t error_size) {
  return guarded(error, error_size, [&] {
    need(index != nullptr && json != nullptr, "no index or no receiver");
    const std::string out = msdc::json_list(index->index.ids());
    json(context, out.data(), out.size());
  });
}

msdc_status msdc_index_get(msdc_index* index, const char* id, size_t id_size, msdc_on_text json, void* context,
                           char* error, size_t error_size) {
  return guarded(error, error_size, [&] {
    need(index != nullptr && json != nullptr, "no index or no receiver");
    const std::optional<msdc::Document> document = index->index.get(std::string(view(id, id_size)));
    if (!document) return;
    const std::string out = msdc::json_of(*document);
    json(context, out.data(), out.size());
  });
}

msdc_status msdc_index_documents(msdc_index* index, const msdc_index_model* model, const char* documents,
                                 size_t documents_size, int32_t replaces, msdc_index_batch** batch, char* error,
                                 size_t error_size) {
  return guarded(error, error_size, [&] {
    need(index != nullptr && batch != nullptr, "no index or no place for the batch");
    *batch = nullptr;
    const std::optional<msdc::TextModel> reader = text_model(model);
    std::vector<msdc::Document> rows = msdc::read_documents(view(documents, documents_size));
    *batch = new msdc_index_batch{index->index.batch(std::move(rows), replaces != 0, reader ? &*reader : nullptr)};
  });
}

msdc_status msdc_index_rebuild(msdc_index* index, const msdc_index_model* model, msdc_index_batch** batch, char* error,
                               size_t error_size) {
  return guarded(error, error_size, [&] {
    need(index != nullptr && batch != nullptr, "no index or no place for the batch");
    *batch = nullptr;
    std::optional<msdc::Batch> next = index->index.rebuild(required_model(model));
    if (next) *batch = new msdc_index_batch{std::move(*next)};
  });
}

msdc_status msdc_index_texts(const msdc_index_batch* batch, msdc_on_text text, void* context, char* error,
                             size_t error_size) {
  return guarded(error, error_size, [&] {
    need(batch != nullptr && text != nullptr, "no batch or no receiver of texts");
    for (const std::string& entry : batch->batch.texts()) text(context, entry.data(), entry.size());
  });
}

msdc_status msdc_index_write(msdc_index* index, const msdc_index_batch* batch, const float* vectors, size_t count,
                             size_t width, msdc_index_progress* progress, char* error, size_t error_size) {
  return guarded(error, error_size, [&] {
    need(index != nullptr && batch != nullptr, "no index or no batch");
    need(count == 0 || vectors != nullptr, "no vectors");
    const msdc::SearchIndex::Progress written = index->index.write(batch->batch, vectors, count, width);
    if (progress != nullptr) *progress = {written.written, written.done, written.total};
  });
}

void msdc_index_batch_close(msdc_index_batch* batch) { delete batch; }

msdc_status msdc_index_remove(msdc_index* index, const char* ids, size_t ids_size, int64_t* removed, char* error,
                              size_t error_size) {
  return guarded(error, error_size, [&] {
    need(index != nullptr && removed != nullptr, "no index or no place for the number");
    *removed = index->index.remove(msdc::read_ids(view(ids, ids_size)));
  });
}

msdc_status msdc_index_query(msdc_index* index, const msdc_index_model* model, const char* request, size_t request_size,
                             msdc_on_text text, void* context, char* error, size_t error_size) {
  return guarded(error, error_size, [&] {
    need(index != nullptr && text != nullptr, "no index or no receiver of the text");
    const std::optional<msdc::TextModel> reader = text_model(model);
    const std::optional<std::string> out = index->index.query_text(
        msdc::SearchRequest::read(view(request, request_size)), reader ? &*reader : nullptr);
    if (out) text(context, out->data(), out->size());
  });
}

msdc_status msdc_index_search(msdc_index* index, const char* request, size_t request_size, const float* vector,
                              size_t width, msdc_on_text hits, void* context, char* error, size_t error_size) {
  return guarded(error, error_size, [&] {
    need(index != nullptr && hits != nullptr, "no index or no receiver of hits");
    need(width == 0 || vector != nullptr, "no vector");
    const std::vector<float> query(vector, vector + width);
    const std::string out = index->index.search(msdc::SearchRequest::read(view(request, request_size)), query);
    hits(context, out.data(), out.size());
  });
}

msdc_status msdc_index_check(msdc_index* index, char* error, size_t error_size) {
  return guarded(error, error_size, [&] {
    need(index != nullptr, "no index");
    index->index.check();
  });
}

msdc_status msdc_index_backup(msdc_index* index, const char* path, char* error, size_t error_size) {
  return guarded(error, error_size, [&] {
    need(index != nullptr && path != nullptr && *path != '\0', "no index or no path");
    index->index.backup(path);
  });
}

msdc_status msdc_index_bytes(msdc_index* index, msdc_on_text bytes, void* context, char* error, size_t error_size) {
  return guarded(error, error_size, [&] {
    need(index != nullptr && bytes != nullptr, "no index or no receiver");
    index->index.bytes([&](std::string_view content) { bytes(context, content.data(), content.size()); });
  });
}

msdc_status msdc_index_compact(msdc_index* index, char* error, size_t error_size) {
  return guarded(error, error_size, [&] {
    need(index != nullptr, "no index");
    index->index.compact();
  });
}

void msdc_index_interrupt(msdc_index* index) {
  if (index != nullptr) index->index.interrupt();
}

}  // extern "C"
