#include "numbers.h"

#include <algorithm>

#include "fold_table.h"
#include "utf8.h"

namespace msdc {

namespace {

constexpr size_t kLeast = 4, kMost = 34;  // characters of a number; an IBAN has up to 34
constexpr size_t kMostLetters = 8;        // of a code: AB-1234, covid-19
constexpr size_t kMostBetween = 3;        // characters between two groups
constexpr std::u32string_view kClose = U"./,'\u2019\u2010\u2012\u2013-";
constexpr std::u32string_view kWide = U" ()/\u2010\u2012\u2013-";

enum Kind : int { kOther = 0, kLetters = 1, kGroup = 2 };  // a group has a digit

bool is_digit(char32_t code) { return code >= '0' && code <= '9'; }

Kind kind_of(std::u32string_view word) {
  if (word.size() > kMost) return kOther;
  bool has_digit = false;
  for (const char32_t code : word) {
    if (is_digit(code)) {
      has_digit = true;
    } else if (code < 'a' || code > 'z') {
      return kOther;
    }
  }
  return has_digit ? kGroup : word.size() <= kMostLetters ? kLetters : kOther;
}

// Words that may be one number.
struct Row {
  std::vector<size_t> words, parts;  // `parts`: where those begin that follow a blank
};

class Numbers {
 public:
  Numbers(std::u32string_view folded, const std::vector<WordSpan>& words) : folded_(folded), words_(words) {}

  std::vector<WrittenNumber> read() {
    int before = kOther;
    for (size_t number = 0; number < words_.size(); ++number) {
      const int kind = kind_of(text(number));
      const bool is_near = kind != kOther && before != kOther;
      const size_t end = is_near ? words_[number - 1].second : 0;
      const auto between = is_near ? folded_.substr(end, words_[number].first - end) : std::u32string_view();
      const bool is_close = kind + before > kGroup && between.size() == 1 && has(kClose, between[0]);
      const bool is_wide = kind + before == 2 * kGroup && !between.empty() && between.size() <= kMostBetween &&
                           std::all_of(between.begin(), between.end(), [](char32_t code) { return has(kWide, code); });
      if (!is_close && !is_wide) {
        add_row();
        row_ = {};
      }
      if (kind != kOther) {
        if (!is_close) row_.parts.push_back(row_.words.size());
        row_.words.push_back(number);
      }
      before = kind;
    }
    add_row();
    return std::move(out_);
  }

 private:
  static bool has(std::u32string_view signs, char32_t code) { return signs.find(code) != signs.npos; }

  std::u32string_view text(size_t number) const {
    return folded_.substr(words_[number].first, words_[number].second - words_[number].first);
  }

  // The row as a whole and its parts.
  void add_row() {
    if (row_.parts.size() > 1) add(0, row_.words.size());
    for (size_t i = 0; i < row_.parts.size(); ++i) {
      add(row_.parts[i], i + 1 < row_.parts.size() ? row_.parts[i + 1] : row_.words.size());
    }
  }

  void add(size_t from, size_t to) {
    if (to - from < 2) return;
    std::u32string joined;
    for (size_t i = from; i < to && joined.size() <= kMost; ++i) joined.append(text(row_.words[i]));
    if (joined.size() < kLeast || joined.size() > kMost) return;
    out_.push_back({utf8_of(joined), row_.words[from], row_.words[to - 1]});
  }

  std::u32string_view folded_;
  const std::vector<WordSpan>& words_;
  Row row_;
  std::vector<WrittenNumber> out_;
};

}  // namespace

std::vector<WrittenNumber> written_numbers(std::u32string_view folded, std::vector<WordSpan>* words) {
  if (!std::any_of(folded.begin(), folded.end(), is_digit)) return {};
  std::vector<WordSpan> spans;
  each_word(folded, [&](size_t start, size_t end, bool) { spans.emplace_back(start, end); });
  if (words == nullptr) return Numbers(folded, spans).read();
  *words = std::move(spans);
  return Numbers(folded, *words).read();
}

}  // namespace msdc
