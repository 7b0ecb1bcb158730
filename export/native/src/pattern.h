// A compiled regular expression over UTF-8: a backtracking matcher whose character classes are tables.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "compiled_file.h"
#include "work.h"

namespace msdc {

class Pattern {
 public:
  // Words: number of instructions, four words each (operation, a, b, c). `sets` are those of the file, by number.
  Pattern(Words program, const std::vector<CharacterSet>* sets);

  // End of the match that begins at `start`, or npos. Alternatives are tried in order, as in Perl.
  size_t match(std::string_view text, size_t start, WorkBudget* budget) const;

  // The first match at or after `from`; false for none. A match is never empty.
  bool search(std::string_view text, size_t from, size_t* start, size_t* end, WorkBudget* budget) const;

 private:
  enum class Op : uint32_t { match = 0, set = 1, character = 2, split = 3, jump = 4, repeat = 5, look = 6, begin = 7, end = 8 };
  struct Instruction {
    Op op;
    uint32_t a, b, c;
  };

  size_t run(size_t instruction, std::string_view text, size_t start, WorkBudget* budget, int depth) const;
  bool in_set(uint32_t set, uint32_t code) const { return (*sets_)[set].has(code); }

  std::vector<Instruction> program_;
  const std::vector<CharacterSet>* sets_;
};

}  // namespace msdc
