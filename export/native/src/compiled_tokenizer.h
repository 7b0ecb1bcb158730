// A compiled tokenizer.json: added tokens, normalizer, pre-tokenizer, model and special ids.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "compiled_file.h"
#include "splitter.h"
#include "text_rules.h"
#include "token_models.h"

namespace msdc {

class CompiledTokenizer {
 public:
  // Throws Failure.
  explicit CompiledTokenizer(const std::string& path);
  CompiledTokenizer(const CompiledTokenizer&) = delete;
  CompiledTokenizer& operator=(const CompiledTokenizer&) = delete;

  // Ids of the text without the special ids that `encode` adds around it.
  // Throws Failure(MSDC_UNSUPPORTED) where they cost more than `budget`.
  std::vector<int32_t> segment(std::string_view text, WorkBudget* budget) const;

  const std::vector<int32_t>& before() const { return before_; }
  const std::vector<int32_t>& after() const { return after_; }
  // One more than the largest id.
  int32_t size() const { return size_; }

 private:
  // Tokens that are found in the text before anything else.
  struct AddedTokens {
    TextTable names;
    Words records;  // id, flags
    CharacterSet starts;
  };
  struct Part {
    size_t from, to;
    int32_t id;  // -1: ordinary text
  };

  AddedTokens read_added(WordReader* words) const;
  std::vector<Part> find_added(const AddedTokens& tokens, std::string_view text, WorkBudget* budget) const;
  size_t longest_match(const AddedTokens& tokens, std::string_view text, size_t at, size_t* index,
                       WorkBudget* budget) const;

  CompiledFile file_;
  TextTables tables_;
  CharacterSet word_;
  CharacterSet space_;
  AddedTokens raw_;
  AddedTokens normalized_;
  std::unique_ptr<TextRules> rules_;
  std::unique_ptr<Splitter> splitter_;
  TextTable vocabulary_;
  std::unique_ptr<TokenModel> model_;
  std::vector<int32_t> before_;
  std::vector<int32_t> after_;
  int32_t size_ = 0;
};

}  // namespace msdc
