#include "token_models.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <queue>
#include <string>

#include "failure.h"
#include "utf8.h"

namespace msdc {

namespace {

constexpr uint32_t kNone = 0xFFFFFFFFu;

enum class Kind : uint32_t { word_piece = 1, bpe = 2, unigram = 3 };

[[noreturn]] void broken() { damaged("tokenizer.bin: a broken model"); }

int32_t id_or_none(WordReader* words, const TextTable& vocabulary) {
  const uint32_t id = words->next();
  if (id != kNone && id >= vocabulary.size()) broken();
  return id == kNone ? -1 : static_cast<int32_t>(id);
}

// Ids of "<0x00>" to "<0xFF>", all -1 where the vocabulary lacks one or bytes are not used.
std::array<int32_t, 256> byte_ids(const TextTable& vocabulary, bool used) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::array<int32_t, 256> out;
  out.fill(-1);
  WorkBudget budget(1024);  // more than 256 lookups can take
  for (size_t byte = 0; used && byte < out.size(); ++byte) {
    const char name[] = {'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'};
    out[byte] = vocabulary.find({name, sizeof name}, &budget);
  }
  return out;
}

// Append the ids of the bytes of `part`; false, and nothing, where one has none.
bool append_bytes(const std::array<int32_t, 256>& ids, std::string_view part, std::vector<int32_t>* out) {
  const auto known = [&](char c) { return ids[static_cast<unsigned char>(c)] >= 0; };
  if (!std::all_of(part.begin(), part.end(), known)) return false;
  for (const char c : part) out->push_back(ids[static_cast<unsigned char>(c)]);
  return true;
}

class WordPiece : public TokenModel {
 public:
  WordPiece(WordReader* words, const CompiledFile& file, const TextTable& vocabulary)
      : vocabulary_(vocabulary),
        unknown_(id_or_none(words, vocabulary)),
        max_characters_(words->next()),
        prefix_(file.short_text(words->next())),
        prefix_hash_(TextTable::add(TextTable::kSeed, prefix_)) {
    if (unknown_ < 0 || max_characters_ > 10000) broken();
  }

  void segment(std::string_view piece, std::vector<int32_t>* ids, WorkBudget* budget) const override {
    size_t characters = 0;
    for (const char c : piece) characters += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    const size_t before = ids->size();
    if (characters > max_characters_) {
      ids->push_back(unknown_);
      return;
    }
    for (size_t start = 0; start < piece.size();) {
      const std::string_view head = start == 0 ? std::string_view() : prefix_;
      uint32_t hash = start == 0 ? TextTable::kSeed : prefix_hash_;
      int32_t best = -1;
      size_t best_end = start;
      for (size_t end = start; end < piece.size() && end - start + head.size() < vocabulary_.longest_bytes();) {
        const size_t stop = std::min(end + announced_bytes(piece[end]), piece.size());
        while (end < stop) hash = TextTable::add(hash, piece[end++]);
        const int32_t id = vocabulary_.find(head, piece.substr(start, end - start), hash, budget);
        if (id >= 0) {
          best = id;
          best_end = end;
        }
      }
      if (best < 0) {
        // One part that is not known makes the whole word unknown.
        ids->resize(before);
        ids->push_back(unknown_);
        return;
      }
      ids->push_back(best);
      start = best_end;
    }
  }

 private:
  const TextTable& vocabulary_;
  int32_t unknown_;
  uint32_t max_characters_;
  std::string_view prefix_;
  uint32_t prefix_hash_;
};

class Bpe : public TokenModel {
 public:
  Bpe(WordReader* words, const CompiledFile& file, const TextTable& vocabulary)
      : vocabulary_(vocabulary), merges_(file.table(words->next())), unknown_(id_or_none(words, vocabulary)) {
    const uint32_t flags = words->next();
    fuse_unknown_ = (flags & 1) != 0;
    whole_words_ = (flags & 2) != 0;
    bytes_ = byte_ids(vocabulary, (flags & 4) != 0);
    prefix_ = file.short_text(words->next());
    suffix_ = file.short_text(words->next());
  }

