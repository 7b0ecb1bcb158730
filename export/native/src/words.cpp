#include "words.h"

#include <algorithm>
#include <cstdint>
#include <unordered_set>
#include <utility>

#include "fold_table.h"
#include "json.h"
#include "numbers.h"
#include "utf8.h"

namespace msdc {

namespace {

constexpr size_t kTitleWords = 128;  // a query with more is not compared with titles
constexpr size_t kSentenceWords = 5;  // from so many on, single letters that are words (a, I, y) are not looked for
constexpr const char *kWhole = "1", *kHalf = "0.5";  // shares of a score; half of it for the first letters of a word

// --- the words of a text

struct Word {
  std::string text;
  std::vector<std::string> letters;  // with their marks, of a script without blanks between words
};

std::u32string folded(std::u32string_view text) { return FoldTable::get().folded(text); }

std::vector<Word> words_of_folded(std::u32string codes) {
  const FoldTable& table = FoldTable::get();
  table.order_marks(&codes);
  std::vector<Word> out;
  each_word(codes, [&](size_t start, size_t end, bool unspaced) {
    Word word{utf8_of(std::u32string_view(codes).substr(start, end - start)), {}};
    for (size_t at = start; unspaced && at < end;) {
      size_t next = at + 1;
      while (next < end && table.class_of(codes[next]) == kMark) ++next;
      word.letters.push_back(utf8_of(std::u32string_view(codes).substr(at, next - at)));
      at = next;
    }
    out.push_back(std::move(word));
  });
  return out;
}

std::vector<Word> words_of(std::u32string_view text) { return words_of_folded(folded(text)); }

std::vector<std::string> terms_of_words(const std::vector<Word>& words) {
  std::vector<std::string> out;
  for (const Word& word : words) {
    const auto& letters = word.letters;
    if (letters.empty()) out.push_back(word.text);
    for (size_t i = 0; i < letters.size(); ++i) {
      out.push_back(letters[i] + (i + 1 < letters.size() ? letters[i + 1] : ""));
    }
  }
  return out;
}

// --- other spellings

bool is_small(char32_t code) { return code >= 'a' && code <= 'z'; }
bool is_capital(char32_t code) { return code >= 'A' && code <= 'Z'; }
bool is_number(char32_t code) { return code >= '0' && code <= '9'; }
// Of scripts with blanks between words, with the marks on them, as far as other spellings are concerned.
bool is_letter(char32_t code) { return is_small(code) || is_capital(code) || (code >= 0xC0 && code < 0x2000); }
bool is_name(char32_t code) { return is_small(code) || is_capital(code) || is_number(code); }
bool is_hyphen(char32_t code) { return code == '-' || code == 0x2010 || code == 0x2011; }
bool is_any(char32_t code, std::u32string_view of) { return of.find(code) != std::u32string_view::npos; }
bool is_joint(char32_t code) {
  return is_hyphen(code) || is_any(code, U"'\u2018\u2019\u02bb\u02bc`\u00b4\u2032\uff07");
}

char32_t at_or_zero(std::u32string_view text, size_t at) { return at < text.size() ? text[at] : 0; }

// A sign between two letters, without which they are one word.
bool joins(std::u32string_view text, size_t at) {
  return at > 0 && is_joint(text[at]) && is_letter(text[at - 1]) && is_letter(at_or_zero(text, at + 1));
}

// What PDFium writes for a hyphen and the end of the line.
bool is_line_mark(char32_t code) { return code == 0x02 || code == 0xFFFE; }
bool is_line_end(char32_t code) {
  return (code >= 0x0A && code <= 0x0D) || code == 0x85 || code == 0x2028 || code == 0x2029;
}

// One past the hyphen at `at` and the line end behind it, with blanks; 0 where they divide no word.
size_t end_of_division(std::u32string_view text, size_t at) {
  const bool mark = is_line_mark(text[at]);
  if (at == 0 || !(mark || is_hyphen(text[at]) || text[at] == 0xAD) || !is_letter(text[at - 1])) return 0;
  bool divides = mark;
  for (++at; at < text.size() && is_space(text[at]); ++at) divides = divides || is_line_end(text[at]);
  return divides && is_letter(at_or_zero(text, at)) ? at : 0;
}

// Whether a part of a name in camel case starts here: getUser, HTTPServer.
bool is_hump(std::u32string_view text, size_t at) {
  if (at == 0 || !is_capital(text[at])) return false;
  const char32_t before = text[at - 1];
  return is_small(before) || is_number(before) ||
         (is_capital(before) && is_small(at_or_zero(text, at + 1)) && is_small(at_or_zero(text, at + 2)));
}

// What an umlaut is also written as, and its characters, one or a letter with its mark; null where there is none.
std::pair<const char*, size_t> umlaut_at(std::u32string_view text, size_t at) {
  const char32_t next = at_or_zero(text, at + 1);
  switch (text[at]) {
    case 0xC4:
    case 0xE4:
    case 0x1DE:
    case 0x1DF: return {"ae", 1};
    case 0xD6:
    case 0xD8:
    case 0xF6:
    case 0xF8:
    case 0x1FE:
    case 0x1FF:
    case 0x22A:
    case 0x22B: return {"oe", 1};
    case 0xDC:
    case 0xFC:
    case 0x1D5:
    case 0x1D6:
    case 0x1D7:
    case 0x1D8:
    case 0x1D9:
    case 0x1DA:
    case 0x1DB:
    case 0x1DC: return {"ue", 1};
    case 0xC5:
    case 0xE5:
    case 0x1FA:
    case 0x1FB:
    case 0x212B: return {"aa", 1};
    case 'A':
    case 'a': return {next == 0x308 ? "ae" : next == 0x30A ? "aa" : nullptr, 2};
    case 'O':
    case 'o': return {next == 0x308 ? "oe" : nullptr, 2};
    case 'U':
    case 'u': return {next == 0x308 ? "ue" : nullptr, 2};
    default: return {nullptr, 1};
  }
}

// Calls on_chunk(start, end) for each part of a text between blanks.
template <typename OnChunk>
void each_chunk(std::u32string_view text, const OnChunk& on_chunk) {
  for (size_t start = 0, end; start < text.size(); start = end) {
    while (start < text.size() && is_space(text[start])) ++start;
    for (end = start; end < text.size() && !is_space(text[end]);) ++end;
    if (end > start) on_chunk(start, end);
  }
}

// Names in camel case in a chunk: letters and digits of ASCII that no other letter touches.
void add_parts(std::u32string_view chunk, Spellings* out) {
  for (size_t start = 0, end; start < chunk.size(); start = end) {
    for (end = start; end < chunk.size() && is_name(chunk[end]);) ++end;
    if (end == start) {
      ++end;
      continue;
    }
    if ((start > 0 && is_letter(chunk[start - 1])) || is_letter(at_or_zero(chunk, end))) continue;
    std::string whole, parts;
    const std::u32string_view name = chunk.substr(start, end - start);
    for (size_t at = 0; at < name.size(); ++at) {
      if (is_hump(name, at)) parts.push_back(' ');
      const char lower = static_cast<char>(is_capital(name[at]) ? name[at] + ('a' - 'A') : name[at]);
      whole.push_back(lower);
      parts.push_back(lower);
    }
    if (parts.size() == whole.size()) continue;
    const auto [entry, is_new] = out->part_of.emplace(std::move(whole), out->parts.size());
    if (is_new) {
      out->parts.push_back(std::move(parts));
    } else {
      out->parts[entry->second] = std::move(parts);
    }
  }
}

// --- queries

enum class SegmentKind { words, quoted, without };

struct Segment {
  std::u32string_view text;
  SegmentKind kind;
};

// What begins a word that a minus excludes.
bool begins_excluded(char32_t code) {
  return is_small(code) || is_capital(code) || (code >= 0xC0 && code < 0x2000) || (code >= 0x2C00 && code != 0x3000);
}

bool closes_quote(char32_t code) { return is_any(code, U"\u201d\u201c\u00bb"); }
bool opens_quote(char32_t code) { return is_any(code, U"\u201c\u201e\u00ab\u201d\u201f"); }
bool is_straight_quote(char32_t code) { return code == '"'; }
bool is_in_word(char32_t code) { return FoldTable::get().is_in_word(code); }

// Where characters of a kind are in a text, asked for from front to back: each character is looked at once.
class Positions {
 public:
  Positions(std::u32string_view text, bool (*is)(char32_t)) : text_(text), is_(is) {}

