#include "encoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "failure.h"
#include "files.h"
#include "json.h"

namespace msdc {

namespace {

constexpr uint64_t kMaxGoldenBytes = 16ull * 1024 * 1024;

Manifest checked_manifest(const std::string& folder, bool check_files, const std::string& runtime) {
  Manifest out = Manifest::read(folder);
  // Unsupported comes before damaged: a bundle for another runtime is not a broken one.
  const std::vector<std::string> program = out.program_files(runtime);
  out.check(out.tokenizer_file, check_files);
  for (const std::string& name : program) out.check(name, check_files);
  return out;
}

std::string base64(std::string_view text, const std::string& where) {
  std::string out;
  out.reserve(text.size() / 4 * 3);
  uint32_t held = 0;
  int bits = 0;
  size_t size = text.size();
  while (size > 0 && text[size - 1] == '=') --size;
  for (size_t i = 0; i < size; ++i) {
    const char c = text[i];
    uint32_t value = 0;
    if (c >= 'A' && c <= 'Z') {
      value = static_cast<uint32_t>(c - 'A');
    } else if (c >= 'a' && c <= 'z') {
      value = static_cast<uint32_t>(c - 'a' + 26);
    } else if (c >= '0' && c <= '9') {
      value = static_cast<uint32_t>(c - '0' + 52);
    } else if (c == '+' || c == '/') {
      value = c == '+' ? 62 : 63;
    } else {
      damaged(where + ": not base64");
    }
    held = held << 6 | value;
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      out.push_back(static_cast<char>(held >> bits & 0xFF));
    }
  }
  return out;
}

}  // namespace

double cosine(const float* a, const float* b, size_t width) {
  double dot = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < width; ++i) {
    dot += static_cast<double>(a[i]) * b[i];
    aa += static_cast<double>(a[i]) * a[i];
    bb += static_cast<double>(b[i]) * b[i];
  }
  // Two zero vectors agree; a zero against anything else does not. NaN falls through as NaN.
  if (aa == 0 && bb == 0) return 1.0;
  return aa == 0 || bb == 0 ? 0.0 : dot / std::sqrt(aa) / std::sqrt(bb);
}

Golden read_golden(const Manifest& manifest, const std::string& runtime) {
  const JsonDocument document(read_file(manifest.path(kGoldenFile), kMaxGoldenBytes), kGoldenFile);
  const Json root = document.root();
  Golden out;
  const Json texts = root.at("texts"), rows = root.at("ids");
  out.texts.reserve(texts.array().size());
  out.ids.reserve(rows.array().size());
  for (const Json text : texts.array()) out.texts.emplace_back(text.text());
  for (const Json row : rows.array()) {
    std::vector<int32_t>& ids = out.ids.emplace_back();
    ids.reserve(row.array().size());
    for (const Json id : row.array()) ids.push_back(static_cast<int32_t>(id.integer()));
  }
  if (root.at("width").integer() != manifest.width) damaged("golden.json: its width is not the bundle's");
  const Json vectors = root.at("vectors");
  if (!vectors.has(runtime)) damaged("golden.json: no vectors of " + runtime);
  const std::string raw = base64(vectors.at(runtime).text(), kGoldenFile);
  const size_t numbers = out.texts.size() * static_cast<size_t>(manifest.width);
  if (out.texts.empty() || out.ids.size() != out.texts.size() || raw.size() != numbers * sizeof(float)) {
    damaged("golden.json: its texts, ids and vectors do not fit together");
  }
  out.vectors.resize(numbers);
  std::memcpy(out.vectors.data(), raw.data(), raw.size());  // little-endian, as every machine this runs on
  return out;
}

Encoder::Encoder(const std::string& folder, int32_t threads, bool check_files)
    : runtime_(engine_name()),
      manifest_(checked_manifest(folder, check_files, runtime_)),
      tokenizer_(manifest_),
      engine_(open_engine(manifest_, threads)) {}

Encoder::Encoder(const std::string& folder, bool check_files, const std::string& runtime,
                 std::unique_ptr<Engine> engine)
    : runtime_(runtime),
      manifest_(checked_manifest(folder, check_files, runtime_)),
      tokenizer_(manifest_),
      engine_(std::move(engine)) {}

std::vector<int32_t> Encoder::tokenize(const char* prompt, std::string_view text) const {
  std::string both;
  return tokenizer_.encode(prompted(prompt, text, both));
}

bool Encoder::truncates(const char* prompt, std::string_view text) const {
  std::string both;
  return tokenizer_.truncates(prompted(prompt, text, both));
}

std::string_view Encoder::prompted(const char* prompt, std::string_view text, std::string& both) const {
  const std::string_view first = prompt == nullptr ? std::string_view(manifest_.default_prompt) : prompt;
  if (first.empty()) return text;
  both.reserve(first.size() + text.size());
  both.append(first).append(text);
  return both;
}

size_t Encoder::prompt_tokens(const char* prompt) const {
  if (manifest_.include_prompt) return 0;
  return tokenizer_.prompt_tokens(prompt == nullptr ? std::string_view(manifest_.default_prompt) : prompt);
}

void Encoder::encode(const std::vector<int32_t>& ids, size_t prompt_tokens, float* vector, size_t width) {
  if (ids.empty()) {
    std::fill(vector, vector + width, 0.0f);
  } else {
    run(ids, prompt_tokens, vector, width);
  }
}

void Encoder::run(const std::vector<int32_t>& ids, size_t prompt_tokens, float* vector, size_t width) {
  if (width == static_cast<size_t>(manifest_.width)) return run(ids, prompt_tokens, vector);
  if (width == 0 || width > static_cast<size_t>(manifest_.vector_width)) {
    throw Failure(MSDC_BAD_ARGUMENT, "the vector's width is not 1 to " + std::to_string(manifest_.vector_width));
  }
  std::vector<float> whole(static_cast<size_t>(manifest_.width));
  run(ids, prompt_tokens, whole.data());
  std::memcpy(vector, whole.data(), width * sizeof(float));
}

void Encoder::check_count(size_t ids) const {
  if (ids == 0 || ids > static_cast<size_t>(manifest_.max_length)) {
    throw Failure(MSDC_BAD_ARGUMENT,
                  std::to_string(ids) + " ids where 1 to " + std::to_string(manifest_.max_length) + " fit");
  }
}

void Encoder::run(const std::vector<int32_t>& ids, size_t prompt_tokens, float* vector) {
  check_count(ids.size());
  for (const int32_t id : ids) {
    if (id < 0 || id >= manifest_.vocabulary) {
      throw Failure(MSDC_BAD_ARGUMENT, "id " + std::to_string(id) + " is not in the vocabulary");
    }
  }
  const std::lock_guard<FairMutex> lock(running_);
  engine_->run(ids, prompt_tokens, vector, static_cast<size_t>(manifest_.width));
  if (!std::all_of(vector, vector + manifest_.width, [](float number) { return std::isfinite(number); })) {
    throw Failure(MSDC_RUNTIME, "the vector holds NaN or infinity; the model is damaged");
  }
}

}  // namespace msdc
