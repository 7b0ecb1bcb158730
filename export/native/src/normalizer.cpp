#include "normalizer.h"

#include <cstring>

#include "failure.h"
#include "utf8.h"

namespace msdc {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";   // U+FFFD
// SentencePiece keeps at most this many matching rules for one position.
constexpr int kMaxMatches = 32;

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

uint32_t little_endian(const char* bytes) {
  const auto at = [bytes](int i) { return static_cast<uint32_t>(static_cast<unsigned char>(bytes[i])); };
  return at(0) | at(1) << 8 | at(2) << 16 | at(3) << 24;
}

}  // namespace

Normalizer::Normalizer(const PieceModel& model, const std::string& where) : model_(model) {
  const std::string_view map = model.normalizer().charsmap;
  if (map.empty()) return;
  if (map.size() <= 4) damaged(where + ": its character map is broken");
  const uint32_t trie_bytes = little_endian(map.data());
  if (trie_bytes >= map.size() - 4 || trie_bytes < 1024 || trie_bytes % 1024 != 0 || map.back() != '\0') {
    damaged(where + ": its character map is broken");
  }
  trie_ = map.substr(4, trie_bytes);
  replacements_ = map.substr(4 + trie_bytes);
}

uint32_t Normalizer::unit(size_t index) const {
  // A damaged trie may point anywhere; outside it there is only the empty unit.
  return index < trie_.size() / 4 ? little_endian(trie_.data() + 4 * index) : 0;
}

Normalizer::Step Normalizer::step(std::string_view text, WorkBudget* budget) const {
  if (const size_t bytes = model_.user_defined_prefix(text, budget)) return {text.substr(0, bytes), bytes};
  size_t longest = 0;
  size_t value = 0;
  if (!trie_.empty()) {
    // Darts-clone: bits 0-7 label, 8 has a leaf, 9 a wide offset, 10-30 offset, 31 set in a leaf, whose value is the rest.
    const auto offset = [](uint32_t u) { return static_cast<size_t>(u >> 10) << ((u & 1u << 9) >> 6); };
    uint32_t here = unit(0);
    size_t node = offset(here);
    int matches = 0;
    for (size_t i = 0; i < text.size() && matches < kMaxMatches; ++i) {
      budget->spend(1);
      const unsigned char byte = static_cast<unsigned char>(text[i]);
      node ^= byte;
      here = unit(node);
      if ((here & (1u << 31 | 0xFF)) != byte) break;
      node ^= offset(here);
      if (here >> 8 & 1) {
        longest = i + 1;
        value = unit(node) & ((1u << 31) - 1);
        ++matches;
      }
    }
  }
  if (longest != 0 && value < replacements_.size()) {
    const char* out = replacements_.data() + value;
    const std::string_view replacement(out, std::strlen(out));
    budget->spend(replacement.size());
    return {replacement, longest};
  }
  const size_t bytes = valid_bytes(text);
  if (bytes == 0) return {kReplacement, 1};
  return {text.substr(0, bytes), bytes};
}

std::string Normalizer::normalize(std::string_view text, WorkBudget* budget) const {
  const NormalizerSpec& spec = model_.normalizer();
  const bool squeeze = spec.remove_extra_whitespaces;
  std::string out;
  if (squeeze) {
    while (!text.empty()) {
      const Step first = step(text, budget);
      if (first.out != " ") break;
      text.remove_prefix(first.consumed);
    }
  }
  if (text.empty()) return out;
  const std::string_view space = spec.escape_whitespaces ? kSpace : std::string_view(" ");
  out.reserve(text.size() + text.size() / 2);
  const bool as_suffix = model_.whitespace_as_suffix();
  if (!as_suffix && spec.add_dummy_prefix) out += space;
  bool after_space = squeeze;
  while (!text.empty()) {
    const Step now = step(text, budget);
    std::string_view piece = now.out;
    while (after_space && !piece.empty() && piece.front() == ' ') piece.remove_prefix(1);
    if (!piece.empty()) {
      for (const char c : piece) {
        if (c == ' ') {
          out += space;
        } else {
          out.push_back(c);
        }
      }
      after_space = piece.back() == ' ';
      budget->fits(out.size());
    }
    text.remove_prefix(now.consumed);
    if (!squeeze) after_space = false;
  }
  if (squeeze) {
    while (ends_with(out, space)) out.resize(out.size() - space.size());
  }
  if (as_suffix && spec.add_dummy_prefix) out += space;
  return out;
}

}  // namespace msdc
