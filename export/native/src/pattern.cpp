#include "pattern.h"

#include "failure.h"
#include "utf8.h"

namespace msdc {

namespace {

constexpr uint32_t kNoLimit = 0xFFFFFFFFu;
constexpr uint32_t kNegative = 1;
constexpr uint32_t kPossessive = 1;
constexpr int kMaxDepth = 4;
constexpr size_t kMaxInstructions = 16384;
constexpr size_t kNone = std::string_view::npos;

// Where to go on when a branch fails: at `at`, or, for a repeat, one character less each time down to `least`.
struct Choice {
  size_t instruction;
  size_t at;
  size_t least;
};

}  // namespace

Pattern::Pattern(Words program, const std::vector<CharacterSet>* sets) : sets_(sets) {
  const size_t count = program.size() / 4;
  const auto broken = [] { damaged("tokenizer.bin: a broken pattern"); };
  if (count == 0 || count > kMaxInstructions || program.size() % 4 != 0) broken();
  program_.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const Instruction one = {static_cast<Op>(program.at(4 * i)), program.at(4 * i + 1), program.at(4 * i + 2),
                             program.at(4 * i + 3)};
    bool ok = true;
    switch (one.op) {
      case Op::set:
      case Op::repeat: ok = one.a < sets->size(); break;
      case Op::split: ok = one.a < count && one.b < count; break;
      case Op::jump:
      case Op::look: ok = one.a < count; break;
      case Op::match:
      case Op::character:
      case Op::begin:
      case Op::end: break;
      default: ok = false;
    }
    // Every instruction but a jump and the last word of a match goes on with the next.
    if (!ok || (i + 1 == count && one.op != Op::match && one.op != Op::jump)) broken();
    program_.push_back(one);
  }
}

size_t Pattern::run(size_t instruction, std::string_view text, size_t start, WorkBudget* budget, int depth) const {
  if (depth > kMaxDepth) damaged("tokenizer.bin: lookaheads nested too deeply");
  std::vector<Choice> choices;
  size_t at = start;
  const size_t most = text.size() + program_.size() + 64;
  const auto read = [&](uint32_t* code) { return decode_utf8(text, at, code); };
  while (true) {
    budget->spend(WorkBudget::kStep);
    const Instruction& now = program_[instruction];
    bool ok = true;
    uint32_t code = 0;
    switch (now.op) {
      case Op::match: return at;
      case Op::set: {
        const size_t bytes = read(&code);
        ok = bytes != 0 && in_set(now.a, code);
        at += ok ? bytes : 0;
        break;
      }
      case Op::character: {
        const size_t bytes = read(&code);
        ok = bytes != 0 && code == now.a;
        at += ok ? bytes : 0;
        break;
      }
      case Op::split:
        if (choices.size() >= most) throw Failure(MSDC_UNSUPPORTED, "the tokenizer's pattern backtracks too much");
        choices.push_back({now.b, at, at});
        instruction = now.a;
        continue;
      case Op::jump: instruction = now.a; continue;
      case Op::repeat: {
        // b: least | possessive << 31; c: most. A single pass, then one choice for all shorter ends.
        const uint32_t least = now.b & 0x7FFFFFFFu;
        uint32_t count = 0;
        size_t floor = at;
        while (count < now.c || now.c == kNoLimit) {
          const size_t bytes = read(&code);
          if (bytes == 0 || !in_set(now.a, code)) break;
          budget->spend(WorkBudget::kStep);
          at += bytes;
          ++count;
          if (count == least) floor = at;
        }
        ok = count >= least;
        if (ok && at > floor && now.b >> 31 != kPossessive) {
          if (choices.size() >= most) throw Failure(MSDC_UNSUPPORTED, "the tokenizer's pattern backtracks too much");
          choices.push_back({instruction + 1, at, floor});
          choices.back().at = at - step_back(text, at);
        }
        break;
      }
      case Op::look: {
        const bool found = run(instruction + 1, text, at, budget, depth + 1) != kNone;
        ok = found != (now.b == kNegative);
        if (ok) {
          instruction = now.a;
          continue;
        }
        break;
      }
      case Op::begin: ok = at == 0; break;
      case Op::end: ok = at == text.size(); break;
    }
    if (ok) {
      // The constructor saw that a last instruction is a match or a jump.
      ++instruction;
      continue;
    }
    if (choices.empty()) return kNone;
    Choice& back = choices.back();
    instruction = back.instruction;
    at = back.at;
    if (back.at > back.least) {
      back.at -= step_back(text, back.at);
    } else {
      choices.pop_back();
    }
  }
}

size_t Pattern::match(std::string_view text, size_t start, WorkBudget* budget) const {
  return run(0, text, start, budget, 0);
}

bool Pattern::search(std::string_view text, size_t from, size_t* start, size_t* end, WorkBudget* budget) const {
  for (size_t at = from; at < text.size();) {
    const size_t stop = match(text, at, budget);
    if (stop != kNone && stop > at) {
      *start = at;
      *end = stop;
      return true;
    }
    uint32_t code;
    at += decode_utf8(text, at, &code);
  }
  return false;
}

}  // namespace msdc
