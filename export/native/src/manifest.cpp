#include "manifest.h"

#include <algorithm>
#include <cmath>

#include "failure.h"
#include "files.h"
#include "json.h"

namespace msdc {

namespace {

constexpr uint64_t kMaxManifestBytes = 1024 * 1024;
constexpr std::string_view kSealKey = "\"seal\": \"";

std::string inside(const std::string& folder, std::string_view given) {
  const std::string name(given);
  bool ok = !name.empty() && name.front() != '/' && name.find('\\') == std::string::npos &&
            name.find('\0') == std::string::npos;
  for (size_t start = 0; ok && start <= name.size();) {
    const size_t end = std::min(name.find('/', start), name.size());
    const std::string part = name.substr(start, end - start);
    ok = !part.empty() && part != "." && part != "..";
    start = end + 1;
  }
  if (!ok) damaged(folder + ": file name \"" + name + "\" would leave the bundle");
  return name;
}

int32_t small(const Json& value, int32_t least) {
  const int64_t out = value.integer();
  if (out < least || out > 1 << 24) damaged("bundle.json: a size out of range (" + std::to_string(out) + ")");
  return static_cast<int32_t>(out);
}

constexpr size_t kMaxPromptBytes = 64 * 1024;

// Bundles written before prompts were kept have none of these entries.
void read_prompts(const Json& root, const std::string& path, Manifest* out) {
  if (root.has("truncate_dim") && !root.at("truncate_dim").is_null()) {
    out->vector_width = small(root.at("truncate_dim"), 1);
    if (out->vector_width > out->width) damaged(path + ": truncate_dim is larger than the width");
  }
  if (root.has("prompts")) {
    for (const auto& [name, prompt] : root.at("prompts").object()) {
      const std::string text(prompt.text());
      if (text.size() > kMaxPromptBytes || text.find('\0') != std::string::npos) damaged(path + ": a prompt is too long");
      out->prompts.emplace(name, text);
    }
  }
  if (root.has("default_prompt") && !root.at("default_prompt").is_null()) {
    const auto found = out->prompts.find(std::string(root.at("default_prompt").text()));
    if (found == out->prompts.end()) damaged(path + ": its default prompt is not among its prompts");
    out->default_prompt = found->second;
  }
  if (root.has("include_prompt")) out->include_prompt = root.at("include_prompt").boolean();
}

int32_t id_or_none(const Json& value) { return value.is_null() ? -1 : small(value, 0); }

// The manifest carries the sha256 of its own text with the seal's digits as zeros.
void check_seal(const std::string& path, std::string text, const std::string& seal) {
  // The length first: looking for a long text in a long text can take the product of both.
  const size_t at = seal.size() == 64 ? text.find(std::string(kSealKey) + seal) : std::string::npos;
  if (at == std::string::npos) damaged(path + ": its seal is broken");
  text.replace(at + kSealKey.size(), 64, 64, '0');
  if (sha256_text(text) != seal) {
    damaged(path + ": damaged or edited (its seal does not match); export or copy the bundle again");
  }
}

}  // namespace

Manifest Manifest::read(const std::string& folder) {
  Manifest out;
  out.folder = folder;
  const std::string path = out.path(kManifestFile);
  if (file_bytes(path) < 0) damaged(folder + ": not a bundle (no bundle.json)");
  const std::string text = read_file(path, kMaxManifestBytes);
  const JsonDocument document(text, kManifestFile);
  const Json root = document.root();
  if (root.at("format").integer() != 1) damaged(path + ": a bundle format this build does not read");
  check_seal(path, text, std::string(root.at("seal").text()));
  out.name = root.at("name").text();
  if (root.has("model")) out.source = root.at("model").at("source_sha256").text();
  if (root.has("cosines") && !root.at("cosines").is_null()) {
    const Json spread = root.at("cosines");
    const auto millionths = [&](const char* name) {  // an app's locale may have a decimal comma
      const double value = spread.at(name).number();
      if (!(value >= -1.001 && value <= 1.001)) damaged(path + ": " + name + " of cosines is out of range");
      return std::to_string(std::lround(value * 1e6)) + "e-6";
    };
    out.cosines = "[" + millionths("mean") + "," + millionths("deviation") + "]";
  }
  out.width = small(root.at("width"), 1);
  out.vector_width = out.width;
  out.max_length = small(root.at("max_length"), 2);
  read_prompts(root, path, &out);
  out.vocabulary = small(root.at("vocabulary"), 1);
  const Json tokenizer = root.at("tokenizer");
  out.tokenizer_kind = tokenizer.at("kind").text();
  out.tokenizer_file = inside(folder, tokenizer.at("file").text());
  if (out.tokenizer_kind == "tokenizer-json") {
    const bool compiled = tokenizer.has("compiled") && !tokenizer.at("compiled").is_null();
    out.tokenizer_file = compiled ? inside(folder, tokenizer.at("compiled").text()) : std::string();
  }
  out.bos_id = id_or_none(tokenizer.at("bos_id"));
  out.eos_id = id_or_none(tokenizer.at("eos_id"));
  const Json programs = root.at("programs");
  if (programs.has("executorch") && !programs.at("executorch").is_null()) {
    const Json part = programs.at("executorch");
    ExecutorchProgram program;
    program.file = inside(folder, part.at("file").text());
    const std::string style(part.at("style").text());
    if (style != "multi-method" && style != "forward") damaged(path + ": unknown program style " + style);
    program.multi_method = style == "multi-method";
    program.repeats = small(part.at("repeats"), 1);
    // Only one method alone takes the prompt's tokens.
    if (program.multi_method && !out.include_prompt) damaged(path + ": a multi-method program pools every token");
    out.executorch = program;
  }
  if (programs.has("onnx") && !programs.at("onnx").is_null()) {
    const Json part = programs.at("onnx");
    OnnxProgram program;
    program.file = inside(folder, part.at("file").text());
    if (!part.at("data").is_null()) program.data = inside(folder, part.at("data").text());
    out.onnx = program;
  }
  for (const auto& [name, record] : root.at("files").object()) {
    FileRecord file;
    file.sha256 = record.at("sha256").text();
    file.bytes = record.at("bytes").integer();
    out.files.emplace(inside(folder, name), file);
  }
  return out;
}

std::vector<std::string> Manifest::program_files(const std::string& runtime) const {
  if (runtime == "executorch" && executorch) return {executorch->file};
  if (runtime == "onnx" && onnx) {
    return onnx->data.empty() ? std::vector<std::string>{onnx->file} : std::vector<std::string>{onnx->file, onnx->data};
  }
  if (runtime == "executorch" || runtime == "onnx") {
    throw Failure(MSDC_UNSUPPORTED, folder + ": no " + runtime + " program in the bundle; export it with --runtime " + runtime);
  }
  throw Failure(MSDC_UNSUPPORTED,
                "this build of the core has no runtime (\"" + runtime + "\"): open the bundle with your own program");
}

void Manifest::check(const std::string& file, bool hash) const {
  if (file.empty()) {
    throw Failure(MSDC_UNSUPPORTED, folder + ": its tokenizer.json has no compiled form that this core reads; export the "
                                             "bundle again, or run it from Python");
  }
  const auto record = files.find(file);
  if (record == files.end()) damaged(folder + ": " + file + " is used but not listed in bundle.json");
  const int64_t bytes = file_bytes(path(file));
  if (bytes < 0) damaged(folder + ": " + file + " is missing; copy the whole bundle again");
  if (bytes != record->second.bytes) {
    damaged(path(file) + ": " + std::to_string(bytes) + " bytes where the manifest says " +
            std::to_string(record->second.bytes) + "; copy the bundle again");
  }
  if (hash && sha256_file(path(file)) != record->second.sha256) {
    damaged(path(file) + ": sha256 differs from the manifest; copy or export the bundle again");
  }
}

}  // namespace msdc
