// Cosines over many vectors, for search on the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace msdc {

struct Hit {
  int32_t row;
  float cosine;
};

// In single precision, with sums that compilers turn into SIMD code; 0 where a vector is zero.
float fast_cosine(const float* a, const float* b, size_t width);

// The k rows with the largest cosine to `query`, best first, equal ones by row; NaN ranks last.
std::vector<Hit> top_k(const float* query, const float* vectors, size_t count, size_t width, size_t k);

}  // namespace msdc
