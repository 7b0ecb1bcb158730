// The host's request of one run, as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace msdc::runner {

struct Row {
  int32_t length = 0;
  std::vector<int32_t> ids;
};

struct Request {
  static Request read(const std::string& path);

  std::string nonce;             // repeated in the sentinel, so that an old answer is not mistaken for this one
  std::string bundle;            // folder
  std::vector<Row> rows;         // ids to time, one row per length
  std::vector<std::string> texts;  // texts to time tokenization and the whole pipeline on, in turn
  bool count_instructions = false;  // samples are executed instructions instead of nanoseconds
  int32_t runs = 1;
  int64_t stop_ms = 0;           // the calls of a row end after so much time; 0: after `runs`
  int32_t warmup = 0;
  int32_t threads = 1;
  int64_t cooldown_ms = 0;       // pause before each length
  int32_t deadline_s = 0;        // the runner ends itself after this time; 0: never
  std::vector<int32_t> affinity;  // CPU numbers; empty: any
  std::string embed_file;        // texts to embed, each ended by a NUL byte; empty: none
  std::string prompt;            // what embed_file's texts begin with: programs that do not pool it get its number of tokens
  std::string answer_file;
  std::string vectors_file;      // float32, little-endian: golden texts, then those of embed_file
};

}  // namespace msdc::runner
