// The models of a compiled tokenizer: WordPiece, BPE and unigram, as Hugging Face's `tokenizers` segments.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "compiled_file.h"

namespace msdc {

class TokenModel {
 public:
  virtual ~TokenModel() = default;

  // Append the ids of one piece, valid UTF-8.
  virtual void segment(std::string_view piece, std::vector<int32_t>* ids, WorkBudget* budget) const = 0;

  // Reads the model from `words`; `vocabulary` must outlive it. Throws Failure(MSDC_DAMAGED).
  static std::unique_ptr<TokenModel> read(WordReader* words, const CompiledFile& file, const TextTable& vocabulary);
};

}  // namespace msdc
