// Text to the ids a program takes: pieces between the special ids, cut at the longest input.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "compiled_tokenizer.h"
#include "manifest.h"

namespace msdc {

class Tokenizer {
 public:
  // Throws Failure: MSDC_UNSUPPORTED for a bundle whose tokenizer.json was not compiled at export.
  explicit Tokenizer(const Manifest& manifest);
  ~Tokenizer();

  // Special ids included, at most `most` or max_length. Throws Failure(MSDC_BAD_ARGUMENT) for a text past 64 MiB.
  std::vector<int32_t> encode(std::string_view text) const { return encode(text, static_cast<size_t>(max_length_)); }
  std::vector<int32_t> encode(std::string_view text, size_t most) const;

  // Whether `encode` cuts a text.
  bool truncates(std::string_view text) const;

  // Tokens of a text of any length, without special ids.
  size_t count(std::string_view text) const { return segment(text).size(); }

  // Tokens that a prompt takes at the front of a text, counted as sentence-transformers does: the prompt alone with its
  // special ids, but for the last one.
  size_t prompt_tokens(std::string_view prompt) const;

  int32_t max_length() const { return max_length_; }

 private:
  std::vector<int32_t> segment(std::string_view text) const;
  // Ids that may be between the special ids.
  size_t room(size_t most) const { return most - std::min(most, before_.size() + after_.size()); }

  // One of the two is there.
  struct Pieces;
  std::unique_ptr<const Pieces> pieces_;
  std::unique_ptr<const CompiledTokenizer> compiled_;
  int32_t max_length_;
  std::vector<int32_t> before_;
  std::vector<int32_t> after_;
};

}  // namespace msdc
