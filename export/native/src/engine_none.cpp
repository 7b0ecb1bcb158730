// A core without a runtime: tokenizing only, for apps that run the program with another binding.
#include "engine.h"

#include "failure.h"

namespace msdc {

std::vector<std::string> engine_files(const Manifest& manifest) {
  throw Failure(MSDC_UNSUPPORTED, manifest.folder + ": this build of the core has no runtime; use msdc_tokenizer_open");
}

std::unique_ptr<Engine> open_engine(const Manifest& manifest, int32_t) {
  engine_files(manifest);
  return nullptr;
}

const char* engine_name() { return "none"; }

void quiet_engine() {}

std::string engine_version() { return ""; }

}  // namespace msdc
