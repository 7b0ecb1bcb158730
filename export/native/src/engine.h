// Runs a program: ids in, vector out. One implementation is linked into a build.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "manifest.h"

namespace msdc {

class Engine {
 public:
  virtual ~Engine() = default;

  // `ids` with special ids, 1 to max_length of them, each in the vocabulary; the first `prompt_tokens` are not pooled (0
  // unless the manifest has include_prompt: false); `vector` takes `width` numbers, the manifest's width.
  virtual void run(const std::vector<int32_t>& ids, size_t prompt_tokens, float* vector, size_t width) = 0;
};

// The engine linked into this build. Throws Failure.
std::unique_ptr<Engine> open_engine(const Manifest& manifest, int32_t threads);

const char* engine_name();

// Keep the runtime from logging anything but errors. It changes the process, so only a program that owns its process
// calls it, before anything is opened.
void quiet_engine();

// Version reported by the linked runtime, empty where it reports none.
std::string engine_version();

}  // namespace msdc