  // The first at or after `start`; the text's length where there is none.
  size_t from(size_t start) {
    for (at_ = std::max(at_, start); at_ < text_.size() && !is_(text_[at_]);) ++at_;
    return at_;
  }

 private:
  std::u32string_view text_;
  bool (*is_)(char32_t);
  size_t at_ = 0;
};

// A query taken apart at its operators: quotes, and a minus before a word or a quote.
std::vector<Segment> segments_of(std::u32string_view query) {
  Positions straight(query, is_straight_quote), curly(query, closes_quote), words(query, is_in_word);
  std::vector<Segment> out;
  size_t start = 0;
  for (size_t at = 0; at < query.size();) {
    const bool minus = query[at] == '-';
    const size_t first = at + (minus ? 1 : 0);
    size_t content = first, content_end = first, end = 0;
    if ((at == 0 || is_space(query[at - 1])) && first < query.size()) {
      if (is_straight_quote(query[first]) || opens_quote(query[first])) {
        content = first + 1;
        content_end = (is_straight_quote(query[first]) ? straight : curly).from(content);
        end = content_end < query.size() ? content_end + 1 : 0;
        // 27" or 32"
        if (end < query.size() && (begins_excluded(query[end]) || FoldTable::get().is_decimal(query[end]))) end = 0;
      } else if (minus && begins_excluded(query[first])) {
        while (content_end < query.size() && !is_space(query[content_end])) ++content_end;
        // An option: -v
        if (query[first] >= 0x80 || content_end - first > 1) end = content_end;
      }
    }
    if (end != 0 && words.from(content) < content_end) {
      out.push_back({query.substr(start, at - start), SegmentKind::words});
      out.push_back({query.substr(content, content_end - content), minus ? SegmentKind::without : SegmentKind::quoted});
      start = at = end;
    } else {
      ++at;
    }
  }
  out.push_back({query.substr(start), SegmentKind::words});
  return out;
}

bool has_words(std::u32string_view text) { return std::any_of(text.begin(), text.end(), is_in_word); }

std::string quoted(const std::string& words) { return "\"" + words + "\""; }

std::string joined_with(const char* between, const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& part : parts) out.append(&part == &parts.front() ? "" : between).append(part);
  return out;
}

// FTS5's expression for any of these, each once, with `suffix` behind it.
std::string either(const std::vector<std::string>& expressions, const char* suffix = "") {
  std::string out;
  std::unordered_set<std::string_view> seen;
  for (const std::string& expression : expressions) {
    if (seen.insert(expression).second) out.append(out.empty() ? "" : " OR ").append(expression).append(suffix);
  }
  return out;
}

// Expressions of the written numbers of which a word is a group, and of those that are still being typed.
struct NumberForms {
  std::vector<std::string> complete, typed;

