#include "text_rules.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "failure.h"
#include "utf8.h"

namespace msdc {

namespace {

constexpr uint32_t kNoTable = 0xFFFFFFFFu;
constexpr size_t kMaxNormalizedBytes = 512u * 1024 * 1024;
constexpr uint32_t kMaxRules = 256;
constexpr uint64_t kPassWork = 8;  // units per byte of one rule
constexpr size_t kClusterBytes = 6;  // clusters from here on are mapped character by character
constexpr uint32_t kStripLeft = 1, kStripRight = 2;

// Hangul syllables are composed by arithmetic (Unicode 3.12).
constexpr uint32_t kSyllables = 0xAC00, kSyllableCount = 11172, kLead = 0x1100, kLeads = 19, kVowel = 0x1161;
constexpr uint32_t kVowels = 21, kTail = 0x11A7, kTails = 28;

[[noreturn]] void broken() { damaged("tokenizer.bin: a broken normalizer"); }

bool compose_hangul(uint32_t left, uint32_t right, uint32_t* out) {
  if (left - kLead < kLeads && right - kVowel < kVowels) {
    *out = kSyllables + ((left - kLead) * kVowels + right - kVowel) * kTails;
    return true;
  }
  if (left - kSyllables < kSyllableCount && (left - kSyllables) % kTails == 0 && right - kTail - 1 < kTails - 1) {
    *out = left + right - kTail;
    return true;
  }
  return false;
}

struct Mark {
  uint32_t code;
  uint32_t rank;  // canonical combining class
};

}  // namespace

ClusterMap::ClusterMap(std::string_view charsmap) {
  const Words head(charsmap);
  const uint32_t bytes = head.at(0);
  if (bytes % 4 != 0 || bytes >= charsmap.size() - 4) damaged("tokenizer.bin: its character map is broken");
  trie_ = Words(charsmap.substr(4, bytes));
  replacements_ = charsmap.substr(4 + bytes);
}

uint32_t ClusterMap::unit(size_t index) const { return index < trie_.size() ? trie_.at(index) : 0; }

bool ClusterMap::find(std::string_view part, std::string_view* out) const {
  const auto offset = [](uint32_t u) { return static_cast<size_t>(u >> 10) << ((u & 1u << 9) >> 6); };
  uint32_t here = unit(0);
  size_t node = offset(here);
  for (const char c : part) {
    const unsigned char byte = static_cast<unsigned char>(c);
    if (byte == 0) return false;
    node ^= byte;
    here = unit(node);
    if ((here & (1u << 31 | 0xFF)) != byte) return false;
    node ^= offset(here);
    if (here >> 8 & 1) {
      const size_t value = unit(node) & ((1u << 31) - 1);
      if (value >= replacements_.size()) return false;
      const std::string_view rest = replacements_.substr(value);
      *out = rest.substr(0, std::min(rest.find('\0'), rest.size()));
      return true;
    }
  }
  return false;
}

TextRules::TextRules(WordReader* words, const CompiledFile& file, const TextTables& tables) : tables_(tables) {
  const uint32_t count = words->count();
  if (count > kMaxRules) broken();
  const auto map = [&] {
    const uint32_t index = words->next();
    if (index >= tables.maps.size()) broken();
    return index;
  };
  const auto set = [&] {
    const uint32_t index = words->next();
    if (index >= tables.sets.size()) broken();
    return index;
  };
  for (uint32_t i = 0; i < count; ++i) {
    Rule rule;
    rule.op = static_cast<Op>(words->next());
    switch (rule.op) {
      case Op::map: rule.a = map(); break;
      case Op::form: {  // a: decomposition, b: combining classes, c: 1 to compose
        rule.a = map();
        rule.b = map();
        const uint32_t pairs = words->next();
        rule.c = pairs != kNoTable;
        if (rule.c != 0) rule.pairs = PairTable(file.table(pairs));
        break;
      }
      case Op::literal:
        rule.from = file.short_text(words->next());
        rule.to = file.short_text(words->next());
        if (rule.from.empty()) broken();
        break;
      case Op::pattern:
        rule.a = words->next();
        if (rule.a >= tables.patterns.size()) broken();
        rule.to = file.short_text(words->next());
        break;
      case Op::prepend: rule.to = file.short_text(words->next()); break;
      case Op::strip:  // a: white space, b: sides
        rule.a = set();
        rule.b = words->next();
        break;
      case Op::clusters:  // a: joins the character before, b: joins the one after, c: breaks on both sides, d: pictures
        rule.clusters = ClusterMap(file.table(words->next()));
        rule.a = set();
        rule.b = set();
        rule.c = set();
        rule.d = set();
        break;
      default: broken();
    }
    rules_.push_back(std::move(rule));
  }
}

uint32_t TextRules::combining_class(const Rule& rule, uint32_t code) const {
  CharacterMap::Entry entry;
  if (code < 0x300 || !tables_.maps[rule.b].find(code, &entry)) return 0;
  return entry.value;
}

std::string TextRules::form(const Rule& rule, std::string_view text, WorkBudget* budget) const {
  std::string decomposed;
  decomposed.reserve(text.size() + text.size() / 2);
  const CharacterMap& map = tables_.maps[rule.a];
  uint32_t code;
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = decode_utf8(text, at, &code);
    if (code - kSyllables < kSyllableCount) {
      const uint32_t index = code - kSyllables;
      append_utf8(kLead + index / (kVowels * kTails), &decomposed);
      append_utf8(kVowel + index % (kVowels * kTails) / kTails, &decomposed);
      if (index % kTails != 0) append_utf8(kTail + index % kTails, &decomposed);
    } else {
      map.apply(code, text.substr(at, bytes), &decomposed);
      budget->fits(decomposed.size());
    }
    at += bytes;
  }
  std::string out;
  out.reserve(decomposed.size());
  std::vector<Mark> run;  // a starter and the marks after it, or marks without a starter
  // Order the marks and compose them with the starter; once per run, because a second pass could compose more.
  const auto settle = [&] {
    const bool starter = !run.empty() && run.front().rank == 0;
    std::stable_sort(run.begin() + (starter ? 1 : 0), run.end(),
                     [](const Mark& a, const Mark& b) { return a.rank < b.rank; });
    if (rule.c == 0 || !starter) return;
    size_t kept = 1;
    for (size_t i = 1; i < run.size(); ++i) {
      // A mark is blocked by one of the same or a higher class that stays before it.
      PairTable::Value value;
      if ((kept == 1 || run[kept - 1].rank < run[i].rank) && rule.pairs.find(run[0].code, run[i].code, &value, budget)) {
        run[0].code = value.result;
      } else {
        run[kept++] = run[i];
      }
    }
    run.resize(kept);
  };
  const auto emit = [&] {
    for (const Mark& mark : run) append_utf8(mark.code <= 0x10FFFF ? mark.code : 0xFFFD, &out);
    run.clear();
  };
  for (size_t at = 0; at < decomposed.size();) {
    at += decode_utf8(decomposed, at, &code);
    const uint32_t rank = combining_class(rule, code);
    if (rank == 0 && !run.empty()) {
      settle();
      // Two starters without marks between them may compose too: Hangul, some vowel signs.
      PairTable::Value value;
      if (rule.c != 0 && run.size() == 1 && run[0].rank == 0 &&
          (compose_hangul(run[0].code, code, &value.result) || rule.pairs.find(run[0].code, code, &value, budget))) {
        run[0].code = value.result;
        continue;
      }
      emit();
    }
    run.push_back({code, rank});
  }
  settle();
  emit();
  return out;
}

