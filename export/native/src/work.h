// Work that one text may cost. Every loop whose length a file decides spends from it, so that a hostile tokenizer costs a
// fixed number of steps per byte of text, and makes it at most a fixed number of times longer.
#pragma once

#include <cstddef>
#include <cstdint>

#include "failure.h"

namespace msdc {

class WorkBudget {
 public:
  // Units of work: a slot of a hash table is one, comparing or copying 16 bytes is one, a step of a pattern is kStep.
  static constexpr uint64_t kUnitsPerByte = 16384;
  static constexpr uint64_t kStep = 8;
  // A text may become this much longer on the way. Unicode's longest compatibility form is 11 times its bytes.
  static constexpr uint64_t kGrowth = 64;
  static constexpr uint64_t kFreeBytes = 64;  // added to the text: short ones may need a little more

  explicit WorkBudget(size_t text_bytes)
      : left_((text_bytes + kFreeBytes) * kUnitsPerByte), most_bytes_((text_bytes + kFreeBytes) * kGrowth) {}

  void spend(uint64_t units) {
    if (units > left_) throw Failure(MSDC_UNSUPPORTED, "the tokenizer takes too many steps on this text");
    left_ -= units;
  }
  void spend_bytes(size_t bytes) { spend(1 + bytes / 16); }

  // A form of the text has now this many bytes.
  void fits(size_t bytes) const {
    if (bytes > most_bytes_) throw Failure(MSDC_UNSUPPORTED, "the tokenizer makes this text too long");
  }

 private:
  uint64_t left_;
  uint64_t most_bytes_;
};

}  // namespace msdc
