// One function per native parser of the repository: bytes in, whatever they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace fuzz {

struct Target {
  const char* name;
  // 0 where the parser took the input, the core's status where it refused it. Lets nothing but a defect escape.
  int (*run)(std::string_view input);
};

// nullptr for an unknown name.
const Target* find_target(std::string_view name);

}  // namespace fuzz
