// A bundle, opened: tokenizer and program behind one lock.
#pragma once

#include <condition_variable>
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

// golden.json of a bundle, with the vectors of a runtime. Throws Failure.
Golden read_golden(const Manifest& manifest, const std::string& runtime);

double cosine(const float* a, const float* b, size_t width);

// First come, first served. std::mutex lets the thread that just left come in again, so that a query could wait for all
// texts of another thread's list.
class FairMutex {
 public:
  void lock() {
    std::unique_lock<std::mutex> held(mutex_);
    const uint64_t ticket = last_++;
    turn_.wait(held, [&] { return ticket == now_; });
  }
  void unlock() {
    {
      const std::lock_guard<std::mutex> held(mutex_);
      ++now_;
    }
    turn_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable turn_;
  uint64_t last_ = 0, now_ = 0;
};

class Encoder {
 public:
  // With the engine of this build.
  Encoder(const std::string& folder, int32_t threads, bool check_files);
  // With the caller's, which runs the bundle's program for `runtime`.
  Encoder(const std::string& folder, bool check_files, const std::string& runtime, std::unique_ptr<Engine> engine);

  const std::string& runtime() const { return runtime_; }
  const Manifest& manifest() const { return manifest_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }

  // Throws Failure(MSDC_BAD_ARGUMENT) for no ids, or more than fit.
  void check_count(size_t ids) const;

  // Throws that too, and for an id outside the vocabulary; Failure(MSDC_RUNTIME) for a vector with NaN or infinity.
  void run(const std::vector<int32_t>& ids, size_t prompt_tokens, float* vector);

  // The first `width` numbers of the vector. Throws as above, and for a width that is not 1 to the bundle's own.
  void run(const std::vector<int32_t>& ids, size_t prompt_tokens, float* vector, size_t width);

  // The same of a text's ids. None (a blank text, no special ids) are no error: the vector is zero.
  void encode(const std::vector<int32_t>& ids, size_t prompt_tokens, float* vector, size_t width);

  // `prompt` before `text`, as ids. A prompt that is not given is the bundle's default.
  std::vector<int32_t> tokenize(const char* prompt, std::string_view text) const;

  // Whether `tokenize` cuts prompt and text.
  bool truncates(const char* prompt, std::string_view text) const;

  // Tokens of the prompt that the program does not pool: 0 where it pools them.
  size_t prompt_tokens(const char* prompt) const;

 private:
  // The text with its prompt before it; `both` holds them where there is one.
  std::string_view prompted(const char* prompt, std::string_view text, std::string& both) const;

  std::string runtime_;
  Manifest manifest_;
  Tokenizer tokenizer_;
  FairMutex running_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace msdc