std::string TextRules::clusters(const Rule& rule, std::string_view text, WorkBudget* budget) const {
  const CharacterSet& joins_before = tables_.sets[rule.a];
  const CharacterSet& joins_after = tables_.sets[rule.b];
  const CharacterSet& breaks = tables_.sets[rule.c];
  const CharacterSet& pictures = tables_.sets[rule.d];
  constexpr uint32_t kJoiner = 0x200D;
  std::string out;
  out.reserve(text.size() + text.size() / 4);
  const auto map_one = [&](std::string_view part) {
    std::string_view changed;
    if (!rule.clusters.find(part, &changed)) return false;
    out.append(changed);
    budget->fits(out.size());
    return true;
  };
  for (size_t start = 0; start < text.size();) {
    uint32_t before;
    size_t end = start + decode_utf8(text, start, &before);
    // Only what decides about clusters under six bytes: flags and syllable blocks are longer.
    bool picture = pictures.has(before);
    while (end < text.size()) {
      uint32_t code;
      const size_t bytes = decode_utf8(text, end, &code);
      const bool line_end = before == '\r' && code == '\n';
      const bool joined = !breaks.has(before) && !breaks.has(code) &&
                          (joins_before.has(code) || joins_after.has(before) ||
                           (picture && before == kJoiner && pictures.has(code)));
      if (!line_end && !joined) break;
      picture = pictures.has(code) || (picture && joins_before.has(code));
      before = code;
      end += bytes;
    }
    const std::string_view cluster = text.substr(start, end - start);
    if (cluster.size() >= kClusterBytes || !map_one(cluster)) {
      for (size_t at = 0; at < cluster.size();) {
        uint32_t code;
        const size_t bytes = decode_utf8(cluster, at, &code);
        const std::string_view part = cluster.substr(at, bytes);
        if (!map_one(part)) out.append(part);
        at += bytes;
      }
    }
    start = end;
  }
  return out;
}

