#include "batch.h"

#include <cmath>
#include <utility>

#include "failure.h"
#include "json.h"
#include "search.h"
#include "utf8.h"

namespace msdc {

namespace {

void require_utf8(std::string_view text, const std::string& what) {
  if (!is_valid_utf8(text)) fail(MSDC_BAD_ARGUMENT, what + " is not valid UTF-8");
}

std::string optional_text(const Json& object, const char* name, const char* otherwise) {
  if (!object.has(name) || object.at(name).is_null()) return otherwise;
  return std::string(object.at(name).text());
}

// SQLite reads ids and filters as JSON, up to a NUL character.
void require_key(const std::string& key, const std::string& what) {
  require_utf8(key, what + ": its id");
  if (key.empty() || key.find('\0') != key.npos) {
    fail(MSDC_BAD_ARGUMENT, what + ": an empty id, or one with a NUL character");
  }
}

}  // namespace

Model Model::of(const Manifest& manifest) {
  const auto cosines = manifest.cosines.empty() ? std::nullopt : std::optional(manifest.cosines);
  return {manifest.source, manifest.name, cosines, static_cast<size_t>(manifest.vector_width)};
}

bool has_text(std::string_view text) {
  uint32_t code = 0;
  for (size_t at = 0, bytes; (bytes = decode_utf8(text, at, &code)) != 0; at += bytes) {
    if (!is_space(code)) return true;
  }
  return false;
}

std::vector<Document> read_documents(std::string_view json) {
  return read_argument([&] {
    const JsonDocument document(std::string(json), "documents");
    std::vector<Document> out;
    for (const Json row : document.root().array()) {
      const std::string number = "row " + std::to_string(out.size() + 1);
      Document entry{optional_text(row, "id", ""), std::string(row.at("text").text()), optional_text(row, "title", ""),
                     optional_text(row, "metadata", "{}")};
      if (row.has("id") && !row.at("id").is_null()) require_key(entry.id, number);
      const std::string origin = entry.id.empty() ? number : "document " + quoted(entry.id);
      if (!has_text(entry.text)) fail(MSDC_BAD_ARGUMENT, origin + " has no text");
      require_utf8(entry.text, origin + ": text");
      require_utf8(entry.title, origin + ": title");
      require_utf8(entry.metadata, origin + ": metadata");
      if (entry.metadata.find('\0') != entry.metadata.npos) {
        fail(MSDC_BAD_ARGUMENT, origin + ": metadata has a NUL character");
      }
      out.push_back(std::move(entry));
    }
    return out;
  });
}

std::vector<std::string> read_ids(std::string_view json) {
  return read_argument([&] {
    const JsonDocument document(std::string(json), "ids");
    std::vector<std::string> out;
    for (const Json id : document.root().array()) {
      out.emplace_back(id.text());
      require_key(out.back(), "id " + std::to_string(out.size()));
    }
    return out;
  });
}

std::string json_list(const std::vector<std::string>& texts) {
  std::string out = "[";
  for (const std::string& text : texts) out.append(out.size() > 1 ? "," : "").append(json_quote(text));
  return out += "]";
}

void Batch::take(std::vector<Document> documents) {
  std::vector<std::string> keys;
  std::unordered_map<std::string, size_t> positions;
  for (Document& document : documents) {
    if (!document.id.empty()) {
      keys.push_back(document.id);
      const auto [entry, is_new] = positions.emplace(document.id, documents_.size());
      if (!is_new && kind_ == Kind::update) {
        documents_[entry->second] = std::move(document);
        continue;
      }
    }
    documents_.push_back(std::move(document));
  }
  keys_ = json_list(keys);
}

void Batch::take(std::vector<int64_t> rows, std::vector<Document> documents) {
  rows_ = std::move(rows);
  documents_ = std::move(documents);
}

void Batch::split(const TextModel& model, const Stored& stored) {
  const Reader reader(model.tokenizer);
  std::unordered_map<std::string, size_t> numbers;  // of texts
  for (const Document& document : documents_) {
    std::vector<Part>& parts = parts_.emplace_back();
    const auto former = stored.documents.find(stored_key(document));
    if (former != stored.documents.end()) {
      for (const Passage& passage : former->second) parts.push_back({passage, kNone});
      continue;
    }
    for (TextPassage& part : document_passages(model.tokenizer, model.manifest.default_prompt, document.title,
                                               document.text, has_text(document.title))) {
      Passage passage{static_cast<int64_t>(part.start), static_cast<int64_t>(part.end), 0, {}};
      const auto former_vector = stored.vectors.find(part.text);
      if (former_vector != stored.vectors.end()) {
        passage.scale = former_vector->second.scale;
        passage.codes = former_vector->second.codes;
        parts.push_back({std::move(passage), kNone});
        continue;
      }
      const auto former_text = numbers.find(part.text);
      if (former_text != numbers.end()) {
        parts.push_back({passage, former_text->second});
        continue;
      }
      const size_t number = reader.reads(part.text) ? texts_.size() : kNone;
      parts.push_back({passage, number});
      numbers.emplace(part.text, number);
      if (number != kNone) texts_.push_back(std::move(part.text));
    }
  }
}

std::vector<std::vector<Passage>> Batch::passages(const float* vectors, size_t count, size_t width) const {
  if (count != texts_.size()) {
    fail(MSDC_BAD_ARGUMENT, std::to_string(count) + " vectors for " + std::to_string(texts_.size()) + " texts");
  }
  if (count > 0 && width != model_.width) {
    fail(MSDC_BAD_ARGUMENT, "vectors of " + std::to_string(width) + " numbers; the model's have " +
                                std::to_string(model_.width));
  }
  std::vector<Passage> encoded(count);
  for (size_t i = 0; i < count; ++i) {
    const float* vector = vectors + i * width;
    for (size_t j = 0; j < width; ++j) {
      if (!std::isfinite(vector[j])) {
        fail(MSDC_BAD_ARGUMENT, "the vector of text " + std::to_string(i + 1) + " holds NaN or infinity");
      }
    }
    std::vector<int8_t> codes(width);
    encoded[i].scale = quantize(vector, width, codes.data());
    if (encoded[i].scale != 0) encoded[i].codes.assign(reinterpret_cast<const char*>(codes.data()), width);
  }
  std::vector<std::vector<Passage>> out;
  for (const std::vector<Part>& parts : parts_) {
    std::vector<Passage>& passages = out.emplace_back();
    for (const Part& part : parts) {
      passages.push_back(part.passage);
      if (part.text == kNone) continue;
      passages.back().scale = encoded[part.text].scale;
      passages.back().codes = encoded[part.text].codes;
    }
  }
  out.resize(documents_.size());
  return out;
}

}  // namespace msdc
