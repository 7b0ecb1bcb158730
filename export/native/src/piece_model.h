// A SentencePiece `.model` read in place.
//
// The file stays mapped; next to it only a hash table of four bytes per slot, a byte for each beginning of a piece and
// the offsets of every second piece are kept, about 11 bytes per piece. SentencePiece's own library holds the parsed
// protobuf, a trie and a map, which for 250,000 pieces is more than the whole encoder may take on a phone.
#pragma once

#include <cfloat>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "files.h"
#include "work.h"

namespace msdc {

enum class PieceType : uint8_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

struct Piece {
  std::string_view text;
  float score = 0.0f;
  PieceType type = PieceType::normal;
};

struct NormalizerSpec {
  std::string_view charsmap;  // <bytes of the trie, u32><double-array trie><replacements, each NUL-terminated>
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
};

class PieceModel {
 public:
  // Throws Failure: MSDC_DAMAGED for a broken file, MSDC_UNSUPPORTED for a word or character model.
  explicit PieceModel(const std::string& path);

  enum class Kind { unigram, bpe };

  Kind kind() const { return kind_; }
  const NormalizerSpec& normalizer() const { return normalizer_; }
  bool whitespace_as_suffix() const { return whitespace_as_suffix_; }
  bool byte_fallback() const { return byte_fallback_; }
  bool has_user_defined() const { return has_user_defined_; }
  // Whether a space (U+2581) is only at the front of pieces, and no score is positive (`max_score` is FLT_MIN then, and
  // without normal pieces below `min_score`): the best path of a word is then its own.
  bool word_by_word() const { return !has_inner_space_ && min_score_ <= max_score_ && max_score_ <= FLT_MIN; }
  int32_t size() const { return size_; }
  int32_t unk_id() const { return unk_id_; }
  int32_t byte_id(unsigned char byte) const { return byte_ids_[byte]; }
  float min_score() const { return min_score_; }
  float max_score() const { return max_score_; }
  size_t longest_bytes() const { return longest_bytes_; }

  // In a fixed number of steps: what may lie between pieces and inside one was bounded when the file was opened.
  Piece piece(int32_t id) const;

  // Rolling hash of a piece's bytes, so that the prefixes of a text are looked up without starting again.
  static constexpr uint32_t kHashSeed = 2166136261u;
  static uint32_t hash_add(uint32_t hash, char byte) { return (hash ^ static_cast<unsigned char>(byte)) * 16777619u; }

  // The pieces that begin with a text of at most kPrefixCharacters characters (whose hash is `hash`): 0 if there are
  // none, else the bytes of the longest one (kNoLimit: any number), and kEnds if one is the text itself, of any length.
  // Another text in the same slot may add to both. A search for the pieces at a place of a text stops by it, as in a
  // trie.
  static constexpr int kPrefixCharacters = 4;
  static constexpr uint8_t kEnds = 0x80, kNoLimit = 0x7F;
  uint8_t prefix(uint32_t hash) const { return prefixes_[prefix_slot(hash)]; }

  // Id of a normal, user-defined or unused piece with this text (whose hash is `hash`), -1 where there is none;
  // `piece` receives it.
  int32_t find(std::string_view text, uint32_t hash, Piece* piece, WorkBudget* budget) const;
  int32_t find(std::string_view text, Piece* piece, WorkBudget* budget) const;

  // Bytes of the longest user-defined piece at the front of `text`, 0 for none.
  size_t user_defined_prefix(std::string_view text, WorkBudget* budget) const;

 private:
  void read_pieces();
  void read_trainer(std::string_view part);
  void read_normalizer(std::string_view part);
  void insert(int32_t id, const Piece& piece);
  size_t slot_of(uint32_t hash) const;
  size_t prefix_slot(uint32_t hash) const { return (hash * 0x9E3779B97F4A7C15ull >> 20) & (prefixes_.size() - 1); }

  MappedFile file_;
  std::string path_;
  NormalizerSpec normalizer_;
  Kind kind_ = Kind::unigram;
  bool whitespace_as_suffix_ = false;
  bool byte_fallback_ = false;
  bool has_user_defined_ = false;
  bool has_inner_space_ = false;
  int32_t size_ = 0;
  int32_t unk_id_ = -1;
  float min_score_ = 0.0f;
  float max_score_ = 0.0f;
  size_t longest_bytes_ = 0;
  size_t longest_user_defined_ = 0;
  int32_t byte_ids_[256];
  std::vector<uint32_t> slots_;    // id + 1 in the low 20 bits, 12 bits of the hash above
  std::vector<uint8_t> prefixes_;  // see `prefix`
  std::vector<uint32_t> offsets_;  // file offset of every second piece
};

}  // namespace msdc