  // Any of the forms of a word, or its numbers.
  std::string expression(std::vector<std::string> forms) const {
    forms.insert(forms.end(), complete.begin(), complete.end());
    return either(forms);
  }

  // The same where the last letters of the word, or of its number, may be missing; empty where they are not.
  std::string prefix(std::vector<std::string> forms, bool goes_on) const {
    if (!goes_on && typed.empty()) return "";
    forms.insert(forms.end(), complete.begin(), complete.end());
    if (goes_on) return either(forms, "*");
    forms.insert(forms.end(), typed.begin(), typed.end());
    return either(forms);
  }
};

// FTS5's expression for words that follow each other; the last letter of a run may go on.
std::string phrase(const std::vector<Word>& words) {
  return quoted(joined_with(" ", terms_of_words(words))) + (words.back().letters.empty() ? "" : "*");
}

// Words and phrases of a query with their forms, in order.
class Forms {
 public:
  bool empty() const { return rows_.empty(); }

  // `prefix` is empty where the word does not go on.
  void add(const std::string& expression, const std::string& prefix = "") {
    const auto entry = numbers_.find(expression);
    if (entry != numbers_.end()) {
      if (!prefix.empty()) rows_[entry->second].prefix = prefix;
    } else {
      numbers_.emplace(expression, rows_.size());
      rows_.push_back({expression, prefix});
    }
  }

