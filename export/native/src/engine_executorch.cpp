// Programs run by ExecuTorch: mapped from disk, verified, activation memory that is touched only as far as the
// longest text so far requires.
#include "engine.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <sys/mman.h>

#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>
#include <executorch/extension/threadpool/threadpool_guard.h>
#include <executorch/runtime/backend/options.h>
#include <executorch/runtime/core/exec_aten/util/tensor_util.h>
#include <executorch/runtime/kernel/kernel_runtime_context.h>
#include <executorch/runtime/kernel/operator_registry.h>
#include <executorch/runtime/platform/platform.h>

#if __has_include(<executorch/extension/threadpool/threadpool.h>)
#include <executorch/extension/threadpool/threadpool.h>
#else
// The wheel's SDK exports the pool from libexecutorch_threadpool.so but leaves out its header.
namespace executorch::extension::threadpool {
class ThreadPool {
 public:
  size_t get_thread_count() const;
  bool _unsafe_reset_threadpool(uint32_t new_thread_count);
};
ThreadPool* get_threadpool();
}  // namespace executorch::extension::threadpool
#endif

#if defined(MSDC_XNNPACK_KERNELS) && defined(__aarch64__) && defined(__linux__)
#include <dlfcn.h>
#include <sys/auxv.h>

// The step of XNNPACK that gives int8 products to KleidiAI's kernels. With dot products alone, without i8mm or SME
// (Cortex-A55, A75 to A78, X1), these execute more instructions than XNNPACK's own, which a graph keeps that has not gone
// through the step (docs/results/target_instructions.md). Where ExecuTorch is a shared library, the dynamic linker finds
// this function before the library's. Weak: an XNNPACK linked as an archive keeps its own.
extern "C" __attribute__((weak, visibility("default"))) int xnn_subgraph_optimize_packed_lhs(void* subgraph,
                                                                                             uint32_t flags) {
  constexpr unsigned long kDot = 1UL << 20, kI8mm = 1UL << 13, kSme = 1UL << 23;
  const bool newer = (::getauxval(AT_HWCAP2) & (kI8mm | kSme)) != 0;
  if ((::getauxval(AT_HWCAP) & kDot) != 0 && !newer) return 0;  // xnn_status_success
  using Own = int (*)(void*, uint32_t);
  static const Own own = reinterpret_cast<Own>(::dlsym(RTLD_NEXT, "xnn_subgraph_optimize_packed_lhs"));
  return own == nullptr ? 0 : own(subgraph, flags);
}
#endif

#include "failure.h"
#include "layer_norm.h"

namespace msdc {

namespace {

using executorch::aten::ScalarType;
using executorch::aten::SizesType;
using executorch::aten::Tensor;
using executorch::extension::Module;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::Kernel;
using executorch::runtime::Span;
namespace threadpool = executorch::extension::threadpool;

[[noreturn]] void failed(const std::string& what, Error error) {
  throw Failure(MSDC_RUNTIME, "ExecuTorch: " + what + " (error " + std::to_string(static_cast<int>(error)) + ")");
}

// Activation memory of all methods: they run one after another and outputs are copied out, so they share it. Fresh
// anonymous pages cost nothing until a text is long enough to touch them.
class Arena {
 public:
  Arena() = default;
  ~Arena() {
    for (const Span<uint8_t>& span : spans_) ::munmap(span.data(), span.size());
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  void reserve(const std::vector<size_t>& sizes) {
    for (const size_t size : sizes) {
      const size_t bytes = std::max<size_t>(size, 1);
      void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (data == MAP_FAILED) throw Failure(MSDC_MEMORY, "no memory for activations");
      spans_.emplace_back(static_cast<uint8_t*>(data), bytes);
    }
    allocator_ =
        std::make_unique<executorch::runtime::HierarchicalAllocator>(Span<Span<uint8_t>>(spans_.data(), spans_.size()));
  }

  executorch::runtime::HierarchicalAllocator* allocator() { return allocator_.get(); }

 private:
  std::vector<Span<uint8_t>> spans_;
  std::unique_ptr<executorch::runtime::HierarchicalAllocator> allocator_;
};

// ExecuTorch has one thread pool for the whole process, and a loaded program keeps a pointer into it. The size is
// therefore set before a program is loaded, and a program that holds the pool forbids another size.
std::atomic<int> pool_holders{0};

class PoolHold {
 public:
  explicit PoolHold(int32_t threads) : holds_(threads > 1) {
    if (!holds_) return;
    threadpool::ThreadPool* pool = threadpool::get_threadpool();
    if (pool == nullptr) failed("no thread pool", Error::NotSupported);
    if (pool->get_thread_count() != static_cast<size_t>(threads)) {
      if (pool_holders.load() != 0) {
        throw Failure(MSDC_BAD_ARGUMENT, "another encoder of this process runs on " +
                                             std::to_string(pool->get_thread_count()) +
                                             " threads; ExecuTorch has one pool for all: ask for as many, or for 1");
      }
      if (!pool->_unsafe_reset_threadpool(static_cast<uint32_t>(threads))) failed("thread pool", Error::Internal);
    }
    ++pool_holders;
  }
  ~PoolHold() {
    if (holds_) --pool_holders;
  }
  PoolHold(const PoolHold&) = delete;
  PoolHold& operator=(const PoolHold&) = delete;

