// bundle.json, as far as running the bundle needs it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace msdc {

struct FileRecord {
  std::string sha256;
  int64_t bytes = 0;
};

struct ExecutorchProgram {
  std::string file;
  bool multi_method = true;
  int32_t repeats = 1;
};

struct OnnxProgram {
  std::string file;
  std::string data;  // empty where the weights are inside the file
};

struct Manifest {
  // Read and check `folder`/bundle.json: its seal, its format, that the files it names stay inside the folder.
  // Throws Failure.
  static Manifest read(const std::string& folder);

  std::string path(const std::string& file) const { return folder + "/" + file; }

  // Compare size and, where asked, sha256 of one listed file. Throws Failure(MSDC_DAMAGED) naming it.
  void check(const std::string& file, bool hash) const;

  // Files of the bundle that a runtime ("executorch", "onnx") reads, the program first. Throws
  // Failure(MSDC_UNSUPPORTED) where the bundle has no program for it.
  std::vector<std::string> program_files(const std::string& runtime) const;

  std::string folder;
  std::string name;
  std::string source;        // sha256 of the model that was exported, empty where the manifest does not say
  std::string cosines;       // mean and standard deviation of unrelated sentences' cosines as JSON, or empty
  int32_t width = 0;         // numbers that a program gives
  int32_t vector_width = 0;  // numbers of a vector by default: `width`, or `truncate_dim`
  int32_t max_length = 0;
  int32_t vocabulary = 0;
  std::string tokenizer_kind;
  // The file this core reads: the SentencePiece model, or tokenizer.json compiled; empty where there is none.
  std::string tokenizer_file;
  int32_t bos_id = -1;
  int32_t eos_id = -1;
  std::map<std::string, std::string> prompts;
  std::string default_prompt;  // the text, empty where the bundle has none
  bool include_prompt = true;  // false: programs take the number of the prompt's tokens, which they do not pool
  std::optional<ExecutorchProgram> executorch;
  std::optional<OnnxProgram> onnx;
  std::map<std::string, FileRecord> files;
};

constexpr const char* kManifestFile = "bundle.json";
constexpr const char* kGoldenFile = "golden.json";

}  // namespace msdc