  // As JSON: [[number, expression, share], ...].
  void append_json(std::string* out) const {
    size_t size = 0;
    for (const Row& row : rows_) size += row.expression.size() + row.prefix.size();
    out->reserve(out->size() + size + size / 2);  // quotes and what is between take about as much more
    const auto form = [&](size_t number, const std::string& expression, const char* share) {
      out->append(out->back() == '[' ? "[" : ", [").append(std::to_string(number)).append(", ");
      out->append(json_quote(expression)).append(", ").append(share).append("]");
    };
    out->push_back('[');
    for (size_t number = 0; number < rows_.size(); ++number) {
      const bool goes_on = !rows_[number].prefix.empty();
      form(number, rows_[number].expression, goes_on ? kHalf : kWhole);
      if (goes_on) form(number, rows_[number].prefix, kHalf);
    }
    out->push_back(']');
  }

 private:
  struct Row {
    std::string expression, prefix;
  };
  std::vector<Row> rows_;
  std::unordered_map<std::string, size_t> numbers_;
};

// A digit, or a sign between letters.
bool is_code(std::u32string_view chunk) {
  for (size_t at = 0; at < chunk.size(); ++at) {
    const bool sign = is_hyphen(chunk[at]) || is_any(chunk[at], U"._/:@+#&");
    if (is_number(chunk[at])) return true;
    if (sign && at > 0 && is_letter(chunk[at - 1]) && is_letter(at_or_zero(chunk, at + 1))) return true;
  }
  return false;
}

// Whether the last word of a chunk is still being typed.
bool may_go_on(std::u32string_view chunk) {
  const Word last = words_of(chunk).back();
  return last.letters.empty() && words_of(std::u32string(chunk) + U"a").back().text == last.text + "a";
}

// The written numbers of each word of a text.
std::vector<NumberForms> numbers_of(std::u32string_view text, size_t word_count, bool typing) {
  std::vector<NumberForms> out(word_count);
  for (const WrittenNumber& number : written_numbers(folded(text))) {
    const bool goes_on = typing && number.last + 1 == word_count;
    for (size_t word = number.first; word <= number.last; ++word) {
      out[word].complete.push_back(quoted(number.joined));
      if (goes_on) out[word].typed.push_back(quoted(number.joined) + "*");
    }
  }
  return out;
}

// The words of a chunk, and if it is a code the phrase of them. `typing`: its last word may go on; `shortest`: letters
// of a word that may be a common one; `numbers`: of all words of the query, of which this chunk's begin at `*position`.
void add_chunk(std::u32string_view chunk, bool typing, size_t shortest, const std::vector<NumberForms>& numbers,
               size_t* position, Forms* forms, Forms* common) {
  const FoldTable& table = FoldTable::get();
  const std::vector<Word> words = words_of(chunk);
  const size_t first = *position;
  *position += words.size();
  const std::vector<std::string> terms = terms_of_words(words);
  const Spellings others = spellings(chunk, terms);
  const bool same_count = others.umlauts.size() == words.size() && words.size() == terms.size();
  std::vector<std::string> joints;
  for (const std::string& word : others.joined) joints.push_back(quoted(word));
  const bool code = terms.size() > 1 && is_code(chunk) &&
                    std::all_of(words.begin(), words.end(), [](const Word& word) { return word.letters.size() < 2; });
  for (size_t number = 0; number < words.size(); ++number) {
    const Word& word = words[number];
    const bool is_last = number + 1 == words.size();
    const size_t size = code_points(word.text).size();
    const bool goes_on = typing && is_last && size > 1;
    const NumberForms& written = numbers[first + number];
    const std::string* parts = others.parts_of(word.text);
    std::unordered_set<std::string> seen;
    for (size_t i = 0; i < std::max<size_t>(word.letters.size(), 2) - 1; ++i) {
      const std::string pair = word.letters.size() > 1 ? word.letters[i] + word.letters[i + 1] : word.text;
      Forms* into = size >= shortest && table.is_common(pair) ? common : forms;
      if (!seen.insert(pair).second) continue;
      if (word.letters.size() == 1) {
        into->add(quoted(pair) + "*");
        continue;
      }
      std::vector<std::string> expressions = {quoted(pair)};
      if (same_count) expressions.push_back(quoted(others.umlauts[number]));
      if (parts != nullptr) expressions.push_back(quoted(*parts));
      if (is_last && i == 0 && !code) expressions.insert(expressions.end(), joints.begin(), joints.end());
      into->add(written.expression(expressions), written.prefix(expressions, goes_on));
    }
  }
  if (!code) return;
  joints.insert(joints.begin(), phrase(words));
  NumberForms written;
  for (size_t i = first; i < *position; ++i) {
    written.complete.insert(written.complete.end(), numbers[i].complete.begin(), numbers[i].complete.end());
    written.typed.insert(written.typed.end(), numbers[i].typed.begin(), numbers[i].typed.end());
  }
  forms->add(written.expression(joints), written.prefix(joints, typing));
}

// The words of texts with one blank between.
std::u32string joined_words(const std::vector<Segment>& segments) {
  std::u32string out;
  for (const Segment& segment : segments) {
    if (segment.kind == SegmentKind::without) continue;
    each_chunk(segment.text, [&](size_t start, size_t end) {
      out.append(out.empty() ? U"" : U" ").append(segment.text.substr(start, end - start));
    });
  }
  return out;
}

std::string index_words_of(std::u32string_view text) {
  const std::u32string codes = folded(text);
  std::string out = joined_with(" ", terms_of_words(words_of_folded(codes)));
  std::unordered_set<std::string_view> stored;  // filled where a chunk needs it
  size_t read = 0;
  std::vector<std::string> others;
  std::unordered_set<std::string> seen;
  const auto add = [&](std::vector<std::string>* words, bool always) {
    for (std::string& word : *words) {
      if ((always || stored.count(word) == 0) && seen.insert(word).second) others.push_back(std::move(word));
    }
  };
  const auto read_stored = [&] {
    for (; read < out.size(); ++read) {
      const size_t end_of_word = std::min(out.find(' ', read), out.size());
      stored.insert(std::string_view(out).substr(read, end_of_word - read));
      read = end_of_word;
    }
  };
  each_chunk(text, [&](size_t start, size_t end) {
    const std::u32string_view chunk = text.substr(start, end - start);
    if (!has_spellings(chunk)) return;
    read_stored();
    Spellings spelled = spellings(chunk, terms_of(chunk));
    add(&spelled.umlauts, false);
    add(&spelled.joined, false);
    add(&spelled.parts, true);
  });
  for (const Undivided& chunk : undivided(text)) {
    read_stored();
    std::vector<std::string> terms = terms_of(chunk.text);
    Spellings spelled = spellings(chunk.text, terms);
    add(&terms, false);
    add(&spelled.umlauts, false);
    add(&spelled.joined, false);
  }
  std::vector<std::string> numbers;
  for (WrittenNumber& number : written_numbers(codes)) numbers.push_back(std::move(number.joined));
  if (!numbers.empty()) read_stored();
  add(&numbers, false);
  stored.clear();  // it points into `out`
  for (const std::string& word : others) out.append(out.empty() ? "" : " ").append(word);
  return out;
}

}  // namespace