  // One thread means the calling one, and no pool is ever made. XNNPACK looks when it loads and when it runs.
  std::unique_ptr<threadpool::NoThreadPoolGuard> alone() const {
    return holds_ ? nullptr : std::make_unique<threadpool::NoThreadPoolGuard>();
  }

 private:
  const bool holds_;
};

#ifndef MSDC_LIBRARY_LAYER_NORM
// ExecuTorch looks for a kernel made for the exact types and layouts of a call before it takes the general one, so these
// are registered next to the library's: float, two or three axes, normalised over the last, with weight and bias.
void add_layer_norm_kernels() {
  const auto run = [](executorch::runtime::KernelRuntimeContext& context, Span<EValue*> stack) {
    if (stack.size() < 8) return context.fail(Error::InvalidProgram);
    const Tensor &x = stack[0]->toTensor(), &weight = stack[2]->toTensor(), &bias = stack[3]->toTensor();
    Tensor &y = stack[5]->toTensor(), &means = stack[6]->toTensor(), &scales = stack[7]->toTensor();
    const auto axes = stack[1]->toIntList();
    const auto sizes = x.sizes();
    const SizesType width = sizes[sizes.size() - 1];
    const SizesType moments[] = {sizes[0], sizes.size() == 3 ? sizes[1] : 1, 1};
    if (axes.size() != 1 || axes[0] != width || width == 0 || weight.numel() != width || bias.numel() != width ||
        executorch::runtime::resize_tensor(y, sizes) != Error::Ok ||
        executorch::runtime::resize_tensor(means, {moments, sizes.size()}) != Error::Ok ||
        executorch::runtime::resize_tensor(scales, {moments, sizes.size()}) != Error::Ok) {
      return context.fail(Error::InvalidArgument);
    }
    layer_norm({x.const_data_ptr<float>(), static_cast<size_t>(x.numel() / width), static_cast<size_t>(width),
                weight.const_data_ptr<float>(), bias.const_data_ptr<float>(), static_cast<float>(stack[4]->toDouble()),
                y.mutable_data_ptr<float>(), means.mutable_data_ptr<float>(), scales.mutable_data_ptr<float>()});
  };
  constexpr const char* kName = "aten::native_layer_norm.out";
  for (const char* types : {"v1/6;0,1|6;0|6;0|6;0,1|6;0,1|6;0,1", "v1/6;0,1,2|6;0|6;0|6;0,1,2|6;0,1,2|6;0,1,2"}) {
    bool there = false;  // a process may hold this core twice; a second registration would end it
    for (const Kernel& kernel : executorch::runtime::get_registered_kernels()) {
      there |= std::strcmp(kernel.name_, kName) == 0 && kernel.kernel_key_ == executorch::runtime::KernelKey(types);
    }
    if (!there) static_cast<void>(executorch::runtime::register_kernel(Kernel(kName, types, run)));
  }
}
#endif

class ExecutorchEngine : public Engine {
 public:
  ExecutorchEngine(const Manifest& manifest, int32_t threads)
      : path_(manifest.path(manifest.executorch->file)),
        program_(*manifest.executorch),
        takes_prompt_(!manifest.include_prompt),
        pool_(threads),
        module_(path_, Module::LoadMode::Mmap) {
    const auto alone = pool_.alone();
    const Error loaded = module_.load(executorch::runtime::Program::Verification::InternalConsistency);
    if (loaded != Error::Ok) {
      damaged(path_ + ": not a program that ExecuTorch accepts (error " + std::to_string(static_cast<int>(loaded)) + ")");
    }
    if (program_.multi_method) {
      check_constant("repeats", program_.repeats);
      check_constant("width", manifest.width);
      methods_ = {"embed", "unit", "pool"};
    } else {
      methods_ = {"forward"};
    }
    load_methods();
  }

  void run(const std::vector<int32_t>& ids, size_t prompt_tokens, float* vector, size_t width) override {
    const auto alone = pool_.alone();
    ids_.assign(ids.begin(), ids.end());
    const auto tokens = static_cast<SizesType>(ids_.size());
    auto input = executorch::extension::from_blob(ids_.data(), {1, tokens}, ScalarType::Long);
    if (!program_.multi_method) {
      prompt_tokens_ = static_cast<int64_t>(prompt_tokens);
      std::vector<EValue> inputs = {EValue(*input)};
      const auto prompt = executorch::extension::from_blob(&prompt_tokens_, {1}, ScalarType::Long);
      if (takes_prompt_) inputs.emplace_back(*prompt);
      execute("forward", inputs, vector, width);
      return;
    }
    hidden_width_ = hidden_width_ != 0 ? hidden_width_ : output_width("embed");
    hidden_.resize(ids_.size() * hidden_width_);
    execute("embed", {EValue(*input)}, hidden_.data(), hidden_.size());
    auto hidden = executorch::extension::from_blob(
        hidden_.data(), {1, tokens, static_cast<SizesType>(hidden_width_)}, ScalarType::Float);
    for (int32_t i = 0; i < program_.repeats; ++i) execute("unit", {EValue(*hidden)}, hidden_.data(), hidden_.size());
    execute("pool", {EValue(*hidden)}, vector, width);
  }

