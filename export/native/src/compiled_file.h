// tokenizer.bin: a tokenizer.json compiled at export into flat tables that are read where they are mapped. The layout is
// written by msdc/export/tokenizer/binary.py and described there. Every access is bounds-checked when it is made, so
// opening a file reads only its first pages and a damaged one cannot reach outside itself.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "files.h"
#include "work.h"

namespace msdc {

// Little-endian 32-bit words of a mapped table.
class Words {
 public:
  Words() = default;
  explicit Words(std::string_view bytes) : bytes_(bytes) {}

  size_t size() const { return bytes_.size() / 4; }
  std::string_view bytes() const { return bytes_; }
  // Throws Failure(MSDC_DAMAGED) outside the table.
  uint32_t at(size_t index) const;
  // The bytes that begin at a word.
  std::string_view bytes_from(size_t word) const;

 private:
  std::string_view bytes_;
};

// Texts with the numbers 0 to size - 1 and a hash table over them, for lookups that extend a text byte by byte.
class TextTable {
 public:
  static constexpr uint32_t kSeed = 2166136261u;

  TextTable() = default;
  explicit TextTable(std::string_view blob);

  static uint32_t add(uint32_t hash, char byte) { return (hash ^ static_cast<unsigned char>(byte)) * 16777619u; }
  static uint32_t add(uint32_t hash, std::string_view bytes) {
    for (const char c : bytes) hash = add(hash, c);
    return hash;
  }

  // Number of the text `head` + `tail`, whose hash is given, -1 where there is none.
  int32_t find(std::string_view head, std::string_view tail, uint32_t hash, WorkBudget* budget) const;
  int32_t find(std::string_view text, WorkBudget* budget) const {
    budget->spend(text.size() / 4);
    return find(text, {}, add(kSeed, text), budget);
  }

  size_t size() const { return count_; }
  size_t longest_bytes() const { return longest_; }
  std::string_view text(size_t index) const;

 private:
  Words slots_;
  Words offsets_;
  std::string_view bytes_;
  uint32_t count_ = 0;
  uint32_t home_slots_ = 0;
  uint32_t max_probe_ = 0;
  uint32_t longest_ = 0;
};

// Pairs of numbers to two numbers: merges of BPE, compositions of characters.
class PairTable {
 public:
  struct Value {
    uint32_t rank;
    uint32_t result;
  };

  PairTable() = default;
  explicit PairTable(std::string_view blob);

  bool find(uint32_t left, uint32_t right, Value* value, WorkBudget* budget) const;

 private:
  Words slots_;
  uint32_t home_slots_ = 0;
  uint32_t max_probe_ = 0;
};

// A set of code points.
class CharacterSet {
 public:
  CharacterSet() = default;
  explicit CharacterSet(std::string_view blob);

  bool has(uint32_t code) const {
    if (code < 128) return (ascii_[code >> 5] >> (code & 31) & 1) != 0;
    return beyond_ascii(code);
  }

 private:
  bool beyond_ascii(uint32_t code) const;

  Words ranges_;  // [start, end) pairs in order
  std::array<uint32_t, 4> ascii_ = {};
};

// What becomes of single code points.
class CharacterMap {
 public:
  enum class Action : uint32_t { replace = 1, shift = 2, surround = 3, number = 4 };
  struct Entry {
    Action action;
    uint32_t value;
  };

  CharacterMap() = default;
  explicit CharacterMap(std::string_view blob);

  bool find(uint32_t code, Entry* entry) const;
  // The text of a `replace` or `surround` entry.
  std::string_view text(const Entry& entry) const;
  // Append what `code`, whose bytes are `own`, becomes.
  void apply(uint32_t code, std::string_view own, std::string* out) const;

 private:
  Words entries_;  // start, end, action, value
  std::string_view pool_;
  std::array<bool, 128> kept_ = {};  // ASCII that stays as it is
};

class CompiledFile {
 public:
  // Throws Failure: MSDC_DAMAGED, or MSDC_UNSUPPORTED for a version this core does not read.
  explicit CompiledFile(const std::string& path);

  // Table `index`; throws Failure(MSDC_DAMAGED) where there is none.
  std::string_view table(uint32_t index) const;
  // A table of text that is put before or in place of parts of a text; throws for one that is longer than a token.
  std::string_view short_text(uint32_t index) const;
  size_t bytes() const { return file_.bytes().size(); }

 private:
  MappedFile file_;
  std::string path_;
  uint32_t count_ = 0;
};

// Reads the words of the first table in order.
class WordReader {
 public:
  explicit WordReader(Words words) : words_(words) {}
  uint32_t next() { return words_.at(at_++); }
  // A count that the rest of the table can hold.
  uint32_t count();
  bool done() const { return at_ == words_.size(); }

 private:
  Words words_;
  size_t at_ = 0;
};

}  // namespace msdc
