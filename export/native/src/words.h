// The words by which a search index finds text, as msdc/search/words.py has them.
#pragma once

#include <string>
#include <string_view>

namespace msdc {

// What an index stores of a text: its words with blanks between, of scripts without blanks pairs of letters.
std::string index_words(std::string_view text);

// FTS5's expression for the words of a query, any of which may match; empty where it has none.
std::string match_expression(std::string_view query);

}  // namespace msdc
