// Documents on their way into an index: what of their texts has to be encoded, apart from who encodes it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "blocks.h"
#include "failure.h"
#include "index_file.h"
#include "manifest.h"
#include "tokenizer.h"

namespace msdc {

// What an index stores of its model, and the width of its vectors.
struct Model {
  std::string source, name;
  std::optional<std::string> cosines;  // JSON, if the manifest has them
  size_t width = 0;

  static Model of(const Manifest& manifest);
};

// The part of a bundle that documents and queries need before they are encoded.
struct TextModel {
  const Manifest& manifest;
  const Tokenizer& tokenizer;
};

// Documents from JSON: [{"text": ..., "id": ..., "title": ..., "metadata": an object as a string}, ...]; only `text` is
// required. Throws Failure(MSDC_BAD_ARGUMENT).
std::vector<Document> read_documents(std::string_view json);

// Ids from JSON: a list of strings.
std::vector<std::string> read_ids(std::string_view json);

// Run `work`, which reads JSON of the caller: what is wrong with it is a wrong argument.
template <typename Work>
auto read_argument(Work work) {
  try {
    return work();
  } catch (const Failure& failure) {
    if (failure.status != MSDC_DAMAGED) throw;
    fail(MSDC_BAD_ARGUMENT, failure.what());
  }
}

// Strings as a JSON list.
std::string json_list(const std::vector<std::string>& texts);

// A name in a message, which ends at a NUL character.
inline std::string quoted(std::string_view text) { return "'" + std::string(text.substr(0, text.find('\0'))) + "'"; }

// Whether a text is not only blanks.
bool has_text(std::string_view text);

class Batch {
 public:
  enum class Kind { add, update, rebuild };

  Batch(Kind kind, Model model) : kind_(kind), model_(std::move(model)) {}

  Kind kind() const { return kind_; }
  const Model& model() const { return model_; }
  // Distinct texts to encode, with the model's own prompt.
  const std::vector<std::string>& texts() const { return texts_; }
  const std::vector<Document>& documents() const { return documents_; }
  const std::vector<int64_t>& rows() const { return rows_; }
  // The keys that the caller gave.
  const std::string& keys() const { return keys_; }

  // Take documents of a block; of equal ids the last stays where `kind` replaces documents.
  void take(std::vector<Document> documents);
  // Take documents that the index has.
  void take(std::vector<int64_t> rows, std::vector<Document> documents);
  // What an index has of these documents: passages by title and text, and vectors by the text of a passage.
  struct Stored {
    std::unordered_map<std::string, std::vector<Passage>> documents;
    std::unordered_map<std::string, Passage> vectors;
  };
  static std::string stored_key(const Document& document) { return document.title + '\0' + document.text; }
  // Split documents into passages, and leave out of `texts` those that are stored.
  void split(const TextModel& model, const Stored& stored);

  // The passages of each document, with the vectors of the texts: `width` numbers each.
  std::vector<std::vector<Passage>> passages(const float* vectors, size_t count, size_t width) const;

 private:
  static constexpr size_t kNone = static_cast<size_t>(-1);
  struct Part {
    Passage passage;
    size_t text;  // of texts_; kNone: it has its vector, or gets none
  };

  Kind kind_;
  Model model_;
  std::vector<Document> documents_;
  std::vector<int64_t> rows_;
  std::vector<std::vector<Part>> parts_;
  std::vector<std::string> texts_;
  std::string keys_ = "[]";
};

}  // namespace msdc
