// Where the words of a query are in a text, as msdc/search/matches.py has it: for highlighting, and for the passage
// that is shown. Offsets are in characters (code points).
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

namespace msdc {

using Span = std::pair<size_t, size_t>;  // first character, one past the last

struct TermSpans {
  size_t weight;  // the words of the term, times how often it is asked for
  std::vector<Span> spans;
};

// Where each term is: a line of `terms` has a word, or words that follow each other, and a star if the last may go on.
// Equal lines are one term.
std::vector<TermSpans> find_terms(std::string_view text, std::string_view terms);

// All spans in order, those that overlap or touch as one.
std::vector<Span> merged(const std::vector<TermSpans>& terms);

// The passage with the highest cosine + share of the terms inside it, a phrase counted by its words; of equals the
// first.
size_t passage_to_show(const std::vector<Span>& passages, const float* cosines, const std::vector<TermSpans>& terms);

}  // namespace msdc