  void segment(std::string_view piece, std::vector<int32_t>* ids, WorkBudget* budget) const override {
    if (piece.empty()) return;
    if (whole_words_) {
      const int32_t whole = vocabulary_.find(piece, budget);
      if (whole >= 0) {
        ids->push_back(whole);
        return;
      }
    }
    std::vector<int32_t> start = characters(piece, budget);
    if (start.empty()) return;
    merge(&start, budget);
    ids->insert(ids->end(), start.begin(), start.end());
  }

 private:
  // Ids of the single characters, with the prefix of all but the first and the suffix of the last.
  std::vector<int32_t> characters(std::string_view piece, WorkBudget* budget) const {
    std::vector<int32_t> out;
    out.reserve(piece.size());
    bool pending = false;  // an unknown that the next one may join
    std::string held;
    for (size_t at = 0; at < piece.size();) {
      const size_t end = std::min(at + announced_bytes(piece[at]), piece.size());
      std::string_view part = piece.substr(at, end - at);
      if ((at != 0 && !prefix_.empty()) || (end == piece.size() && !suffix_.empty())) {
        held.assign(at != 0 ? prefix_ : std::string_view()).append(part);
        if (end == piece.size()) held.append(suffix_);
        part = held;
      }
      at = end;
      const int32_t id = vocabulary_.find(part, budget);
      if (id >= 0) {
        if (pending) out.push_back(unknown_);
        pending = false;
        out.push_back(id);
      } else if (!append_bytes(bytes_, part, &out) && unknown_ >= 0) {
        if (pending && !fuse_unknown_) out.push_back(unknown_);
        pending = true;
      }
    }
    if (pending) out.push_back(unknown_);
    return out;
  }

  // The merge of lowest rank first, the left one at a tie, through a queue: n log n.
  void merge(std::vector<int32_t>* ids, WorkBudget* budget) const {
    struct Symbol {
      int32_t id;
      int32_t before;
      int32_t after;
      bool gone;
    };
    struct Merge {
      uint32_t rank;
      int32_t left;
      uint32_t result;
    };
    const auto later = [](const Merge& a, const Merge& b) {
      return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
    };
    const int32_t count = static_cast<int32_t>(ids->size());
    std::vector<Symbol> symbols;
    symbols.reserve(ids->size());
    for (int32_t i = 0; i < count; ++i) symbols.push_back({(*ids)[static_cast<size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1, false});
    const auto symbol = [&](int32_t index) -> Symbol& { return symbols[static_cast<size_t>(index)]; };
    const auto pair = [&](int32_t left, PairTable::Value* value) {
      const int32_t right = symbol(left).after;
      return right >= 0 && merges_.find(static_cast<uint32_t>(symbol(left).id), static_cast<uint32_t>(symbol(right).id), value,
                                         budget);
    };
    std::vector<Merge> first;
    PairTable::Value value;
    for (int32_t i = 0; i + 1 < count; ++i) {
      if (pair(i, &value)) first.push_back({value.rank, i, value.result});
    }
    std::priority_queue<Merge, std::vector<Merge>, decltype(later)> queue(later, std::move(first));
    while (!queue.empty()) {
      const Merge top = queue.top();
      queue.pop();
      Symbol& left = symbol(top.left);
      // The pair may have changed since this merge was offered.
      if (left.gone || !pair(top.left, &value) || value.result != top.result) continue;
      Symbol& right = symbol(left.after);
      left.id = static_cast<int32_t>(top.result);
      left.after = right.after;
      right.gone = true;
      if (left.after >= 0) symbol(left.after).before = top.left;
      if (left.before >= 0 && pair(left.before, &value)) queue.push({value.rank, left.before, value.result});
      if (pair(top.left, &value)) queue.push({value.rank, top.left, value.result});
    }
    size_t kept = 0;
    for (const Symbol& one : symbols) {
      if (!one.gone) (*ids)[kept++] = one.id;
    }
    ids->resize(kept);
  }

  const TextTable& vocabulary_;
  PairTable merges_;
  int32_t unknown_;
  bool fuse_unknown_ = false;
  bool whole_words_ = false;
  std::array<int32_t, 256> bytes_;
  std::string_view prefix_;
  std::string_view suffix_;
};

class Unigram : public TokenModel {
 public:
  Unigram(WordReader* words, const CompiledFile& file, const TextTable& vocabulary)
      : vocabulary_(vocabulary), scores_(file.table(words->next())), unknown_(id_or_none(words, vocabulary)) {
    bytes_ = byte_ids(vocabulary, words->next() != 0);
    const uint64_t low = words->next();
    unknown_score_ = number(low | static_cast<uint64_t>(words->next()) << 32);
    if (scores_.size() / 2 < vocabulary.size()) broken();
  }

