// The benchmark runner: `msdc-runner REQUEST.json`. Loads a bundle on the machine it runs on, times it, compares its
// golden texts, embeds a file of sentences. Answers in a JSON file and one last line on standard output:
//   msdc-runner done NONCE SHA256-OF-ANSWER SHA256-OF-VECTORS
// Without that line the files are not valid. Samples are raw, in nanoseconds or executed instructions as requested;
// `clock` in the answer names the unit.
#include <algorithm>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <functional>
#include <unistd.h>

#include "encoder.h"
#include "engine.h"
#include "failure.h"
#include "files.h"
#include "json.h"
#include "machine.h"
#include "request.h"
#include "tokenizer.h"

namespace msdc::runner {

namespace {

constexpr int kAnswerFormat = 1;

class JsonWriter {
 public:
  JsonWriter& key(const char* name) { return raw(json_quote(name) + ":", true); }
  JsonWriter& text(const std::string& value) { return raw(json_quote(value)); }
  JsonWriter& number(int64_t value) { return raw(std::to_string(value)); }
  JsonWriter& real(double value) {
    char digits[40];
    std::snprintf(digits, sizeof digits, "%.9g", value);
    return raw(digits);
  }
  template <typename Items>
  JsonWriter& numbers(const Items& items) {
    open('[');
    for (const auto& item : items) number(static_cast<int64_t>(item));
    return close(']');
  }
  JsonWriter& open(char bracket) {
    comma();
    out_.push_back(bracket);
    first_ = true;
    return *this;
  }
  JsonWriter& close(char bracket) {
    out_.push_back(bracket);
    first_ = false;
    return *this;
  }
  const std::string& str() const { return out_; }

 private:
  void comma() {
    if (!first_) out_.push_back(',');
    first_ = false;
  }
  JsonWriter& raw(const std::string& value, bool is_key = false) {
    comma();
    out_ += value;
    first_ = is_key;
    return *this;
  }

  std::string out_;
  bool first_ = true;
};

struct File {
  explicit File(const std::string& name) : path(name), handle(std::fopen(name.c_str(), "wb")) { check(handle); }
  ~File() {
    if (handle != nullptr) std::fclose(handle);
  }
  void write(const void* data, size_t bytes) { check(std::fwrite(data, 1, bytes, handle) == bytes); }
  void finish() {
    const bool flushed = std::fflush(handle) == 0 && ::fsync(::fileno(handle)) == 0;
    check(flushed);
  }
  void check(bool ok) const {
    if (!ok) throw Failure(MSDC_RUNTIME, path + ": cannot be written (is the disk full?)");
  }

