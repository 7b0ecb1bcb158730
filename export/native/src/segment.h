// Segmentation of normalized text into piece ids, the same as SentencePiece's. Throws Failure(MSDC_UNSUPPORTED) where it
// costs more than the budget.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "piece_model.h"

namespace msdc {

// Best path of a unigram model (Kudo 2018), in one pass over byte positions.
std::vector<int32_t> segment_unigram(const PieceModel& model, std::string_view text, WorkBudget* budget);

// Byte pair encoding: the highest-scored neighbours merge first, the left ones at a tie.
std::vector<int32_t> segment_bpe(const PieceModel& model, std::string_view text, WorkBudget* budget);

}  // namespace msdc
