#include "similarity.h"

#include <algorithm>
#include <cmath>

namespace msdc {

namespace {

// Independent partial sums: without them the order of additions keeps a compiler from using SIMD.
constexpr size_t kLanes = 8;

struct Sums {
  float dot = 0, aa = 0, bb = 0;
};

Sums sums(const float* a, const float* b, size_t width) {
  float dot[kLanes] = {}, aa[kLanes] = {}, bb[kLanes] = {};
  const size_t whole = width - width % kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      dot[lane] += a[i + lane] * b[i + lane];
      aa[lane] += a[i + lane] * a[i + lane];
      bb[lane] += b[i + lane] * b[i + lane];
    }
  }
  for (size_t i = whole; i < width; ++i) {
    dot[0] += a[i] * b[i];
    aa[0] += a[i] * a[i];
    bb[0] += b[i] * b[i];
  }
  Sums out;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    out.dot += dot[lane];
    out.aa += aa[lane];
    out.bb += bb[lane];
  }
  return out;
}

bool better(const Hit& a, const Hit& b) {
  const bool a_is_nan = std::isnan(a.cosine), b_is_nan = std::isnan(b.cosine);
  if (a_is_nan != b_is_nan) return b_is_nan;
  if (!a_is_nan && a.cosine != b.cosine) return a.cosine > b.cosine;
  return a.row < b.row;
}

}  // namespace

float fast_cosine(const float* a, const float* b, size_t width) {
  const Sums found = sums(a, b, width);
  if (found.aa == 0 || found.bb == 0) return 0;
  return found.dot / (std::sqrt(found.aa) * std::sqrt(found.bb));
}

std::vector<Hit> top_k(const float* query, const float* vectors, size_t count, size_t width, size_t k) {
  std::vector<Hit> hits;
  hits.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    hits.push_back({static_cast<int32_t>(i), fast_cosine(query, vectors + i * width, width)});
  }
  const size_t kept = std::min(k, count);
  std::partial_sort(hits.begin(), hits.begin() + static_cast<std::ptrdiff_t>(kept), hits.end(), better);
  hits.resize(kept);
  return hits;
}

}  // namespace msdc
