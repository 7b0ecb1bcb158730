// The vectors of passages in the file of an index: blocks of up to 256, with one checksum each.
//
// A block keeps the order of the passages' numbers, and so do the blocks: new passages fill the last one, and a removed
// document leaves a gap in none, since its blocks are written again without it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "database.h"

namespace msdc {

// A part of a text in characters (code points); without codes where the model cannot read it.
struct Passage {
  int64_t start = 0, end = 0;
  float scale = 0;
  std::string codes;  // int8
};

// A row of the table `blocks`.
struct Block {
  int64_t row = 0;
  int64_t crc = 0;
  std::string passages, documents, scales, codes;  // int64, int64, float32, int8

  // The block of a row of `blocks`, compared with its checksum. Throws Failure(MSDC_DAMAGED).
  static Block read(const Database& database, const Row& row);

  size_t count() const { return passages.size() / sizeof(int64_t); }
  size_t width() const { return count() == 0 ? 0 : codes.size() / count(); }
  int64_t passage(size_t position) const;
  int64_t document(size_t position) const;
  float scale(size_t position) const;
  // Append the passage `number` of a document.
  void add(int64_t number, int64_t document, const Passage& passage);
  // Append an entry of another block.
  void add(const Block& other, size_t position);
  void write(Database* database) const;
};

// Appends passages to the tables; `finish` writes the last block.
class BlockWriter {
 public:
  explicit BlockWriter(Database* database);
  void add(int64_t document, const Passage& passage);
  void finish();

 private:
  Database* database_;
  Block block_;
  bool is_changed_ = false;
};

// Remove the documents of keys (JSON), with their words, passages and vectors; returns their number.
int64_t remove_documents(Database* database, const std::string& keys);

// Compare all passages and blocks with their checksums.
void check_passages(Database& database);

// Put the passages of the table `rebuilt` in the place of all others.
void replace_passages(Database* database);

}  // namespace msdc
