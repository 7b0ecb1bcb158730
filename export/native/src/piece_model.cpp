#include "piece_model.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "failure.h"
#include "protobuf.h"
#include "utf8.h"

namespace msdc {

namespace {

constexpr uint64_t kMaxModelBytes = 128ull * 1024 * 1024;
constexpr uint32_t kIdBits = 20;
constexpr uint32_t kIdMask = (1u << kIdBits) - 1;
constexpr int32_t kOffsetStep = 2;
// SentencePiece itself refuses longer pieces.
constexpr size_t kMaxPieceCharacters = 7999;
// A piece has three fields, a model six; some room for what other writers add.
constexpr int kMaxPieceFields = 16;
constexpr int kMaxOtherFields = 64;
// Random hashes of a million pieces stay under 300 slots and two equal tags; more is a file made to collide.
constexpr size_t kMaxProbe = 1024;
constexpr int kMaxSameTag = 16;
constexpr uint64_t kDecodeWork = 32;  // reading a piece in place, in units of WorkBudget

// FNV's high bits are its good ones only after a multiplication; 64 bits keep slot and tag independent.
uint64_t spread(uint32_t hash) { return (hash + 1ull) * 0x9E3779B97F4A7C15ull; }
uint32_t tag_of(uint32_t hash) { return static_cast<uint32_t>(spread(hash) & 0xFFF) << kIdBits; }

Piece parse_piece(std::string_view part, const std::string& where) {
  Piece out;
  ProtoField field;
  // Text and score, as all writers lay out a normal piece.
  ProtoReader plain(part, where);
  if (plain.next_short(&out.text) && part.size() == out.text.size() + 7 && part[part.size() - 5] == '\x15') {
    plain.next(&field);
    out.score = field.as_float();
    return out;
  }
  out = Piece();
  ProtoReader reader(part, where);
  for (int fields = 0; reader.next(&field); ++fields) {
    if (fields == kMaxPieceFields) damaged(where + ": a piece of more than 16 fields");
    if (field.number == 1 && field.wire == 2) {
      out.text = field.bytes;
    } else if (field.number == 2 && field.wire == 5) {
      out.score = field.as_float();
    } else if (field.number == 3 && field.wire == 0) {
      if (field.value < 1 || field.value > 6) damaged(where + ": a piece of an unknown type");
      out.type = static_cast<PieceType>(field.value);
    }
  }
  return out;
}

size_t characters_of(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

int byte_of_piece(std::string_view text) {
  // "<0x0A>"
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return -1;
  int out = 0;
  for (int i = 3; i < 5; ++i) {
    const char c = text[static_cast<size_t>(i)];
    if (c >= '0' && c <= '9') {
      out = out * 16 + (c - '0');
    } else if (c >= 'A' && c <= 'F') {
      out = out * 16 + (c - 'A' + 10);
    } else {
      return -1;
    }
  }
  return out;
}

}  // namespace

PieceModel::PieceModel(const std::string& path) : file_(path, kMaxModelBytes), path_(path) {
  std::fill(std::begin(byte_ids_), std::end(byte_ids_), -1);
  ProtoReader reader(file_.bytes(), path_);
  ProtoField field;
  int others = 0;
  const auto count = [this](const char* start) {
    if (size_++ % kOffsetStep == 0) offsets_.push_back(static_cast<uint32_t>(start - file_.bytes().data()));
  };
  for (;;) {
    while (reader.next_short(&field.bytes)) count(field.bytes.data() - 2);
    if (!reader.next(&field)) break;
    const bool is_piece = field.number == 1 && field.wire == 2;
    if (!is_piece && ++others > kMaxOtherFields) damaged(path_ + ": not a SentencePiece model (too many unknown fields)");
    if (field.wire != 2) continue;
    if (is_piece) {
      count(field.start);
    } else if (field.number == 2) {
      read_trainer(field.bytes);
    } else if (field.number == 3) {
      read_normalizer(field.bytes);
    }
  }
  if (size_ == 0) damaged(path_ + ": a SentencePiece model without pieces");
  if (static_cast<uint32_t>(size_) >= kIdMask) {
    throw Failure(MSDC_UNSUPPORTED, path_ + ": more than a million pieces");
  }
  // Three slots per two pieces keep probes short at 6 bytes per piece.
  slots_.assign(static_cast<size_t>(size_) * 3 / 2 + 8, 0);
  size_t prefixes = 1024;
  while (prefixes < 2 * static_cast<size_t>(size_)) prefixes *= 2;
  prefixes_.assign(prefixes, 0);
  read_pieces();
  // The pass above touched every page of the file; an idle encoder should not keep them resident.
  file_.forget();
}

void PieceModel::read_trainer(std::string_view part) {
  ProtoReader reader(part, path_);
  ProtoField field;
  while (reader.next(&field)) {
    if (field.wire != 0) continue;
    if (field.number == 3) {
      if (field.value != 1 && field.value != 2) {
        throw Failure(MSDC_UNSUPPORTED, path_ + ": a word or character model; this core reads unigram and BPE models");
      }
      kind_ = field.value == 1 ? Kind::unigram : Kind::bpe;
    } else if (field.number == 24) {
      whitespace_as_suffix_ = field.value != 0;
    } else if (field.number == 35) {
      byte_fallback_ = field.value != 0;
    }
  }
}

void PieceModel::read_normalizer(std::string_view part) {
  ProtoReader reader(part, path_);
  ProtoField field;
  while (reader.next(&field)) {
    if (field.number == 2 && field.wire == 2) normalizer_.charsmap = field.bytes;
    if (field.wire != 0) continue;
    if (field.number == 3) normalizer_.add_dummy_prefix = field.value != 0;
    if (field.number == 4) normalizer_.remove_extra_whitespaces = field.value != 0;
    if (field.number == 5) normalizer_.escape_whitespaces = field.value != 0;
  }
}

void PieceModel::read_pieces() {
  min_score_ = FLT_MAX;
  max_score_ = FLT_MIN;  // SentencePiece starts here too, although it is the smallest positive number
  int32_t bytes_found = 0;
  int32_t id = 0;
  ProtoReader reader(file_.bytes(), path_);
  ProtoField field;
  for (;;) {
    if (!reader.next_short(&field.bytes)) {
      if (!reader.next(&field)) break;
      if (field.number != 1 || field.wire != 2) continue;
    }
    const Piece piece = parse_piece(field.bytes, path_);
    if (piece.text.empty() || !is_valid_utf8(piece.text)) {
      damaged(path_ + ": piece " + std::to_string(id) + " is empty or not UTF-8");
    }
    if (piece.text.size() > kMaxPieceCharacters && characters_of(piece.text) > kMaxPieceCharacters) {
      damaged(path_ + ": piece " + std::to_string(id) + " has more than 7,999 characters");
    }
    if (!std::isfinite(piece.score)) damaged(path_ + ": piece " + std::to_string(id) + " has no finite score");
    switch (piece.type) {
      case PieceType::normal:
        min_score_ = std::min(min_score_, piece.score);
        max_score_ = std::max(max_score_, piece.score);
        insert(id, piece);
        break;
      case PieceType::user_defined:
        has_user_defined_ = true;
        longest_user_defined_ = std::max(longest_user_defined_, piece.text.size());
        insert(id, piece);
        break;
      case PieceType::unused: insert(id, piece); break;
      case PieceType::unknown:
        if (unk_id_ >= 0) damaged(path_ + ": two pieces for the unknown");
        unk_id_ = id;
        break;
      case PieceType::byte: {
        const int byte = byte_of_piece(piece.text);
        if (byte < 0) damaged(path_ + ": piece " + std::to_string(id) + " is not a byte");
        bytes_found += byte_ids_[byte] < 0 ? 1 : 0;
        byte_ids_[byte] = id;
        break;
      }
      case PieceType::control: break;
    }
    ++id;
  }
  if (unk_id_ < 0) damaged(path_ + ": no piece for the unknown");
  if (byte_fallback_ && bytes_found != 256) damaged(path_ + ": byte fallback without its 256 byte pieces");
}

size_t PieceModel::slot_of(uint32_t hash) const {
  return static_cast<size_t>((spread(hash) >> 32) * slots_.size() >> 32);
}

void PieceModel::insert(int32_t id, const Piece& piece) {
  has_inner_space_ = has_inner_space_ || piece.text.find(kSpace, 1) != std::string_view::npos;
  longest_bytes_ = std::max(longest_bytes_, piece.text.size());
  const uint8_t longest = static_cast<uint8_t>(std::min<size_t>(piece.text.size(), kNoLimit));
  uint32_t hash = kHashSeed;
  int characters = 0;
  for (size_t at = 0; at < piece.text.size();) {
    const size_t stop = at + std::min(announced_bytes(piece.text[at]), piece.text.size() - at);
    while (at < stop) hash = hash_add(hash, piece.text[at++]);
    if (characters++ < kPrefixCharacters) {
      uint8_t& known = prefixes_[prefix_slot(hash)];
      const uint8_t ends = (known & kEnds) | (at == piece.text.size() ? kEnds : 0);
      known = static_cast<uint8_t>(ends | std::max<uint8_t>(known & kNoLimit, longest));
    }
  }
  if (characters > kPrefixCharacters) prefixes_[prefix_slot(hash)] |= kEnds;
  const uint32_t tag = tag_of(hash);
  size_t slot = slot_of(hash);
  int same_tag = 0;
  for (size_t probe = 0; slots_[slot] != 0; ++probe) {
    if ((slots_[slot] & ~kIdMask) == tag) {
      if (this->piece(static_cast<int32_t>(slots_[slot] & kIdMask) - 1).text == piece.text) {
        damaged(path_ + ": piece " + std::to_string(id) + " is a duplicate");
      }
      ++same_tag;
    }
    if (probe == kMaxProbe || same_tag > kMaxSameTag) damaged(path_ + ": its pieces are made to collide");
    slot = slot + 1 == slots_.size() ? 0 : slot + 1;
  }
  slots_[slot] = tag | static_cast<uint32_t>(id + 1);
}

Piece PieceModel::piece(int32_t id) const {
  ProtoReader reader(file_.bytes().substr(offsets_[static_cast<size_t>(id / kOffsetStep)]), path_);
  ProtoField field;
  for (int32_t skip = id % kOffsetStep;;) {
    if (!reader.next_short(&field.bytes)) {
      if (!reader.next(&field)) break;
      if (field.number != 1 || field.wire != 2) continue;
    }
    if (skip-- == 0) return parse_piece(field.bytes, path_);
  }
  damaged(path_ + ": no piece " + std::to_string(id));
}

int32_t PieceModel::find(std::string_view text, uint32_t hash, Piece* piece, WorkBudget* budget) const {
  const uint32_t tag = tag_of(hash);
  size_t slot = slot_of(hash);
  budget->spend(1);
  for (size_t probe = 0; slots_[slot] != 0 && probe <= kMaxProbe; ++probe) {
    budget->spend(1);
    if ((slots_[slot] & ~kIdMask) == tag) {
      budget->spend(kDecodeWork + text.size() / 16);
      const int32_t id = static_cast<int32_t>(slots_[slot] & kIdMask) - 1;
      const Piece found = this->piece(id);
      if (found.text == text) {
        *piece = found;
        return id;
      }
    }
    slot = slot + 1 == slots_.size() ? 0 : slot + 1;
  }
  return -1;
}

int32_t PieceModel::find(std::string_view text, Piece* piece, WorkBudget* budget) const {
  budget->spend(text.size() / 4);
  uint32_t hash = kHashSeed;
  for (const char c : text) hash = hash_add(hash, c);
  return find(text, hash, piece, budget);
}

size_t PieceModel::user_defined_prefix(std::string_view text, WorkBudget* budget) const {
  if (!has_user_defined_) return 0;
  size_t longest = 0;
  uint32_t hash = kHashSeed;
  const size_t most = std::min(text.size(), longest_user_defined_);
  for (size_t end = 1; end <= most; ++end) {
    hash = hash_add(hash, text[end - 1]);
    Piece piece;
    if (find(text.substr(0, end), hash, &piece, budget) >= 0 && piece.type == PieceType::user_defined) longest = end;
  }
  return longest;
}

}  // namespace msdc
