// SentencePiece's normalizer: longest-match replacement through the precompiled character map (NFKC and the like),
// runs of white space collapsed and escaped as U+2581.
#pragma once

#include <string>
#include <string_view>

#include "piece_model.h"

namespace msdc {

class Normalizer {
 public:
  // `model` must outlive this. Throws Failure(MSDC_DAMAGED) for a broken character map.
  Normalizer(const PieceModel& model, const std::string& where);

  // Throws Failure(MSDC_UNSUPPORTED) where the map costs more than `budget`.
  std::string normalize(std::string_view text, WorkBudget* budget) const;

 private:
  struct Step {
    std::string_view out;
    size_t consumed;
  };
  Step step(std::string_view text, WorkBudget* budget) const;
  uint32_t unit(size_t index) const;

  const PieceModel& model_;
  std::string_view trie_;          // units of four bytes, little-endian, not aligned
  std::string_view replacements_;  // ends with NUL
};

}  // namespace msdc