std::vector<std::string> terms_of(std::u32string_view text) { return terms_of_words(words_of(text)); }

bool has_spellings(std::u32string_view chunk) {
  for (size_t at = 0; at < chunk.size(); ++at) {
    if (umlaut_at(chunk, at).first != nullptr || joins(chunk, at) || is_hump(chunk, at)) return true;
  }
  return false;
}

Spellings spellings(std::u32string_view chunk, const std::vector<std::string>& terms) {
  Spellings out;
  std::u32string umlauts, joined;
  for (size_t at = 0; at < chunk.size(); ++at) {
    if (!joins(chunk, at)) joined.push_back(chunk[at]);
  }
  for (size_t at = 0; at < chunk.size();) {
    const auto [letters, size] = umlaut_at(chunk, at);
    if (letters == nullptr) {
      umlauts.push_back(chunk[at++]);
    } else {
      umlauts.append(letters, letters + 2);
      at += size;
    }
  }
  if (umlauts != chunk) out.umlauts = terms_of(umlauts);
  if (joined.size() < chunk.size()) {
    const std::unordered_set<std::string_view> stored(terms.begin(), terms.end());
    for (std::string& term : terms_of(joined)) {
      if (stored.count(term) == 0) out.joined.push_back(std::move(term));
    }
  }
  add_parts(chunk, &out);
  return out;
}

