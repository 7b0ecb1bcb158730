// Text to the ids a program takes: pieces between the special ids, cut at the longest input.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "manifest.h"
#include "normalizer.h"
#include "piece_model.h"

namespace msdc {

class Tokenizer {
 public:
  // Throws Failure: MSDC_UNSUPPORTED for a bundle whose tokenizer is a tokenizer.json.
  explicit Tokenizer(const Manifest& manifest);

  // Special ids included, at most max_length. Throws Failure(MSDC_BAD_ARGUMENT) for a text past 64 MiB.
  std::vector<int32_t> encode(std::string_view text) const;

  int32_t max_length() const { return max_length_; }

 private:
  PieceModel model_;
  Normalizer normalizer_;
  int32_t max_length_;
  int32_t bos_id_;
  int32_t eos_id_;
};

}  // namespace msdc
