#include "matches.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "fold_table.h"
#include "numbers.h"
#include "utf8.h"
#include "words.h"

namespace msdc {

namespace {

// Calls on_part(part) for each part of a text between two of these.
template <typename OnPart>
void each_part(std::string_view text, char between, const OnPart& on_part) {
  for (size_t end; (end = text.find(between)) != std::string_view::npos; text.remove_prefix(end + 1)) {
    on_part(text.substr(0, end));
  }
  on_part(text);
}

bool starts_with(std::string_view text, std::string_view start) { return text.substr(0, start.size()) == start; }

template <typename Value>
using ByWord = std::map<std::string, std::vector<Value>, std::less<>>;

// The words of a text, as they are stored and in other spellings, with their spans.
class TextWords {
 public:
  explicit TextWords(std::string_view text) : TextWords(code_points(text)) {
    add_other_spellings();
    for (const Undivided& chunk : undivided(text_)) add_undivided(chunk);
  }

  // Where a term is, in order.
  std::vector<Span> spans_of(std::string_view term) const {
    const bool goes_on = !term.empty() && term.back() == '*';
    if (goes_on) term.remove_suffix(1);
    std::vector<std::string_view> words;
    each_part(term, ' ', [&](std::string_view word) { words.push_back(word); });
    std::vector<Span> out;
    if (words.size() == 1) {
      each_entry(numbers_, term, goes_on, [&](const std::string&, uint32_t number) {
        out.push_back({tokens_[number].start, tokens_[number].end});
      });
    } else {
      add_phrases(words, goes_on, &out);
    }
    each_entry(others_, term, goes_on, [&](const std::string& key, const Span& span) {
      if (key.find(' ', term.size()) == std::string::npos) out.push_back(span);
    });
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
  }

 private:
  struct Token {
    const std::string* word;  // a key of numbers_
    uint32_t start, end;
  };

  explicit TextWords(std::u32string text) : text_(std::move(text)) { add_tokens(); }

  // Calls on_value(key, value) for the values of a word, or of those that begin with it.
  template <typename Value, typename OnValue>
  static void each_entry(const ByWord<Value>& words, std::string_view word, bool goes_on, const OnValue& on_value) {
    for (auto entry = words.lower_bound(word); entry != words.end() && starts_with(entry->first, word); ++entry) {
      if (!goes_on && entry->first != word) return;
      for (const Value& value : entry->second) on_value(entry->first, value);
    }
  }

  void add_token(std::u32string_view word, size_t start, size_t end) {
    const auto entry = numbers_.try_emplace(utf8_of(word)).first;
    entry->second.push_back(static_cast<uint32_t>(tokens_.size()));
    tokens_.push_back({&entry->first, static_cast<uint32_t>(start), static_cast<uint32_t>(end)});
  }

  void add_tokens() {
    const FoldTable& table = FoldTable::get();
    std::vector<uint32_t> origins;
    const std::u32string codes = table.folded(text_, &origins);
    // One past the character of a folded one, with the marks on it.
    const auto end_of = [&](size_t position) {
      size_t end = origins[position] + 1;
      const size_t following = position + 1 < origins.size() ? origins[position + 1] : text_.size();
      for (; end < following; ++end) {  // marks, which fold to nothing, and the letters of a Korean syllable
        const std::u32string_view fold = table.fold_of(text_[end]);
        if (!fold.empty() && (fold.front() < 0x1100 || fold.front() > 0x11FF)) break;
      }
      return end;
    };
    std::vector<WordSpan> spans;
    for (const WrittenNumber& number : written_numbers(codes, &spans)) {
      const size_t first = origins[spans[number.first].first], last = spans[number.last].second - 1;
      others_[number.joined].push_back({static_cast<uint32_t>(first), static_cast<uint32_t>(end_of(last))});
    }
    each_word(codes, [&](size_t start, size_t end, bool unspaced) {
      if (!unspaced) {
        std::u32string word = codes.substr(start, end - start);
        table.order_marks(&word);
        add_token(word, origins[start], end_of(end - 1));
        return;
      }
      const auto after_letter = [&](size_t at) {
        for (++at; at < end && table.class_of(codes[at]) == kMark;) ++at;
        return at;
      };
      for (size_t at = start; at < end;) {
        const size_t second = after_letter(at);
        const size_t last = second == end ? end : after_letter(second);
        add_token(std::u32string_view(codes).substr(at, last - at), origins[at], end_of(last - 1));
        at = second;
      }
    });
  }

  void add_other_spellings() {
    for (size_t start = 0, end, number = 0; start < text_.size(); start = end) {
      while (start < text_.size() && is_space(text_[start])) ++start;
      for (end = start; end < text_.size() && !is_space(text_[end]);) ++end;
      const size_t first = number;
      while (number < tokens_.size() && tokens_[number].start < end) ++number;
      if (number == first) continue;
      const std::u32string_view chunk = std::u32string_view(text_).substr(start, end - start);
      if (!has_spellings(chunk)) continue;
      const Spellings other = spellings(chunk, terms_of(chunk));
      const Token *inside = &tokens_[first], *last = &tokens_[number - 1];
      for (const std::string& word : other.joined) others_[word].push_back({inside->start, last->end});
      for (size_t i = 0; i < number - first; ++i) {
        const Span span(inside[i].start, inside[i].end);
        if (other.umlauts.size() == number - first) others_[other.umlauts[i]].push_back(span);
        const std::string* parts = other.parts_of(*inside[i].word);
        if (parts == nullptr) continue;
        others_[*parts].push_back(span);
        each_part(*parts, ' ', [&](std::string_view part) { others_[std::string(part)].push_back(span); });
      }
    }
  }

