#include "segment.h"

#include <algorithm>
#include <map>
#include <queue>
#include <utility>

#include "utf8.h"

namespace msdc {

namespace {

constexpr float kUnknownPenalty = 10.0f;

struct Span {
  size_t start;
  size_t bytes;
  int32_t id;
};

// Neighbouring unknowns are one unknown; with byte fallback each is its bytes.
std::vector<int32_t> ids_of(const PieceModel& model, std::string_view text, const std::vector<Span>& spans) {
  std::vector<int32_t> out;
  out.reserve(spans.size());
  bool after_unknown = false;
  for (const Span& span : spans) {
    const bool unknown = span.id == model.unk_id();
    if (unknown && model.byte_fallback()) {
      for (const char c : text.substr(span.start, span.bytes)) {
        out.push_back(model.byte_id(static_cast<unsigned char>(c)));
      }
    } else if (!unknown || !after_unknown) {
      out.push_back(span.id);
    }
    after_unknown = unknown;
  }
  return out;
}

}  // namespace

std::vector<int32_t> segment_unigram(const PieceModel& model, std::string_view text, WorkBudget* budget) {
  if (text.empty()) return {};
  struct Node {
    int32_t id = -1;
    float score = 0.0f;
    int64_t start = -1;
  };
  const size_t size = text.size();
  const float unknown_score = model.min_score() - kUnknownPenalty;
  std::vector<Node> best(size + 1);
  // Every path passes the beginnings of words, and a longer path never scores more: a place that is behind the best path
  // to the next word so far is on no better one.
  const bool words = model.word_by_word();
  size_t word_end = 0;
  for (size_t start = 0, first = 0; start < size; start += first) {
    first = std::min(announced_bytes(text[start]), size - start);
    if (words && start >= word_end) {
      word_end = std::min(text.find(kSpace, start + first), size);
    } else if (words) {
      const bool behind = best[word_end].start >= 0 && best[start].score <= best[word_end].score;
      if (behind || best[start].start < 0) continue;
    }
    const float so_far = best[start].score;
    bool has_single = false;
    uint32_t hash = PieceModel::kHashSeed;
    size_t end = start, most = model.longest_bytes();
    // Pieces are whole characters, so only their ends are looked up.
    for (int characters = 0; end < size && end - start < most; ++characters) {
      const size_t stop = end + std::min(announced_bytes(text[end]), size - end);
      while (end < stop) hash = PieceModel::hash_add(hash, text[end++]);
      const size_t length = end - start;
      if (characters < PieceModel::kPrefixCharacters) {
        budget->spend(1);
        const uint8_t known = model.prefix(hash);
        if (known == 0) break;
        const uint8_t longest = known & PieceModel::kNoLimit;
        if (longest != PieceModel::kNoLimit) most = std::min<size_t>(most, longest);
        if ((known & PieceModel::kEnds) == 0) continue;
      } else if ((model.prefix(hash) & PieceModel::kEnds) == 0) {
        budget->spend(1);
        continue;
      }
      Piece piece;
      const int32_t id = model.find(text.substr(start, length), hash, &piece, budget);
      if (id < 0 || piece.type == PieceType::unused) continue;
      Node& node = best[end];
      // In float, as SentencePiece adds: rounding decides which of two equal paths wins.
      const float own = piece.type == PieceType::user_defined
                            ? static_cast<float>(static_cast<float>(length) * model.max_score() - 0.1)
                            : piece.score;
      const float score = own + so_far;
      if (node.start < 0 || score > node.score) node = {id, score, static_cast<int64_t>(start)};
      has_single = has_single || length == first;
    }
    if (!has_single) {
      Node& node = best[start + first];
      const float score = unknown_score + so_far;
      if (node.start < 0 || score > node.score) node = {model.unk_id(), score, static_cast<int64_t>(start)};
    }
  }
  std::vector<Span> spans;
  for (size_t end = size; end > 0; end = static_cast<size_t>(best[end].start)) {
    const size_t from = static_cast<size_t>(best[end].start);
    spans.push_back({from, end - from, best[end].id});
  }
  std::reverse(spans.begin(), spans.end());
  return ids_of(model, text, spans);
}

std::vector<int32_t> segment_bpe(const PieceModel& model, std::string_view text, WorkBudget* budget) {
  struct Symbol {
    size_t start;
    size_t bytes;  // 0 once merged into the left neighbour
    int64_t before;
    int64_t after;
    bool frozen;  // a user-defined piece never merges
  };
  struct Merge {
    float score;
    int64_t left;
    int64_t right;
    size_t bytes;
  };
  const auto later = [](const Merge& a, const Merge& b) {
    return a.score < b.score || (a.score == b.score && a.left > b.left);
  };
  std::priority_queue<Merge, std::vector<Merge>, decltype(later)> queue(later);
  std::vector<Symbol> symbols;
  // Unused pieces may arise on the way to longer ones; the text of one that is left over falls apart again.
  std::map<std::string_view, size_t> split_of_unused;

  for (size_t at = 0; at < text.size();) {
    const size_t frozen = model.user_defined_prefix(text.substr(at), budget);
    const size_t bytes = frozen != 0 ? frozen : std::min(announced_bytes(text[at]), text.size() - at);
    const int64_t index = static_cast<int64_t>(symbols.size());
    symbols.push_back({at, bytes, index - 1, index + 1, frozen != 0});
    at += bytes;
  }
  if (symbols.empty()) return {};
  symbols.back().after = -1;

  const auto symbol = [&symbols](int64_t index) -> Symbol& { return symbols[static_cast<size_t>(index)]; };
  const auto offer = [&](int64_t left, int64_t right) {
    if (left < 0 || right < 0 || symbol(left).frozen || symbol(right).frozen) return;
    const size_t bytes = symbol(left).bytes + symbol(right).bytes;
    const std::string_view joined = text.substr(symbol(left).start, bytes);
    if (bytes > model.longest_bytes()) return;
    Piece piece;
    if (model.find(joined, &piece, budget) < 0) return;
    queue.push({piece.score, left, right, bytes});
    budget->spend_bytes(bytes);
    if (piece.type == PieceType::unused) split_of_unused[joined] = symbol(left).bytes;
  };
  for (size_t i = 1; i < symbols.size(); ++i) offer(static_cast<int64_t>(i) - 1, static_cast<int64_t>(i));
  while (!queue.empty()) {
    const Merge top = queue.top();
    queue.pop();
    Symbol& left = symbol(top.left);
    Symbol& right = symbol(top.right);
    // One of the two has changed since this merge was offered.
    if (left.bytes == 0 || right.bytes == 0 || left.bytes + right.bytes != top.bytes) continue;
    left.bytes = top.bytes;
    left.after = right.after;
    if (right.after >= 0) symbol(right.after).before = top.left;
    right.bytes = 0;
    offer(left.before, top.left);
    offer(top.left, left.after);
  }

  std::vector<Span> spans;
  std::vector<std::pair<size_t, size_t>> pending;
  for (int64_t index = 0; index >= 0; index = symbol(index).after) {
    pending.assign(1, {symbol(index).start, symbol(index).bytes});
    while (!pending.empty()) {
      const auto [start, bytes] = pending.back();
      pending.pop_back();
      const std::string_view part = text.substr(start, bytes);
      Piece piece;
      const int32_t id = model.find(part, &piece, budget);
      const auto split = id >= 0 && piece.type == PieceType::unused ? split_of_unused.find(part) : split_of_unused.end();
      if (split == split_of_unused.end()) {
        spans.push_back({start, bytes, id < 0 ? model.unk_id() : id});
      } else {
        pending.emplace_back(start + split->second, bytes - split->second);
        pending.emplace_back(start, split->second);
      }
    }
  }
  return ids_of(model, text, spans);
}

}  // namespace msdc
