// The parts of a search index that every platform shares: a document's passages with their 8-bit vectors, and cosines over
// them. The SQLite file is the caller's; msdc/search of the Python package describes it and is the oracle.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "encoder.h"

namespace msdc {

// Whether the model reads a text: at most half of its tokens stand for characters that the vocabulary lacks.
class Reader {
 public:
  explicit Reader(const Tokenizer& tokenizer);
  bool reads(std::string_view text) const;

 private:
  const Tokenizer& tokenizer_;
  std::vector<int32_t> special_, first_probe_, second_probe_;
};

// A part of a document, in characters (code points), and the text that is encoded: the title is before it.
struct TextPassage {
  size_t start, end;
  std::string text;
};

// The passages of a document: its sentences, short neighbours together, long ones in parts, the title before each.
// `titled`: whether a document of those that are added together has a title, for which passages leave room.
std::vector<TextPassage> document_passages(const Tokenizer& tokenizer, const std::string& prompt, std::string_view title,
                                           std::string_view text, bool titled);

// The title as it is put before each passage: shortened, or empty.
std::string title_prefix(const Tokenizer& tokenizer, const std::string& prompt, std::string_view title, bool titled);

// Sentences of a text in parts of at most `most` words, where no model is at hand.
std::vector<std::pair<size_t, size_t>> word_passages(std::string_view text, int64_t most);

// 8-bit numbers of a vector, and the scale that gives them length 1; 0 where the vector is zero.
float quantize(const float* vector, size_t width, int8_t* codes);

// First character, one past the last (in code points), scale, 8-bit vector: null where the model cannot read the passage.
using OnPassage = std::function<void(size_t start, size_t end, float scale, const int8_t* vector)>;

// `document_passages` with their vectors.
void index_document(Encoder* encoder, std::string_view title, std::string_view text, bool titled,
                    const OnPassage& on_passage);

// Cosine of a query to `count` 8-bit rows with one scale each.
void int8_cosines(const float* query, size_t width, const int8_t* rows, const float* scales, size_t count,
                  float* cosines);

// CRC-32 as zlib has it, begun with the value `start`.
uint32_t crc32(uint32_t start, const uint8_t* bytes, size_t size);

}  // namespace msdc
