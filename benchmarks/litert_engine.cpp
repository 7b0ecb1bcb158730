// LiteRT as the engine of our native runner, for benchmarks alone: compiled in the place of ONNX Runtime's, it runs the
// .tflite of benchmarks/artifact_litert.py, which the bundle names as its "onnx" program. On the CPU, with XNNPACK and
// the threads of the request. Of LiteRT's C interface (litert/c) only what is called here is declared.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "engine.h"
#include "failure.h"

extern "C" {
using Handle = void*;
struct TensorType {  // LiteRtRankedTensorType
  int32_t element;
  uint32_t rank : 7, has_strides : 1;
  int32_t dimensions[8];
  uint32_t strides[8];
};
static_assert(sizeof(TensorType) == 72, "the layout of LiteRT's own");
int LiteRtCreateEnvironment(int options, const void* values, Handle* out);
int LiteRtCreateModelFromFile(Handle environment, const char* path, Handle* out);
int LiteRtCreateOptions(Handle* out);
int LiteRtSetOptionsHardwareAccelerators(Handle options, int accelerators);
int LiteRtCreateOpaqueOptions(const char* name, void* text, void (*release)(void*), Handle* out);
int LiteRtAddOpaqueOptions(Handle options, Handle opaque);
int LiteRtCreateCompiledModel(Handle environment, Handle model, Handle options, Handle* out);
int LiteRtGetNumModelSignatures(Handle model, size_t* out);
int LiteRtGetModelSignature(Handle model, size_t index, Handle* out);
int LiteRtGetSignatureKey(Handle signature, const char** out);
int LiteRtCreateTensorBufferFromHostMemory(const TensorType* type, void* memory, size_t bytes, void (*release)(void*),
                                           Handle* out);
int LiteRtRunCompiledModel(Handle model, size_t signature, size_t inputs, Handle* input, size_t outputs, Handle* output);
}

namespace msdc {

namespace {

constexpr int kCpu = 1, kInt32 = 2, kFloat32 = 1;

void check(int status, const char* what) {
  if (status != 0) throw Failure(MSDC_RUNTIME, std::string("LiteRT: ") + what + ": status " + std::to_string(status));
}

// A tensor of [1, count] over memory of ours, which lives as long as the process.
template <typename T>
T* tensor(int element, size_t count, Handle* out) {
  T* memory = static_cast<T*>(std::aligned_alloc(64, (count * sizeof(T) + 63) / 64 * 64));
  if (memory == nullptr) throw std::bad_alloc();
  const TensorType type = {element, 2, 0, {1, static_cast<int32_t>(count)}, {}};
  check(LiteRtCreateTensorBufferFromHostMemory(&type, memory, count * sizeof(T), nullptr, out), "tensor");
  return memory;
}

// One signature, for rows of exactly `length` ids.
struct Signature {
  size_t index, length;
  int32_t* ids;
  float *mask, *vector;
  Handle inputs[2], output;
};

class LiteRtEngine : public Engine {
 public:
  LiteRtEngine(const Manifest& manifest, int32_t threads) {
    Handle environment, model, options, opaque, handle;
    check(LiteRtCreateEnvironment(0, nullptr, &environment), "environment");
    check(LiteRtCreateModelFromFile(environment, manifest.path(manifest.onnx->file).c_str(), &model), "model");
    check(LiteRtCreateOptions(&options), "options");
    check(LiteRtSetOptionsHardwareAccelerators(options, kCpu), "options");
    const std::string text = "num_threads = " + std::to_string(threads) + "\n";
    check(LiteRtCreateOpaqueOptions("xnnpack", ::strdup(text.c_str()), std::free, &opaque), "threads");
    check(LiteRtAddOpaqueOptions(options, opaque), "threads");
    check(LiteRtCreateCompiledModel(environment, model, options, &model_), "compile");
    size_t count = 0;
    check(LiteRtGetNumModelSignatures(model, &count), "signatures");
    for (size_t i = 0; i < count; ++i) {
      const char* key;
      check(LiteRtGetModelSignature(model, i, &handle), "signature");
      check(LiteRtGetSignatureKey(handle, &key), "signature");
      Signature& one = signatures_.emplace_back();
      one.index = i;
      one.length = std::strtoul(key + 1, nullptr, 10);
      one.ids = tensor<int32_t>(kInt32, one.length, &one.inputs[0]);
      one.mask = tensor<float>(kFloat32, one.length, &one.inputs[1]);
      one.vector = tensor<float>(kFloat32, static_cast<size_t>(manifest.width), &one.output);
    }
    std::sort(signatures_.begin(), signatures_.end(), [](const auto& a, const auto& b) { return a.length < b.length; });
  }

  // The shortest signature that takes the row, padded with masked zeros.
  void run(const std::vector<int32_t>& ids, size_t, float* vector, size_t width) override {
    for (Signature& one : signatures_) {
      if (one.length < ids.size()) continue;
      std::fill(std::copy(ids.begin(), ids.end(), one.ids), one.ids + one.length, 0);
      std::fill(std::fill_n(one.mask, ids.size(), 1.0f), one.mask + one.length, 0.0f);
      check(LiteRtRunCompiledModel(model_, one.index, 2, one.inputs, 1, &one.output), "run");
      std::memcpy(vector, one.vector, width * sizeof(float));
      return;
    }
    throw Failure(MSDC_BAD_ARGUMENT, "LiteRT: no signature for " + std::to_string(ids.size()) + " tokens");
  }

 private:
  Handle model_ = nullptr;
  std::vector<Signature> signatures_;
};

}  // namespace

std::unique_ptr<Engine> open_engine(const Manifest& manifest, int32_t threads) {
  return std::make_unique<LiteRtEngine>(manifest, threads);
}

const char* engine_name() { return "onnx"; }

void quiet_engine() {}

std::string engine_version() { return MSDC_RUNTIME_VERSION; }

}  // namespace msdc
