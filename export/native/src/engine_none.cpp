// A core without a runtime, for apps that run the program themselves (msdc_open_with).
#include "engine.h"

namespace msdc {

std::unique_ptr<Engine> open_engine(const Manifest& manifest, int32_t) {
  manifest.program_files(engine_name());
  return nullptr;
}

const char* engine_name() { return "none"; }

void quiet_engine() {}

std::string engine_version() { return ""; }

}  // namespace msdc
