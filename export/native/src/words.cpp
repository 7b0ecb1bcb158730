#include "words.h"

#include <algorithm>
#include <cstdint>
#include <unordered_set>
#include <vector>

#include "utf8.h"

namespace msdc {

namespace {

// Written by benchmarks/word_table.py, which describes the format.
constexpr char kTable[] =
#include "word_table.h"
    ;

enum Class : uint32_t { kBreak, kWord, kUnspaced, kMark, kSymbol, kRegion };

struct Fold {
  uint32_t code, first, count;  // what it becomes: of all targets
};

struct Value {
  uint32_t code, value;
};

template <typename Entry>
typename std::vector<Entry>::const_iterator after(const std::vector<Entry>& entries, uint32_t code) {
  return std::upper_bound(entries.begin(), entries.end(), code,
                          [](uint32_t one, const Entry& entry) { return one < entry.code; });
}

class Table {
 public:
  Table() {
    next_line();  // the Unicode version
    std::vector<uint32_t> numbers;
    while (next_entry(&numbers)) {
      for (uint32_t at = 0; at < numbers[1] * numbers[2]; at += numbers[2]) {
        folds_.push_back({numbers[0] + at, static_cast<uint32_t>(targets_.size()), numbers.size() > 3 ? 1u : 0u});
        if (numbers.size() > 3) targets_.push_back(numbers[3] + at);
      }
    }
    while (next_entry(&numbers)) {
      folds_.push_back({numbers[0], static_cast<uint32_t>(targets_.size()), static_cast<uint32_t>(numbers.size() - 1)});
      targets_.insert(targets_.end(), numbers.begin() + 1, numbers.end());
    }
    std::sort(folds_.begin(), folds_.end(), [](const Fold& one, const Fold& other) { return one.code < other.code; });
    while (next_entry(&numbers)) orders_.push_back({numbers[0], numbers[1]});
    while (next_entry(&numbers)) classes_.push_back({numbers[0], numbers[1]});
  }

  Class class_of(uint32_t code) const {
    const auto next = after(classes_, code);
    return next == classes_.begin() ? kBreak : static_cast<Class>((next - 1)->value);
  }

  // The combining class of a mark, 0 where its place is free.
  uint32_t order_of(uint32_t code) const {
    const auto next = after(orders_, code);
    return next == orders_.begin() || (next - 1)->code != code ? 0 : (next - 1)->value;
  }

  // The text decomposed, without case, accents and what is invisible.
  std::vector<uint32_t> folded(std::string_view text) const {
    std::vector<uint32_t> out;
    uint32_t code = 0;
    for (size_t at = 0, bytes; (bytes = decode_utf8(text, at, &code)) != 0; at += bytes) {
      const auto next = after(folds_, code);
      if (next == folds_.begin() || (next - 1)->code != code) {
        append(code, &out);
        continue;
      }
      const Fold& fold = *(next - 1);
      for (uint32_t i = 0; i < fold.count; ++i) append(targets_[fold.first + i], &out);
    }
    for (auto start = out.begin(); start != out.end();) {
      const auto ordered = [this](uint32_t mark) { return order_of(mark) != 0; };
      start = std::find_if(start, out.end(), ordered);
      const auto end = std::find_if_not(start, out.end(), ordered);
      if (end - start > 1) {
        std::stable_sort(start, end, [this](uint32_t one, uint32_t other) { return order_of(one) < order_of(other); });
      }
      start = end;
    }
    return out;
  }

 private:
  // Letters of Korean become syllables.
  static void append(uint32_t code, std::vector<uint32_t>* out) {
    if (!out->empty()) {
      uint32_t* last = &out->back();
      if (*last >= 0x1100 && *last < 0x1113 && code >= 0x1161 && code < 0x1176) {
        *last = 0xAC00 + ((*last - 0x1100) * 21 + code - 0x1161) * 28;
        return;
      }
      if (*last >= 0xAC00 && *last < 0xD7A4 && (*last - 0xAC00) % 28 == 0 && code > 0x11A7 && code < 0x11C3) {
        *last += code - 0x11A7;
        return;
      }
    }
    out->push_back(code);
  }

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

  const char* at_ = kTable;
  uint32_t start_ = 0;
  std::vector<Fold> folds_;
  std::vector<uint32_t> targets_;
  std::vector<Value> orders_, classes_;
};

// Calls on_word(first, last, unspaced) for each word of `codes`; in a script without blanks for each run.
template <typename OnWord>
void each_word(const Table& table, const std::vector<uint32_t>& codes, const OnWord& on_word) {
  for (size_t start = 0; start < codes.size();) {
    const Class kind = table.class_of(codes[start]);
    size_t end = start + 1;
    if (kind == kWord || kind == kUnspaced) {
      for (Class next; end < codes.size() && ((next = table.class_of(codes[end])) == kind || next == kMark);) ++end;
    } else if (kind == kRegion && end < codes.size() && table.class_of(codes[end]) == kRegion) {
      ++end;
    }
    if (kind != kBreak && kind != kMark) on_word(start, end, kind == kUnspaced);
    start = end;
  }
}

// Calls on_term(text, first, last) for each word of a text; in a script without blanks for each letter of a run with the
// one behind it, for the last alone.
template <typename OnTerm>
void each_term(std::string_view text, const OnTerm& on_term) {
  static const Table table;
  const std::vector<uint32_t> codes = table.folded(text);
  const auto part = [&](size_t start, size_t end) {
    std::string out;
    for (size_t at = start; at < end; ++at) append_utf8(codes[at], &out);
    return out;
  };
  each_word(table, codes, [&](size_t start, size_t end, bool unspaced) {
    if (!unspaced) {
      on_term(part(start, end), true, false);
      return;
    }
    const auto after_letter = [&](size_t at) {
      for (++at; at < end && table.class_of(codes[at]) == kMark;) ++at;
      return at;
    };
    for (size_t at = start; at < end;) {
      const size_t second = after_letter(at);
      on_term(part(at, second == end ? end : after_letter(second)), at == start, second == end);
      at = second;
    }
  });
}

}  // namespace

std::string index_words(std::string_view text) {
  std::string out;
  each_term(text, [&](const std::string& term, bool, bool) { out.append(out.empty() ? "" : " ").append(term); });
  return out;
}

std::string match_expression(std::string_view query) {
  std::string out;
  std::unordered_set<std::string> seen;
  each_term(query, [&](const std::string& term, bool first, bool last) {
    if (last && !first) return;  // the pair before has it
    const std::string quoted = "\"" + term + (last ? "\"*" : "\"");
    if (seen.insert(quoted).second) out.append(out.empty() ? "" : " OR ").append(quoted);
  });
  return out;
}

}  // namespace msdc