 private:
  void check_constant(const char* name, int64_t expected) {
    const auto result = module_.execute(name);
    if (!result.ok() || result->empty() || !result->at(0).isInt()) {
      damaged(path_ + ": no constant \"" + name + "\" in the program");
    }
    if (result->at(0).toInt() != expected) {
      damaged(path_ + ": the program's " + name + " is " + std::to_string(result->at(0).toInt()) +
              ", not the manifest's " + std::to_string(expected));
    }
    module_.unload_method(name);
  }

  void load_methods() {
    std::vector<size_t> sizes;
    for (const std::string& name : methods_) {
      const auto meta = module_.method_meta(name);
      if (!meta.ok()) damaged(path_ + ": no method \"" + name + "\" in the program");
      const size_t count = meta->num_memory_planned_buffers();
      sizes.resize(std::max(sizes.size(), count));
      for (size_t i = 0; i < count; ++i) {
        const auto bytes = meta->memory_planned_buffer_size(i);
        if (!bytes.ok()) failed("method " + name, bytes.error());
        sizes[i] = std::max(sizes[i], static_cast<size_t>(*bytes));
      }
    }
    arena_.reserve(sizes);
    // A single graph that applies the unit several times packs its shared weights once per use unless XNNPACK
    // keeps them in a cache; a multi-method program holds them once by itself. The option is this program's alone.
    executorch::runtime::BackendOptions<1> options;
    executorch::runtime::LoadBackendOptionsMap backends;
    if (!program_.multi_method && program_.repeats > 1) {
      Error set = options.set_option("weight_cache_enabled", true);
      if (set == Error::Ok) set = backends.set_options("XnnpackBackend", options.view());
      if (set != Error::Ok) failed("weight cache", set);
    }
    for (const std::string& name : methods_) {
      const Error error = module_.load_method(name, arena_.allocator(), nullptr, &backends);
      if (error != Error::Ok) failed("method " + name + " of " + path_, error);
    }
  }

  size_t output_width(const std::string& name) {
    const auto meta = module_.method_meta(name);
    if (!meta.ok()) failed("method " + name, meta.error());
    const auto tensor = meta->output_tensor_meta(0);
    if (!tensor.ok() || tensor->sizes().size() != 3 || tensor->scalar_type() != ScalarType::Float) {
      damaged(path_ + ": method " + name + " does not give float hidden states");
    }
    return static_cast<size_t>(tensor->sizes()[2]);
  }

  // Run one method and copy its output out of the arena, which the next method writes over.
  void execute(const std::string& name, const std::vector<EValue>& inputs, float* out, size_t numbers) {
    const auto result = module_.execute(name, inputs);
    if (!result.ok()) failed("method " + name, result.error());
    if (result->size() != 1 || !result->at(0).isTensor()) damaged(path_ + ": method " + name + " gives no tensor");
    const auto tensor = result->at(0).toTensor();
    if (tensor.scalar_type() != ScalarType::Float || static_cast<size_t>(tensor.numel()) != numbers) {
      damaged(path_ + ": method " + name + " returns a tensor of another size than the manifest's");
    }
    std::memcpy(out, tensor.const_data_ptr<float>(), numbers * sizeof(float));
  }

  const std::string path_;
  const ExecutorchProgram program_;
  const bool takes_prompt_;
  const PoolHold pool_;
  Arena arena_;  // outlives the methods that live in it
  Module module_;
  std::vector<std::string> methods_;
  size_t hidden_width_ = 0;
  std::vector<int64_t> ids_;
  int64_t prompt_tokens_ = 0;
  std::vector<float> hidden_;
};

}  // namespace

std::unique_ptr<Engine> open_engine(const Manifest& manifest, int32_t threads) {
  manifest.program_files(engine_name());
#ifndef MSDC_LIBRARY_LAYER_NORM
  static std::once_flag added;
  std::call_once(added, add_layer_norm_kernels);
#endif
  return std::make_unique<ExecutorchEngine>(manifest, threads);
}

const char* engine_name() { return "executorch"; }

void quiet_engine() {
  const auto errors_only = [](et_timestamp_t, et_pal_log_level_t level, const char*, const char*, size_t,
                              const char* message, size_t length) {
    if (level == et_pal_log_level_t::kError || level == et_pal_log_level_t::kFatal) {
      std::fprintf(stderr, "ExecuTorch: %.*s\n", static_cast<int>(length), message);
    }
  };
  executorch::runtime::register_pal(executorch::runtime::PalImpl::create(errors_only, __FILE__));
}

std::string engine_version() {
#ifdef MSDC_RUNTIME_VERSION
  return MSDC_RUNTIME_VERSION;
#else
  return "";
#endif
}

}  // namespace msdc