  const std::string path;
  std::FILE* handle;
};

int64_t timed(const Meter& meter, const std::function<void()>& work) {
  const int64_t start = meter.now();
  work();
  return meter.now() - start;
}

// `runs` timed calls, or fewer that take `stop_ms`, after `warmup` untimed ones; `work` receives the index of the call.
std::vector<int64_t> sample(const Request& request, const Meter& meter, const std::function<void(size_t)>& work) {
  for (int32_t i = 0; i < request.warmup; ++i) work(static_cast<size_t>(i));
  std::vector<int64_t> out;
  out.reserve(static_cast<size_t>(request.runs));
  const int64_t stop = request.stop_ms > 0 ? request.stop_ms * 1'000'000 : INT64_MAX;
  int64_t sum = 0;
  for (int32_t i = 0; i < request.runs && sum < stop; ++i) {
    out.push_back(timed(meter, [&] { work(static_cast<size_t>(i)); }));
    sum += out.back();
  }
  return out;
}

void pause(int64_t ms) {
  if (ms <= 0) return;
  timespec rest = {static_cast<time_t>(ms / 1000), static_cast<long>(ms % 1000) * 1'000'000};
  ::nanosleep(&rest, nullptr);
}

void write_memory(JsonWriter& json, const char* phase, const MemoryKib& memory) {
  json.key(phase).open('{');
  json.key("vmhwm_kib").number(memory.peak).key("pss_kib").number(memory.pss);
  json.key("rss_kib").number(memory.rss).key("anon_kib").number(memory.anonymous);
  json.key("swap_kib").number(memory.swap);
  json.close('}');
}

void write_golden(JsonWriter& json, const Manifest& manifest, const Tokenizer& tokenizer, Engine& engine, File& file) {
  manifest.check(kGoldenFile, true);
  const Golden golden = read_golden(manifest, engine_name());
  const size_t width = static_cast<size_t>(manifest.width);
  std::vector<float> vector(width);
  const size_t prompt_tokens = manifest.include_prompt ? 0 : tokenizer.prompt_tokens(manifest.default_prompt);
  std::vector<size_t> differ;
  double least = 1, sum = 0;
  json.key("golden").open('{').key("ids").open('[');
  for (size_t i = 0; i < golden.texts.size(); ++i) {
    const std::vector<int32_t> ids = tokenizer.encode(golden.texts[i]);
    if (ids != golden.ids[i]) differ.push_back(i);
    engine.run(ids, prompt_tokens, vector.data(), width);
    const double now = cosine(vector.data(), &golden.vectors[i * width], width);
    sum += now;
    if (!(now >= least)) least = now;
    json.numbers(ids);
    file.write(vector.data(), width * sizeof(float));
  }
  json.close(']').key("texts").number(static_cast<int64_t>(golden.texts.size())).key("ids_differ").numbers(differ);
  // NaN is not JSON; a vector that is not finite counts as no agreement.
  json.key("min_cosine").real(least == least ? least : -1);
  const double mean = sum / static_cast<double>(golden.texts.size());
  json.key("mean_cosine").real(mean == mean ? mean : -1).close('}');
}

int64_t embed(const Request& request, const Manifest& manifest, const Tokenizer& tokenizer, Engine& engine, File& file) {
  if (request.embed_file.empty()) return 0;
  const std::string all = read_file(request.embed_file, 256u * 1024 * 1024);
  if (!all.empty() && all.back() != '\0') throw Failure(MSDC_DAMAGED, request.embed_file + ": cut off");
  std::vector<float> vector(static_cast<size_t>(manifest.width));
  const size_t prompt_tokens = manifest.include_prompt ? 0 : tokenizer.prompt_tokens(request.prompt);
  int64_t count = 0;
  for (size_t start = 0; start < all.size(); ++count) {
    const size_t end = all.find('\0', start);
    const std::vector<int32_t> ids = tokenizer.encode(std::string_view(all).substr(start, end - start));
    // A blank text without special ids has the vector zero, as in msdc_encode.
    if (ids.empty()) std::fill(vector.begin(), vector.end(), 0.0f);
    if (!ids.empty()) engine.run(ids, prompt_tokens, vector.data(), vector.size());
    file.write(vector.data(), vector.size() * sizeof(float));
    start = end + 1;
  }
  return count;
}

void write_machine(JsonWriter& json) {
  const Machine machine = read_machine();
  json.key("machine").open('{').key("cpuinfo").text(machine.cpuinfo).key("system").text(machine.system);
  json.key("cores").number(machine.cores).key("memory_kib").number(machine.memory_kib).close('}');
}

void run(const Request& request) {
  // Ends a runner that hangs where neither the host nor `timeout` can reach it.
  if (request.deadline_s > 0) ::alarm(static_cast<unsigned>(request.deadline_s));
  set_affinity(request.affinity);
  quiet_engine();
  const Meter meter(request.count_instructions);
  JsonWriter json;
  json.open('{').key("format").number(kAnswerFormat).key("kind").text("runner-answer");
  json.key("nonce").text(request.nonce).key("clock").text(request.count_instructions ? "instructions" : "wall");
  json.key("runtime").text(engine_name());
  json.key("runtime_version").text(engine_version()).key("threads").number(request.threads);
  json.key("cpus").numbers(read_affinity());
  write_machine(json);

  const Manifest manifest = Manifest::read(request.bundle);
  const int64_t verify = timed(meter, [&] {
    manifest.check(manifest.tokenizer_file, true);
    for (const std::string& name : manifest.program_files(engine_name())) manifest.check(name, true);
  });
  for (const Row& row : request.rows) {
    if (row.ids.empty() || row.ids.size() > static_cast<size_t>(manifest.max_length)) {
      throw Failure(MSDC_BAD_ARGUMENT, "request: a row longer than the bundle's longest input");
    }
  }
  const MemoryKib at_start = read_memory();

  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<Engine> engine;
  const int64_t init = timed(meter, [&] { tokenizer = std::make_unique<Tokenizer>(manifest); });
  const int64_t load = timed(meter, [&] { engine = open_engine(manifest, request.threads); });
  const MemoryKib loaded = read_memory();

  std::vector<float> vector(static_cast<size_t>(manifest.width));
  if (request.rows.empty()) throw Failure(MSDC_BAD_ARGUMENT, "request: no row to time");
  const int64_t first = timed(meter, [&] { engine->run(request.rows.front().ids, 0, vector.data(), vector.size()); });
  std::vector<std::vector<int64_t>> by_length;
  for (const Row& row : request.rows) {
    pause(request.cooldown_ms);
    by_length.push_back(sample(request, meter, [&](size_t) { engine->run(row.ids, 0, vector.data(), vector.size()); }));
  }
  std::vector<int64_t> tokenize, pipeline;
  if (!request.texts.empty()) {
    const auto text = [&](size_t i) -> const std::string& { return request.texts[i % request.texts.size()]; };
    tokenize = sample(request, meter, [&](size_t i) { tokenizer->encode(text(i)); });
    pipeline = sample(request, meter, [&](size_t i) { engine->run(tokenizer->encode(text(i)), 0, vector.data(), vector.size()); });
  }
  const MemoryKib warm = read_memory();

  json.key("verify").number(verify).key("init").number(init).key("load").number(load);
  json.key("first").number(first).key("latency").open('[');
  for (size_t i = 0; i < by_length.size(); ++i) {
    json.open('{').key("length").number(request.rows[i].length).key("samples").numbers(by_length[i]).close('}');
  }
  json.close(']').key("tokenize").numbers(tokenize).key("pipeline").numbers(pipeline);
  json.key("memory").open('{');
  write_memory(json, "start", at_start);
  write_memory(json, "loaded", loaded);
  write_memory(json, "warm", warm);
  json.close('}');

  File vectors(request.vectors_file);
  write_golden(json, manifest, *tokenizer, *engine, vectors);
  json.key("embedded").number(embed(request, manifest, *tokenizer, *engine, vectors));
  vectors.finish();
  json.key("width").number(manifest.width).close('}');
  File answer(request.answer_file);
  answer.write(json.str().data(), json.str().size());
  answer.finish();
  std::printf("msdc-runner done %s %s %s\n", request.nonce.c_str(), sha256_text(json.str()).c_str(),
              sha256_file(request.vectors_file).c_str());
  std::fflush(stdout);
}

}  // namespace

}  // namespace msdc::runner

int main(int count, char** arguments) {
  if (count == 2 && std::string(arguments[1]) == "--version") {
    std::printf("msdc-runner %d %s %s\n", msdc::runner::kAnswerFormat, msdc::engine_name(),
                msdc::engine_version().c_str());
    return 0;
  }
  if (count != 2) {
    std::fprintf(stderr, "usage: msdc-runner REQUEST.json | --version\n");
    return 2;
  }
  try {
    msdc::runner::run(msdc::runner::Request::read(arguments[1]));
    return 0;
  } catch (const msdc::Failure& failure) {
    std::fprintf(stderr, "msdc-runner error: %s\n", failure.what());
    // 2: bad input; 1: the run failed.
    return failure.status == MSDC_DAMAGED || failure.status == MSDC_BAD_ARGUMENT ? 2 : 1;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "msdc-runner error: out of memory\n");
    return 1;
  } catch (const std::exception& other) {
    std::fprintf(stderr, "msdc-runner error: %s\n", other.what());
    return 1;
  }
}
