#include "tokenizer.h"

#include "failure.h"
#include "segment.h"

namespace msdc {

namespace {

constexpr size_t kMaxTextBytes = 64u * 1024 * 1024;

const std::string& piece_file(const Manifest& manifest) {
  if (manifest.tokenizer_kind != "sentencepiece") {
    throw Failure(MSDC_UNSUPPORTED,
                  manifest.folder + ": its tokenizer is a " + manifest.tokenizer_kind +
                      "; the native core reads SentencePiece models only. Teach or transplant a SentencePiece "
                      "vocabulary, or run this bundle from Python");
  }
  return manifest.tokenizer_file;
}

}  // namespace

Tokenizer::Tokenizer(const Manifest& manifest)
    : model_(manifest.path(piece_file(manifest))),
      normalizer_(model_, manifest.path(manifest.tokenizer_file)),
      max_length_(manifest.max_length),
      bos_id_(manifest.bos_id),
      eos_id_(manifest.eos_id) {
  if (max_length_ < 2) damaged(manifest.folder + ": max_length leaves no room for the special ids");
  for (const int32_t id : {bos_id_, eos_id_}) {
    if (id < 0 || id >= model_.size()) damaged(manifest.folder + ": a special id is not in the tokenizer");
  }
  if (model_.size() > manifest.vocabulary) damaged(manifest.folder + ": the tokenizer is larger than the vocabulary");
}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  if (text.size() > kMaxTextBytes) throw Failure(MSDC_BAD_ARGUMENT, "a text of more than 64 MiB");
  const std::string normalized = normalizer_.normalize(text);
  std::vector<int32_t> ids = model_.kind() == PieceModel::Kind::unigram ? segment_unigram(model_, normalized)
                                                                        : segment_bpe(model_, normalized);
  const size_t room = static_cast<size_t>(max_length_) - 2;
  if (ids.size() > room) ids.resize(room);
  ids.insert(ids.begin(), bos_id_);
  ids.push_back(eos_id_);
  return ids;
}

}  // namespace msdc