std::string TextRules::apply(std::string text, WorkBudget* budget) const {
  std::string out;
  for (const Rule& rule : rules_) {
    out.clear();
    budget->spend(kPassWork * (text.size() + 1));
    switch (rule.op) {
      case Op::map: {
        const CharacterMap& map = tables_.maps[rule.a];
        for (size_t at = 0; at < text.size();) {
          uint32_t code;
          const size_t bytes = decode_utf8(text, at, &code);
          map.apply(code, std::string_view(text).substr(at, bytes), &out);
          budget->fits(out.size());
          at += bytes;
        }
        break;
      }
      case Op::form: out = form(rule, text, budget); break;
      case Op::literal:
        budget->spend(text.size() * (rule.from.size() / 32));
        for (size_t at = 0;;) {
          const size_t found = text.find(rule.from, at);
          out.append(text, at, found == std::string::npos ? found : found - at);
          if (found == std::string::npos) break;
          out.append(rule.to);
          budget->fits(out.size());
          at = found + rule.from.size();
        }
        break;
      case Op::pattern: {
        size_t at = 0, start, end;
        const Pattern& pattern = tables_.patterns[rule.a];
        while (at < text.size() && pattern.search(text, at, &start, &end, budget)) {
          out.append(text, at, start - at).append(rule.to);
          budget->fits(out.size());
          at = end;
        }
        out.append(text, at);
        break;
      }
      case Op::prepend:
        if (!text.empty()) out.append(rule.to);
        out.append(text);
        break;
      case Op::strip: {
        const CharacterSet& space = tables_.sets[rule.a];
        size_t from = 0, to = text.size();
        uint32_t code;
        while ((rule.b & kStripLeft) != 0 && from < to) {
          const size_t bytes = decode_utf8(text, from, &code);
          if (!space.has(code)) break;
          from += bytes;
        }
        while ((rule.b & kStripRight) != 0 && to > from) {
          const size_t bytes = step_back(text, to);
          decode_utf8(std::string_view(text).substr(0, to), to - bytes, &code);
          if (!space.has(code)) break;
          to -= bytes;
        }
        out.assign(text, from, to > from ? to - from : 0);
        break;
      }
      case Op::clusters: out = clusters(rule, text, budget); break;
    }
    text.swap(out);
    // A rule may lengthen a text; a hostile chain of rules must not do so without end.
    if (text.size() > kMaxNormalizedBytes) throw Failure(MSDC_BAD_ARGUMENT, "a text too long after normalization");
  }
  return text;
}

}  // namespace msdc
