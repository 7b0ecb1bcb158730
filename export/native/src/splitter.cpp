#include "splitter.h"

#include <algorithm>
#include <array>
#include <utility>

#include "failure.h"
#include "utf8.h"

namespace msdc {

namespace {

constexpr uint32_t kMaxSteps = 256;
constexpr uint64_t kPassWork = 8;  // units per byte of one pass over a text

// The letters that stand for bytes in byte-level vocabularies (GPT-2): printable Latin-1 for itself, the rest from
// U+0100 on, in order.
std::array<uint16_t, 256> byte_letters() {
  std::array<uint16_t, 256> out = {};
  uint16_t next = 256;
  for (uint16_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    out[byte] = printable ? byte : next++;
  }
  return out;
}

}  // namespace

Splitter::Splitter(WordReader* words, const CompiledFile& file, const TextTables& tables) : tables_(tables) {
  const auto broken = [] { damaged("tokenizer.bin: a broken pre-tokenizer"); };
  const uint32_t count = words->count();
  if (count > kMaxSteps) broken();
  for (uint32_t i = 0; i < count; ++i) {
    Step step;
    step.op = static_cast<Op>(words->next());
    switch (step.op) {
      case Op::split: {
        step.pattern = words->next();
        const uint32_t behavior = words->next();
        step.invert = words->next() != 0;
        if (step.pattern >= tables.patterns.size() || behavior > 4) broken();
        step.behavior = static_cast<Behavior>(behavior);
        break;
      }
      case Op::metaspace: {
        step.mark = file.short_text(words->next());
        const uint32_t prepend = words->next();
        step.cut = words->next() != 0;
        if (step.mark.empty() || prepend > 2) broken();
        step.prepend = static_cast<Prepend>(prepend);
        break;
      }
      case Op::prefix_space:
      case Op::byte_letters: break;
      default: broken();
    }
    steps_.push_back(step);
  }
}

void Splitter::cut(const Step& step, std::string_view text, WorkBudget* budget, std::vector<std::string>* out) const {
  struct Part {
    size_t from, to;
    bool hit;
  };
  std::vector<Part> parts;
  const Pattern& pattern = tables_.patterns[step.pattern];
  size_t at = 0, start, end;
  while (at < text.size() && pattern.search(text, at, &start, &end, budget)) {
    if (start > at) parts.push_back({at, start, step.invert});
    parts.push_back({start, end, !step.invert});
    at = end;
  }
  if (at < text.size()) parts.push_back({at, text.size(), step.invert});

  std::vector<Part> joined;
  bool after_hit = false;
  switch (step.behavior) {
    case Behavior::removed:
      for (const Part& part : parts) {
        if (!part.hit) joined.push_back(part);
      }
      break;
    case Behavior::isolated: joined = parts; break;
    case Behavior::contiguous:
      for (const Part& part : parts) {
        if (!joined.empty() && part.hit == after_hit) {
          joined.back().to = part.to;
        } else {
          joined.push_back(part);
        }
        after_hit = part.hit;
      }
      break;
    case Behavior::with_previous:
      for (const Part& part : parts) {
        if (part.hit && !after_hit && !joined.empty()) {
          joined.back().to = part.to;
        } else {
          joined.push_back(part);
        }
        after_hit = part.hit;
      }
      break;
    case Behavior::with_next:
      // A hit opens a piece that the next part, unless it is a hit too, completes.
      for (const Part& part : parts) {
        if (!part.hit && after_hit) {
          joined.back().to = part.to;
        } else {
          joined.push_back(part);
        }
        after_hit = part.hit;
      }
      break;
  }
  for (const Part& part : joined) out->emplace_back(text.substr(part.from, part.to - part.from));
}

void Splitter::metaspace(const Step& step, const std::string& text, bool first, WorkBudget* budget,
                         std::vector<std::string>* out) const {
  std::string marked;
  marked.reserve(text.size() + text.size() / 2 + step.mark.size());
  for (const char c : text) {
    if (c == ' ') {
      marked += step.mark;
      budget->fits(marked.size());
    } else {
      marked.push_back(c);
    }
  }
  const bool wanted = step.prepend == Prepend::always || (step.prepend == Prepend::first && first);
  if (wanted && !marked.empty() && marked.compare(0, step.mark.size(), step.mark) != 0) marked.insert(0, step.mark);
  if (!step.cut) {
    out->push_back(std::move(marked));
    return;
  }
  for (size_t start = 0; start < marked.size();) {
    const size_t end = std::min(marked.find(step.mark, start + 1), marked.size());
    out->push_back(marked.substr(start, end - start));
    start = end;
  }
}

std::vector<std::string> Splitter::split(std::string text, bool first, WorkBudget* budget) const {
  static const std::array<uint16_t, 256> letters = byte_letters();
  std::vector<std::string> pieces;
  pieces.push_back(std::move(text));
  for (const Step& step : steps_) {
    std::vector<std::string> next;
    next.reserve(pieces.size());
    size_t counted = 0, bytes = 0;
    for (std::string& piece : pieces) {
      budget->spend(kPassWork * (piece.size() + 1));
      switch (step.op) {
        case Op::split: cut(step, piece, budget, &next); break;
        case Op::metaspace: metaspace(step, piece, first, budget, &next); break;
        case Op::prefix_space:
          if (!piece.empty() && piece.front() != ' ') piece.insert(0, 1, ' ');
          next.push_back(std::move(piece));
          break;
        case Op::byte_letters: {
          std::string mapped;
          mapped.reserve(piece.size() + piece.size() / 2);
          for (const char c : piece) append_utf8(letters[static_cast<unsigned char>(c)], &mapped);
          next.push_back(std::move(mapped));
          break;
        }
      }
      first = false;
      for (; counted < next.size(); ++counted) bytes += next[counted].size();
      budget->fits(bytes);
    }
    first = true;
    pieces.swap(next);
  }
  return pieces;
}

}  // namespace msdc
