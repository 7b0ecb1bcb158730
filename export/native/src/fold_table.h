// The table of word_table.h: what folds and splits text into words, the same in every language of the project.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace msdc {

enum CharClass : uint32_t { kBreak, kWord, kUnspaced, kMark, kSymbol, kRegion };

class FoldTable {
 public:
  // Read at the first call.
  static const FoldTable& get();

  CharClass class_of(char32_t code) const;

  // A text decomposed, without case, accents and what is invisible; Korean letters as syllables. `origins` may be null:
  // for each character of the answer the number of the text's character that it comes from.
  std::u32string folded(std::u32string_view text, std::vector<uint32_t>* origins = nullptr) const;
  // What a character becomes. `code` must outlive the answer.
  std::u32string_view fold_of(const char32_t& code) const;
  // Marks on the same letter in the order that Unicode gives them.
  void order_marks(std::u32string* codes) const;

  // Whether a character is part of a word, not only a mark on it.
  bool is_in_word(char32_t code) const;
  // A digit of any script; superscripts and numbers in circles are none.
  bool is_decimal(char32_t code) const;
  // Words that a query is searched without.
  bool is_common(std::string_view word) const { return common_.count(word) != 0; }

 private:
  struct Fold {
    char32_t code;
    uint32_t first, count;  // what it becomes: of all targets
  };
  struct Value {
    char32_t code;
    uint32_t value;
  };

  FoldTable();
  uint32_t order_of(char32_t code) const;

  std::vector<Fold> folds_;
  std::u32string targets_;
  std::vector<Value> orders_, classes_;
  std::unordered_set<std::string_view> common_;
  std::array<CharClass, 0x80> ascii_classes_ = {};
  std::array<char32_t, 0x80> ascii_folds_ = {};
};

// Calls on_word(first, last, unspaced) for each word of folded text; in a script without blanks for each run.
template <typename OnWord>
void each_word(std::u32string_view codes, const OnWord& on_word) {
  const FoldTable& table = FoldTable::get();
  for (size_t start = 0; start < codes.size();) {
    const CharClass kind = table.class_of(codes[start]);
    size_t end = start + 1;
    if (kind == kWord || kind == kUnspaced) {
      for (CharClass next; end < codes.size() && ((next = table.class_of(codes[end])) == kind || next == kMark);) ++end;
    } else if (kind == kRegion && end < codes.size() && table.class_of(codes[end]) == kRegion) {
      ++end;
    }
    if (kind != kBreak && kind != kMark) on_word(start, end, kind == kUnspaced);
    start = end;
  }
}

}  // namespace msdc
