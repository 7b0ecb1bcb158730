// The one exception of the core; the C interface turns it into a status and a line.
#pragma once

#include <stdexcept>
#include <string>

#include "msdc_encoder.h"

namespace msdc {

struct Failure : std::runtime_error {
  Failure(msdc_status kind, const std::string& line) : std::runtime_error(line), status(kind) {}
  msdc_status status;
};

[[noreturn]] inline void fail(msdc_status status, const std::string& line) { throw Failure(status, line); }

[[noreturn]] inline void damaged(const std::string& line) { fail(MSDC_DAMAGED, line); }

}  // namespace msdc
