#include "request.h"

#include "failure.h"
#include "files.h"
#include "json.h"

namespace msdc::runner {

namespace {

constexpr uint64_t kMaxRequestBytes = 64u * 1024 * 1024;

int32_t bounded(const Json value, int64_t least, int64_t most) {
  const int64_t out = value.integer();
  if (out < least || out > most) throw Failure(MSDC_BAD_ARGUMENT, "request: a number out of range");
  return static_cast<int32_t>(out);
}

std::vector<int32_t> integers(const Json value, int64_t most) {
  std::vector<int32_t> out;
  out.reserve(value.array().size());
  for (const Json item : value.array()) out.push_back(bounded(item, 0, most));
  return out;
}

}  // namespace

Request Request::read(const std::string& path) {
  const JsonDocument document(read_file(path, kMaxRequestBytes), "request");
  const Json root = document.root();
  Request out;
  out.nonce = root.at("nonce").text();
  out.bundle = root.at("bundle").text();
  out.rows.reserve(root.at("rows").array().size());
  for (const Json item : root.at("rows").array()) {
    out.rows.push_back({bounded(item.at("length"), 1, 1 << 24), integers(item.at("ids"), 1 << 24)});
  }
  out.texts.reserve(root.at("texts").array().size());
  for (const Json item : root.at("texts").array()) out.texts.emplace_back(item.text());
  const std::string clock(root.at("clock").text());
  if (clock != "wall" && clock != "instructions") throw Failure(MSDC_BAD_ARGUMENT, "request: unknown clock " + clock);
  out.count_instructions = clock == "instructions";
  out.runs = bounded(root.at("runs"), 1, 1'000'000);
  out.stop_ms = bounded(root.at("stop_ms"), 0, 3'600'000);
  out.warmup = bounded(root.at("warmup"), 0, 1'000'000);
  out.threads = bounded(root.at("threads"), 1, 256);
  out.cooldown_ms = bounded(root.at("cooldown_ms"), 0, 3'600'000);
  out.deadline_s = bounded(root.at("deadline_s"), 0, 1 << 24);
  out.affinity = integers(root.at("affinity"), 1023);
  out.embed_file = root.at("embed_file").text();
  out.prompt = root.at("prompt").text();
  out.answer_file = root.at("answer_file").text();
  out.vectors_file = root.at("vectors_file").text();
  return out;
}

}  // namespace msdc::runner
