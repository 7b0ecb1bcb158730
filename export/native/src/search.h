// The parts of a search index that every platform shares: a document's passages with their 8-bit vectors, and cosines over
// them. The SQLite file is the caller's; msdc/search of the Python package describes it and is the oracle.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "encoder.h"

namespace msdc {

// Whether the model reads a text: at most half of its tokens stand for characters that the vocabulary lacks.
bool can_read(const Tokenizer& tokenizer, std::string_view text);

// First character, one past the last (in code points), scale, 8-bit vector: null where the model cannot read the passage.
using OnPassage = std::function<void(size_t start, size_t end, float scale, const int8_t* vector)>;

// The passages of a document: its sentences, short neighbours together, long ones in parts, the title before each.
// `titled`: whether a document of those that are added together has a title, for which passages leave room.
void index_document(Encoder* encoder, std::string_view title, std::string_view text, bool titled,
                    const OnPassage& on_passage);

// Cosine of a query to `count` 8-bit rows with one scale each.
void int8_cosines(const float* query, size_t width, const int8_t* rows, const float* scales, size_t count,
                  float* cosines);

// CRC-32 as zlib has it, begun with the value `start`.
uint32_t crc32(uint32_t start, const uint8_t* bytes, size_t size);

}  // namespace msdc