  // The words of a chunk without the line ends that divide them.
  void add_undivided(const Undivided& chunk) {
    const TextWords words(chunk.text);
    if (words.tokens_.empty()) return;
    const Spellings other = spellings(chunk.text, terms_of(chunk.text));
    const auto add = [&](const std::string& word, const Token& first, const Token& last) {
      others_[word].push_back({chunk.origins[first.start], chunk.origins[last.end - 1] + 1});
    };
    for (const std::string& word : other.joined) add(word, words.tokens_.front(), words.tokens_.back());
    for (size_t i = 0; i < words.tokens_.size(); ++i) {
      add(*words.tokens_[i].word, words.tokens_[i], words.tokens_[i]);
      if (other.umlauts.size() == words.tokens_.size()) add(other.umlauts[i], words.tokens_[i], words.tokens_[i]);
    }
  }

  // Words that follow each other, in the way of Knuth, Morris and Pratt: no word of the text is looked at twice.
  void add_phrases(const std::vector<std::string_view>& words, bool goes_on, std::vector<Span>* out) const {
    std::vector<const std::string*> sought;
    for (size_t i = 0; i < words.size() - (goes_on ? 1 : 0); ++i) {
      const auto entry = numbers_.find(words[i]);
      if (entry == numbers_.end()) return;
      sought.push_back(&entry->first);
    }
    // Of each beginning of the phrase the longest shorter one that is also its end.
    std::vector<size_t> shorter(sought.size() + 1, 0);
    for (size_t i = 1, held = 0; i < sought.size(); ++i) {
      while (held > 0 && sought[i] != sought[held]) held = shorter[held];
      if (sought[i] == sought[held]) ++held;
      shorter[i + 1] = held;
    }
    for (size_t i = 0, held = 0; i < tokens_.size(); ++i) {
      while (held > 0 && (held == sought.size() || tokens_[i].word != sought[held])) held = shorter[held];
      if (tokens_[i].word == sought[held]) ++held;
      if (held < sought.size()) continue;
      const size_t last = i + (goes_on ? 1 : 0);
      if (goes_on && (last == tokens_.size() || !starts_with(*tokens_[last].word, words.back()))) continue;
      out->push_back({tokens_[i + 1 - held].start, tokens_[last].end});
    }
  }

  const std::u32string text_;
  std::vector<Token> tokens_;  // in order; of pairs of letters both
  ByWord<uint32_t> numbers_;   // of the tokens with a word
  ByWord<Span> others_;        // other spellings, also of several words with blanks between; where what they spell is
};

}  // namespace

std::vector<TermSpans> find_terms(std::string_view text, std::string_view terms) {
  const TextWords words(text);
  std::vector<TermSpans> out;
  std::unordered_map<std::string_view, size_t> numbers;
  each_part(terms, '\n', [&](std::string_view term) {
    const auto [entry, is_new] = numbers.emplace(term, out.size());
    if (is_new) out.push_back({0, words.spans_of(term)});
    out[entry->second].weight += 1 + static_cast<size_t>(std::count(term.begin(), term.end(), ' '));
  });
  return out;
}

std::vector<Span> merged(const std::vector<TermSpans>& terms) {
  std::vector<Span> spans, out;
  for (const TermSpans& term : terms) spans.insert(spans.end(), term.spans.begin(), term.spans.end());
  std::sort(spans.begin(), spans.end());
  for (const Span& span : spans) {
    if (!out.empty() && span.first <= out.back().second) {
      out.back().second = std::max(out.back().second, span.second);
    } else {
      out.push_back(span);
    }
  }
  return out;
}

size_t passage_to_show(const std::vector<Span>& passages, const float* cosines, const std::vector<TermSpans>& terms) {
  size_t all = 0;
  std::vector<size_t> matched(passages.size(), 0);
  std::vector<size_t> ends;  // of a term: the first end of the spans from here on
  for (const TermSpans& term : terms) {
    all += term.weight;
    if (term.spans.empty()) continue;
    ends.resize(term.spans.size());
    for (size_t i = ends.size(), least = SIZE_MAX; i-- > 0;) ends[i] = least = std::min(least, term.spans[i].second);
    for (size_t i = 0; i < passages.size(); ++i) {
      const auto first = std::lower_bound(term.spans.begin(), term.spans.end(), Span(passages[i].first, 0));
      const auto at = static_cast<size_t>(first - term.spans.begin());
      if (at < ends.size() && ends[at] <= passages[i].second) matched[i] += term.weight;
    }
  }
  size_t best = 0;
  double highest = -1e9;
  for (size_t i = 0; i < passages.size(); ++i) {
    const double share = static_cast<double>(matched[i]) / static_cast<double>(all);
    // Six digits, rounded as Python does: printf is exact.
    char digits[64];
    std::snprintf(digits, sizeof digits, "%.6f", static_cast<double>(cosines[i]) + share);
    const double score = std::strtod(digits, nullptr);
    if (score > highest) {
      highest = score;
      best = i;
    }
  }
  return best;
}

}  // namespace msdc
