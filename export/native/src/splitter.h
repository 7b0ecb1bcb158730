// The pre-tokenizer of a compiled tokenizer: a normalized text to the pieces that the model segments one by one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compiled_file.h"
#include "pattern.h"
#include "text_rules.h"

namespace msdc {

class Splitter {
 public:
  // Reads the steps from `words`; `tables` must outlive this. Throws Failure(MSDC_DAMAGED).
  Splitter(WordReader* words, const CompiledFile& file, const TextTables& tables);

  // `first`: the text begins where the whole input does.
  std::vector<std::string> split(std::string text, bool first, WorkBudget* budget) const;

 private:
  enum class Op : uint32_t { split = 1, metaspace = 2, prefix_space = 3, byte_letters = 4 };
  enum class Behavior : uint32_t { removed = 0, isolated = 1, with_previous = 2, with_next = 3, contiguous = 4 };
  enum class Prepend : uint32_t { never = 0, always = 1, first = 2 };
  struct Step {
    Op op = Op::split;
    uint32_t pattern = 0;
    Behavior behavior = Behavior::removed;
    bool invert = false;
    Prepend prepend = Prepend::never;
    bool cut = false;
    std::string_view mark;
  };

  void cut(const Step& step, std::string_view text, WorkBudget* budget, std::vector<std::string>* out) const;
  void metaspace(const Step& step, const std::string& text, bool first, WorkBudget* budget,
                 std::vector<std::string>* out) const;

  const TextTables& tables_;
  std::vector<Step> steps_;
};

}  // namespace msdc
