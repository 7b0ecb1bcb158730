// Numbers as they are written: 045-1234567, (045) 123 4567 and 0451234567 are one. The same as msdc/search/numbers.py.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace msdc {

// Groups that are one number without what is between them; `first` and `last` count the words of the text.
struct WrittenNumber {
  std::string joined;
  size_t first, last;
};

using WordSpan = std::pair<size_t, size_t>;  // first character, one past the last

// The numbers in several groups in a folded text; `words` may be null: gets the words of the text if it has a digit.
std::vector<WrittenNumber> written_numbers(std::u32string_view folded, std::vector<WordSpan>* words = nullptr);

}  // namespace msdc
