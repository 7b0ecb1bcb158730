// The words by which a search index finds text, and the query that finds them, as msdc/search/words.py has them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace msdc {

// What an index stores of a text: its words with blanks between, of scripts without blanks pairs of letters, and other
// spellings at the end.
std::string index_words(std::string_view text);

// What search.sql looks for, as JSON. With `operators` quotes and a minus in the query have a meaning.
std::string parse_query(std::string_view query, bool operators);

// The stored words of a text: of a script without blanks its pairs of letters, and the last letter of a run alone.
std::vector<std::string> terms_of(std::u32string_view text);

// Other spellings of the words of a chunk, a part of a text without blanks.
struct Spellings {
  std::vector<std::string> umlauts;  // all its words with ae, oe, ue for umlauts; empty if it has none
  std::vector<std::string> joined;   // those that end in joined ones: obrien, wifi
  std::vector<std::string> parts;    // of names in camel case: the words of each, in lower case with blanks between
  std::unordered_map<std::string, size_t> part_of;  // the whole of each, in lower case

  // The parts of a word, null where it is no such name.
  const std::string* parts_of(const std::string& word) const {
    const auto entry = part_of.find(word);
    return entry == part_of.end() ? nullptr : &parts[entry->second];
  }
};

// Whether a chunk has other spellings.
bool has_spellings(std::u32string_view chunk);

// Other spellings of a chunk with these terms.
Spellings spellings(std::u32string_view chunk, const std::vector<std::string>& terms);

// A chunk with words that a hyphen divides at the end of a line, as in text from PDF files, without the hyphen and the
// line end.
struct Undivided {
  std::u32string text;
  std::vector<uint32_t> origins;  // of each character its position in the whole text
};
std::vector<Undivided> undivided(std::u32string_view text);

}  // namespace msdc
