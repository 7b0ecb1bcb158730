// The targets under libFuzzer; MSDC_FUZZ_TARGET names the one to run.
#include <cstdio>
#include <cstdlib>

#include "targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fuzz::Target* const target = [] {
    const char* name = std::getenv("MSDC_FUZZ_TARGET");
    const fuzz::Target* found = name == nullptr ? nullptr : fuzz::find_target(name);
    if (found == nullptr) {
      std::fprintf(stderr, "MSDC_FUZZ_TARGET names no target\n");
      std::exit(2);
    }
    return found;
  }();
  target->run({reinterpret_cast<const char*>(data), size});
  return 0;
}
