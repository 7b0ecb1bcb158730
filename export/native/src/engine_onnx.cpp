// Programs run by ONNX Runtime, through its C interface: the one that stays compatible across releases.
#include "engine.h"

#include <cstdlib>
#include <cstring>
#include <memory>

#if defined(MSDC_ONNXRUNTIME_DLOPEN)
#include <dlfcn.h>
#endif
#include <onnxruntime_c_api.h>

#include "failure.h"

namespace msdc {

namespace {

// From 1.29 on ONNX Runtime stores a device identifier and events in the user's folder and sends them, unless this
// variable is set before it starts; DisableTelemetryEvents comes too late for both. It is set when this code is loaded:
// no other thread reads the environment before main(), and few do when an app loads its libraries. A value that
// somebody chose stays; an empty one does not switch anything off.
bool set_no_telemetry() {
  constexpr const char* kVariable = "ORT_DISABLE_TELEMETRY";
  const char* value = std::getenv(kVariable);
  if (value != nullptr && *value != '\0') return false;
#if defined(_WIN32)
  return ::_putenv_s(kVariable, "1") == 0;
#else
  return ::setenv(kVariable, "1", 1) == 0;
#endif
}

[[maybe_unused]] const bool no_telemetry = set_no_telemetry();

#if defined(MSDC_ONNXRUNTIME_DLOPEN)
// An app takes libonnxruntime.so from its vendor's package. Found by name when it is needed, it is packaged once: a
// library that is linked would be packaged a second time, with this one.
const OrtApiBase& base() {
  static const OrtApiBase* const found = []() -> const OrtApiBase* {
    void* library = ::dlopen("libonnxruntime.so", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return nullptr;
    const auto get = reinterpret_cast<const OrtApiBase*(ORT_API_CALL*)()>(::dlsym(library, "OrtGetApiBase"));
    return get == nullptr ? nullptr : get();
  }();
  if (found == nullptr) {
    throw Failure(MSDC_UNSUPPORTED, "libonnxruntime.so is not in the app: add com.microsoft.onnxruntime:onnxruntime-android");
  }
  return *found;
}
#else
const OrtApiBase& base() { return *OrtGetApiBase(); }
#endif

const OrtApi& api() {
  // NULL where the library is older than the header this was compiled with.
  const OrtApi* found = base().GetApi(ORT_API_VERSION);
  if (found == nullptr) {
    throw Failure(MSDC_UNSUPPORTED, std::string("ONNX Runtime ") + base().GetVersionString() +
                                        " is older than the one this core was compiled for");
  }
  return *found;
}

void check(const OrtApi& ort, OrtStatus* status, const std::string& what, msdc_status kind = MSDC_RUNTIME) {
  if (status == nullptr) return;
  const std::string line = "ONNX Runtime: " + what + ": " + ort.GetErrorMessage(status);
  ort.ReleaseStatus(status);
  throw Failure(kind, line);
}

template <typename T>
class Held {
 public:
  Held(T* value, void(ORT_API_CALL* release)(T*)) : value_(value, release) {}
  T* get() const { return value_.get(); }

 private:
  std::unique_ptr<T, void(ORT_API_CALL*)(T*)> value_;
};

class OnnxEngine : public Engine {
 public:
  OnnxEngine(const Manifest& manifest, int32_t threads)
      : ort_(api()),
        path_(manifest.path(manifest.onnx->file)),
        takes_prompt_(!manifest.include_prompt),
        environment_(make_environment(ort_), ort_.ReleaseEnv),
        session_(make_session(ort_, environment_.get(), path_, threads), ort_.ReleaseSession),
        memory_(make_memory(ort_), ort_.ReleaseMemoryInfo) {}

  void run(const std::vector<int32_t>& ids, size_t prompt_tokens, float* vector, size_t width) override {
    ids_.assign(ids.begin(), ids.end());
    mask_.assign(ids.size(), 1);
    prompt_.assign(1, static_cast<int64_t>(prompt_tokens));
    const int64_t tokens = static_cast<int64_t>(ids_.size());
    const Held<OrtValue> id_value = tensor(ids_, {1, tokens}), mask_value = tensor(mask_, {1, tokens}),
                         prompt_value = tensor(prompt_, {1});
    const char* names[] = {"input_ids", "attention_mask", "prompt_tokens"};
    const OrtValue* inputs[] = {id_value.get(), mask_value.get(), prompt_value.get()};
    const char* outputs[] = {"sentence_embedding"};
    OrtValue* raw = nullptr;
    check(ort_, ort_.Run(session_.get(), nullptr, names, inputs, takes_prompt_ ? 3 : 2, outputs, 1, &raw), "run");
    const Held<OrtValue> out(raw, ort_.ReleaseValue);
    OrtTensorTypeAndShapeInfo* raw_info = nullptr;
    check(ort_, ort_.GetTensorTypeAndShape(out.get(), &raw_info), "output");
    const Held<OrtTensorTypeAndShapeInfo> info(raw_info, ort_.ReleaseTensorTypeAndShapeInfo);
    size_t numbers = 0;
    ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    check(ort_, ort_.GetTensorShapeElementCount(info.get(), &numbers), "output");
    check(ort_, ort_.GetTensorElementType(info.get(), &type), "output");
    if (numbers != width || type != ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT) {
      damaged(path_ + ": the model's output is not a float vector of the manifest's width");
    }
    void* data = nullptr;
    check(ort_, ort_.GetTensorMutableData(out.get(), &data), "output");
    std::memcpy(vector, data, width * sizeof(float));
  }

 private:
  static OrtEnv* make_environment(const OrtApi& ort) {
    OrtEnv* out = nullptr;
    check(ort, ort.CreateEnv(ORT_LOGGING_LEVEL_ERROR, "msdc", &out), "start");
    // For an ONNX Runtime that the app started before this library was loaded, and for Windows' own events.
    check(ort, ort.DisableTelemetryEvents(out), "start");
    return out;
  }

  static OrtMemoryInfo* make_memory(const OrtApi& ort) {
    OrtMemoryInfo* out = nullptr;
    check(ort, ort.CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &out), "start");
    return out;
  }

  static OrtSession* make_session(const OrtApi& ort, OrtEnv* environment, const std::string& path, int32_t threads) {
    OrtSessionOptions* raw = nullptr;
    check(ort, ort.CreateSessionOptions(&raw), "options");
    const Held<OrtSessionOptions> options(raw, ort.ReleaseSessionOptions);
    check(ort, ort.SetIntraOpNumThreads(options.get(), threads), "options");
    check(ort, ort.SetInterOpNumThreads(options.get(), 1), "options");
    // Spinning threads waste battery on a phone and time on a busy machine.
    check(ort, ort.AddSessionConfigEntry(options.get(), "session.intra_op.allow_spinning", "0"), "options");
    OrtSession* out = nullptr;
    check(ort, ort.CreateSession(environment, path.c_str(), options.get(), &out), path, MSDC_DAMAGED);
    return out;
  }

  Held<OrtValue> tensor(std::vector<int64_t>& values, const std::vector<int64_t>& shape) const {
    OrtValue* out = nullptr;
    check(ort_,
          ort_.CreateTensorWithDataAsOrtValue(memory_.get(), values.data(), values.size() * sizeof(int64_t),
                                              shape.data(), shape.size(), ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64, &out),
          "input");
    return {out, ort_.ReleaseValue};
  }

  const OrtApi& ort_;
  const std::string path_;
  const bool takes_prompt_;
  Held<OrtEnv> environment_;
  Held<OrtSession> session_;
  Held<OrtMemoryInfo> memory_;
  std::vector<int64_t> ids_;
  std::vector<int64_t> mask_;
  std::vector<int64_t> prompt_;
};

}  // namespace

std::unique_ptr<Engine> open_engine(const Manifest& manifest, int32_t threads) {
  manifest.program_files(engine_name());
  return std::make_unique<OnnxEngine>(manifest, threads);
}

const char* engine_name() { return "onnx"; }

void quiet_engine() {}

std::string engine_version() { return base().GetVersionString(); }

}  // namespace msdc
