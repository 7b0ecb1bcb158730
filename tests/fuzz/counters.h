// What one run of a target cost, counted by hooks and the same on every machine: basic blocks that were executed and bytes
// that were held at once.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fuzz {

constexpr size_t kCells = 1u << 16;

struct Cost {
  uint64_t blocks;
  size_t peak_bytes;
};

// Forget what was counted.
void start_counting();
Cost cost();

// Number and list of the cells that were reached since start_counting: a hash of each basic block's address.
size_t reached_cells(const uint32_t** cells);

}  // namespace fuzz
