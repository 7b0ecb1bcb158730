// A bundle, opened: tokenizer and program behind one lock.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "engine.h"
#include "manifest.h"
#include "tokenizer.h"

namespace msdc {

struct Golden {
  std::vector<std::string> texts;
  std::vector<std::vector<int32_t>> ids;
  std::vector<float> vectors;  // texts x width, the artifact's own
};

// golden.json of a bundle, with the vectors of this build's runtime. Throws Failure.
Golden read_golden(const Manifest& manifest);

double cosine(const float* a, const float* b, size_t width);

class Encoder {
 public:
  Encoder(const std::string& folder, int32_t threads, bool check_files);

  const Manifest& manifest() const { return manifest_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }

  // Throws Failure(MSDC_BAD_ARGUMENT) for no ids, too many, or one outside the vocabulary.
  void run(const std::vector<int32_t>& ids, float* vector);

 private:
  Manifest manifest_;
  Tokenizer tokenizer_;
  std::mutex running_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace msdc