  void segment(std::string_view piece, std::vector<int32_t>* ids, WorkBudget* budget) const override {
    struct Node {
      double score = 0;
      int32_t id = -1;
      uint32_t length = 0;
    };
    const size_t size = piece.size();
    std::vector<Node> best(size + 1);
    for (size_t start = 0; start < size;) {
      const double so_far = best[start].score;
      const size_t first = std::min(announced_bytes(piece[start]), size - start);
      const size_t limit = std::min(size, start + vocabulary_.longest_bytes());
      bool has_single = false;
      uint32_t hash = TextTable::kSeed;
      for (size_t end = start; end < limit;) {
        const size_t stop = std::min(end + announced_bytes(piece[end]), size);
        while (end < stop) hash = TextTable::add(hash, piece[end++]);
        const int32_t id = vocabulary_.find({}, piece.substr(start, end - start), hash, budget);
        if (id < 0) continue;
        const double score = score_of(id) + so_far;
        Node& node = best[end];
        if (node.length == 0 || score > node.score) node = {score, id, static_cast<uint32_t>(end - start)};
        has_single = has_single || end - start == first;
      }
      if (!has_single) {
        if (unknown_ < 0) throw Failure(MSDC_BAD_ARGUMENT, "a character that the tokenizer has no piece for");
        Node& node = best[start + first];
        const double score = unknown_score_ + so_far;
        if (node.length == 0 || score > node.score) node = {score, unknown_, static_cast<uint32_t>(first)};
      }
      start += first;
    }
    std::vector<std::pair<size_t, size_t>> spans;  // adjacent unknowns are one
    bool after_unknown = false;
    for (size_t end = size; end > 0;) {
      const Node& node = best[end];
      if (node.length == 0) broken();
      const size_t start = end - node.length;
      const bool unknown = node.id == unknown_;
      if (unknown && after_unknown) {
        spans.back().first = start;
      } else {
        spans.emplace_back(start, end);
      }
      after_unknown = unknown;
      end = start;
    }
    for (size_t i = spans.size(); i-- > 0;) {
      const std::string_view part = piece.substr(spans[i].first, spans[i].second - spans[i].first);
      const int32_t id = part.size() <= vocabulary_.longest_bytes() ? vocabulary_.find(part, budget) : -1;
      if (id >= 0) {
        ids->push_back(id);
      } else if (!append_bytes(bytes_, part, ids)) {
        ids->push_back(unknown_);
      }
    }
  }

 private:
  static double number(uint64_t bits) {
    double out;
    std::memcpy(&out, &bits, sizeof out);
    return out;
  }
  double score_of(int32_t id) const {
    const size_t at = 2 * static_cast<size_t>(id);
    return number(scores_.at(at) | static_cast<uint64_t>(scores_.at(at + 1)) << 32);
  }

  const TextTable& vocabulary_;
  Words scores_;
  int32_t unknown_;
  std::array<int32_t, 256> bytes_;
  double unknown_score_ = 0;
};

}  // namespace

std::unique_ptr<TokenModel> TokenModel::read(WordReader* words, const CompiledFile& file, const TextTable& vocabulary) {
  switch (static_cast<Kind>(words->next())) {
    case Kind::word_piece: return std::make_unique<WordPiece>(words, file, vocabulary);
    case Kind::bpe: return std::make_unique<Bpe>(words, file, vocabulary);
    case Kind::unigram: return std::make_unique<Unigram>(words, file, vocabulary);
  }
  broken();
}

}  // namespace msdc