std::vector<Undivided> undivided(std::u32string_view text) {
  Undivided joined;
  std::vector<size_t> seams;
  for (size_t at = 0, copied = 0; at < text.size();) {
    const size_t end = end_of_division(text, at);
    if (end == 0 && ++at < text.size()) continue;
    if (end == 0 && seams.empty()) return {};
    joined.text.append(text.substr(copied, at - copied));
    for (; copied < at; ++copied) joined.origins.push_back(static_cast<uint32_t>(copied));
    if (end != 0) {
      seams.push_back(joined.text.size());
      at = copied = end;
    }
  }
  std::vector<Undivided> out;
  size_t seam = 0;
  each_chunk(joined.text, [&](size_t start, size_t end) {
    if (seam == seams.size() || seams[seam] >= end) return;
    while (seam < seams.size() && seams[seam] < end) ++seam;
    out.push_back({joined.text.substr(start, end - start), {joined.origins.begin() + static_cast<ptrdiff_t>(start),
                                                            joined.origins.begin() + static_cast<ptrdiff_t>(end)}});
  });
  return out;
}

std::string index_words(std::string_view text) { return index_words_of(code_points(text)); }

std::string parse_query(std::string_view query, bool operators) {
  const std::u32string codes = code_points(query);
  std::vector<Segment> segments;
  if (operators) segments = segments_of(codes);
  const bool any = std::any_of(segments.begin(), segments.end(), [](const Segment& segment) {
    return segment.kind != SegmentKind::without && has_words(segment.text);
  });
  if (!any) segments = {{codes, SegmentKind::words}};
  size_t chunk_count = 0;
  for (const Segment& segment : segments) {
    if (segment.kind != SegmentKind::without) each_chunk(segment.text, [&](size_t, size_t) { ++chunk_count; });
  }
  const size_t shortest = chunk_count >= kSentenceWords ? 1 : 2;
  Forms forms, common;
  std::vector<std::string> phrases, without;
  for (const Segment& segment : segments) {
    if (segment.kind == SegmentKind::without) {
      without.push_back(phrase(words_of(segment.text)));
      continue;
    }
    std::vector<std::u32string_view> chunks;
    each_chunk(segment.text, [&](size_t start, size_t end) {
      const std::u32string_view chunk = segment.text.substr(start, end - start);
      if (has_words(chunk)) chunks.push_back(chunk);
    });
    const bool is_end = segment.kind == SegmentKind::words && &segment == &segments.back();
    const bool typing = is_end && !chunks.empty() && chunks.back().end() == segment.text.end() && may_go_on(chunks.back());
    const std::vector<NumberForms> numbers = numbers_of(segment.text, words_of(segment.text).size(), typing);
    size_t position = 0;  // of a chunk's first word
    for (const std::u32string_view& chunk : chunks) {
      add_chunk(chunk, typing && &chunk == &chunks.back(), shortest, numbers, &position, &forms, &common);
    }
    if (segment.kind == SegmentKind::quoted) {
      phrases.push_back(phrase(words_of(segment.text)));
      forms.add(phrases.back());
    }
  }
  std::u32string text = segments.size() == 1 ? codes : joined_words(segments);
  std::string same = index_words_of(text);
  const auto blanks = static_cast<size_t>(std::count(same.begin(), same.end(), ' '));
  if (blanks >= kTitleWords) same.clear();  // too long for a title
  std::replace(text.begin(), text.end(), U'\0', U' ');  // SQLite reads a text up to a NUL character
  std::string out = "{\"text\": " + json_quote(utf8_of(text)) + ", \"same\": " + json_quote(same);
  out += ", \"words\": ";
  (forms.empty() ? common : forms).append_json(&out);
  out += ", \"quoted\": [";
  for (const std::string& quote : phrases) out.append(&quote == &phrases.front() ? "" : ", ").append(json_quote(quote));
  out.append("], \"without\": ").append(without.empty() ? "null" : json_quote(either(without))).append("}");
  return out;
}

}  // namespace msdc
