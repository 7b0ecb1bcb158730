// Layer norm for ExecuTorch programs, where it is between XNNPACK's delegates. The published library's kernel is built
// for the oldest processor of each kind; this one asks which it has.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstring>

namespace msdc {

struct LayerNorm {
  const float* x;  // rows of `width` numbers
  size_t rows, width;
  const float *weight, *bias;
  float epsilon;
  float *y, *means, *scales;  // per row: its mean, 1 / sqrt(variance + epsilon)
};

// y = (x - mean) / sqrt(variance + epsilon) * weight + bias in each row (Ba et al. 2016). The variance is of the
// differences, as in PyTorch: no cancellation. Four sums side by side, so that an addition does not wait for the last.
template <typename Lanes>
[[gnu::always_inline]] inline void run_layer_norm(const LayerNorm& norm) {
  constexpr size_t kLanes = sizeof(Lanes) / sizeof(float), kStep = 4 * kLanes;
  const size_t width = norm.width, whole = width - width % kStep;
  // By reference: a vector as result has another ABI on every processor.
  const auto load = [](const float* from, Lanes& to) { std::memcpy(&to, from, sizeof to); };
  const auto load_four = [&load](const float* from, Lanes& a, Lanes& b, Lanes& c, Lanes& d) {
    load(from, a), load(from + kLanes, b), load(from + 2 * kLanes, c), load(from + 3 * kLanes, d);
  };
  for (size_t row = 0; row < norm.rows; ++row) {
    const float* x = norm.x + row * width;
    float *y = norm.y + row * width, total = 0, squares = 0;
    Lanes a = {}, b = {}, c = {}, d = {}, e, f, g, h;
    for (size_t i = 0; i < whole; i += kStep) {
      load_four(x + i, e, f, g, h);
      a += e, b += f, c += g, d += h;
    }
    a = (a + b) + (c + d);
    for (size_t i = 0; i < kLanes; ++i) total += a[i];
    for (size_t i = whole; i < width; ++i) total += x[i];
    const float mean = total / static_cast<float>(width);
    a = b = c = d = Lanes{};
    for (size_t i = 0; i < whole; i += kStep) {
      load_four(x + i, e, f, g, h);
      e -= mean, f -= mean, g -= mean, h -= mean;
      a += e * e, b += f * f, c += g * g, d += h * h;
    }
    a = (a + b) + (c + d);
    for (size_t i = 0; i < kLanes; ++i) squares += a[i];
    for (size_t i = whole; i < width; ++i) squares += (x[i] - mean) * (x[i] - mean);
    const float scale = 1.0f / std::sqrt(squares / static_cast<float>(width) + norm.epsilon);
    for (size_t i = 0; i < whole; i += 2 * kLanes) {
      load(x + i, a), load(norm.weight + i, b), load(norm.bias + i, c);
      load(x + i + kLanes, e), load(norm.weight + i + kLanes, f), load(norm.bias + i + kLanes, g);
      a = (a - mean) * scale * b + c, e = (e - mean) * scale * f + g;
      std::memcpy(y + i, &a, sizeof a), std::memcpy(y + i + kLanes, &e, sizeof e);
    }
    for (size_t i = whole; i < width; ++i) y[i] = (x[i] - mean) * scale * norm.weight[i] + norm.bias[i];
    norm.means[row] = mean;
    norm.scales[row] = scale;
  }
}

typedef float Lanes4 __attribute__((vector_size(16)));
#ifdef __x86_64__
typedef float Lanes8 __attribute__((vector_size(32)));
typedef float Lanes16 __attribute__((vector_size(64)));
[[gnu::target("avx2,fma")]] inline void layer_norm_avx2(const LayerNorm& norm) { run_layer_norm<Lanes8>(norm); }
[[gnu::target("avx512f")]] inline void layer_norm_avx512(const LayerNorm& norm) { run_layer_norm<Lanes16>(norm); }
#endif

inline void layer_norm(const LayerNorm& norm) {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx512f")) return layer_norm_avx512(norm);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return layer_norm_avx2(norm);
#endif
  run_layer_norm<Lanes4>(norm);
}

}  // namespace msdc
