#include "fold_table.h"

#include <algorithm>

namespace msdc {

namespace {

// Written by benchmarks/word_table.py, which describes the format.
constexpr char kTable[] =
#include "word_table.h"
    ;

template <typename Entry>
typename std::vector<Entry>::const_iterator after(const std::vector<Entry>& entries, char32_t code) {
  return std::upper_bound(entries.begin(), entries.end(), code,
                          [](char32_t sought, const Entry& entry) { return sought < entry.code; });
}

// The lines of the table, one entry after the other.
class Lines {
 public:
  void next_line() {
    while (*at_ != '\n') ++at_;
    ++at_;
    start_ = 0;
  }

  // The numbers of the line's next entry, the first as a code point; false at the line's end.
  bool next_entry(std::vector<uint32_t>* numbers) {
    if (*at_ == '\n') {
      next_line();
      return false;
    }
    numbers->assign(1, 0);
    for (; *at_ != ' ' && *at_ != '\n'; ++at_) {
      if (*at_ == ',') {
        numbers->push_back(0);
      } else {
        numbers->back() = numbers->back() * 36 + static_cast<uint32_t>(*at_ <= '9' ? *at_ - '0' : *at_ - 'a' + 10);
      }
    }
    if (*at_ == ' ') ++at_;
    start_ = numbers->front() += start_;
    return true;
  }

  // The line's next word; empty at the line's end.
  std::string_view next_word() {
    const char* start = at_;
    while (*at_ != ' ' && *at_ != '\n') ++at_;
    const std::string_view out(start, static_cast<size_t>(at_ - start));
    if (*at_ == ' ') ++at_;
    return out;
  }

 private:
  const char* at_ = kTable;
  uint32_t start_ = 0;
};

bool is_leading(char32_t code) { return code >= 0x1100 && code < 0x1113; }
bool is_vowel(char32_t code) { return code >= 0x1161 && code < 0x1176; }
bool is_trailing(char32_t code) { return code > 0x11A7 && code < 0x11C3; }
bool is_syllable(char32_t code) { return code >= 0xAC00 && code < 0xD7A4; }
bool takes_trailing(char32_t code) { return is_syllable(code) && (code - 0xAC00) % 28 == 0; }

}  // namespace

FoldTable::FoldTable() {
  Lines lines;
  lines.next_line();  // the Unicode version
  std::vector<uint32_t> numbers;
  while (lines.next_entry(&numbers)) {
    for (uint32_t at = 0; at < numbers[1] * numbers[2]; at += numbers[2]) {
      folds_.push_back({numbers[0] + at, static_cast<uint32_t>(targets_.size()), numbers.size() > 3 ? 1u : 0u});
      if (numbers.size() > 3) targets_.push_back(numbers[3] + at);
    }
  }
  while (lines.next_entry(&numbers)) {
    folds_.push_back({numbers[0], static_cast<uint32_t>(targets_.size()), static_cast<uint32_t>(numbers.size() - 1)});
    targets_.append(numbers.begin() + 1, numbers.end());
  }
  std::sort(folds_.begin(), folds_.end(), [](const Fold& a, const Fold& b) { return a.code < b.code; });
  while (lines.next_entry(&numbers)) orders_.push_back({numbers[0], numbers[1]});
  while (lines.next_entry(&numbers)) classes_.push_back({numbers[0], numbers[1]});
  for (std::string_view word; !(word = lines.next_word()).empty();) common_.insert(word);
  for (char32_t code = 0; code < 0x80; ++code) {
    const auto kind = after(classes_, code);
    ascii_classes_[code] = kind == classes_.begin() ? kBreak : static_cast<CharClass>((kind - 1)->value);
    const auto fold = after(folds_, code);
    const bool changes = fold != folds_.begin() && (fold - 1)->code == code && (fold - 1)->count == 1;
    ascii_folds_[code] = changes ? targets_[(fold - 1)->first] : code;
  }
}

const FoldTable& FoldTable::get() {
  static const FoldTable table;
  return table;
}

CharClass FoldTable::class_of(char32_t code) const {
  if (code < 0x80) return ascii_classes_[code];
  return static_cast<CharClass>((after(classes_, code) - 1)->value);
}

// The combining class of a mark, 0 where its position is free.
uint32_t FoldTable::order_of(char32_t code) const {
  if (code < 0x300) return 0;
  const auto next = after(orders_, code);
  return next == orders_.begin() || (next - 1)->code != code ? 0 : (next - 1)->value;
}

std::u32string_view FoldTable::fold_of(const char32_t& code) const {
  if (code < 0x80) return {&ascii_folds_[code], 1};
  const auto next = after(folds_, code);
  if (next == folds_.begin() || (next - 1)->code != code) return {&code, 1};
  return std::u32string_view(targets_).substr((next - 1)->first, (next - 1)->count);
}

std::u32string FoldTable::folded(std::u32string_view text, std::vector<uint32_t>* origins) const {
  std::u32string out;
  out.reserve(text.size());
  bool composed = false;  // the last character, of Korean letters
  const auto append = [&](char32_t code, size_t origin) {
    const char32_t last = out.empty() ? 0 : out.back();
    if (is_leading(last) && is_vowel(code)) {
      out.back() = 0xAC00 + ((last - 0x1100) * 21 + code - 0x1161) * 28;
      composed = true;
      return;
    }
    if (is_trailing(code) && takes_trailing(last)) {
      out.back() += code - 0x11A7;
      composed = true;
      return;
    }
    // A last letter behind a whole syllable counts as a part of it.
    if (origins != nullptr) {
      const bool belongs = is_trailing(code) && is_syllable(last) && !composed;
      origins->push_back(belongs ? origins->back() : static_cast<uint32_t>(origin));
    }
    out.push_back(code);
    composed = false;
  };
  for (size_t at = 0; at < text.size(); ++at) {
    for (const char32_t code : fold_of(text[at])) append(code, at);
  }
  return out;
}

void FoldTable::order_marks(std::u32string* codes) const {
  const auto ordered = [this](char32_t mark) { return order_of(mark) != 0; };
  for (auto start = codes->begin(); start != codes->end();) {
    start = std::find_if(start, codes->end(), ordered);
    const auto end = std::find_if_not(start, codes->end(), ordered);
    if (end - start > 1) {
      std::stable_sort(start, end, [this](char32_t a, char32_t b) { return order_of(a) < order_of(b); });
    }
    start = end;
  }
}

bool FoldTable::is_in_word(char32_t code) const {
  const std::u32string_view fold = fold_of(code);
  return std::any_of(fold.begin(), fold.end(), [this](char32_t part) {
    const CharClass kind = class_of(part);
    return kind != kBreak && kind != kMark;
  });
}

bool FoldTable::is_decimal(char32_t code) const {
  const bool raised = (code >= 0x80 && code < 0x660) || (code >= 0x2070 && code < 0x2500);
  const std::u32string_view fold = fold_of(code);
  return !raised && fold.size() == 1 && fold[0] >= '0' && fold[0] <= '9';
}

}  // namespace msdc
