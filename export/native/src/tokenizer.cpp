#include "tokenizer.h"

#include "failure.h"
#include "normalizer.h"
#include "piece_model.h"
#include "segment.h"

namespace msdc {

namespace {

constexpr size_t kMaxTextBytes = 64u * 1024 * 1024;

}  // namespace

// A SentencePiece model.
struct Tokenizer::Pieces {
  explicit Pieces(const std::string& path) : model(path), normalizer(model, path) {}

  PieceModel model;
  Normalizer normalizer;
};

Tokenizer::Tokenizer(const Manifest& manifest) : max_length_(manifest.max_length) {
  int32_t size = 0;
  if (manifest.tokenizer_kind == "sentencepiece") {
    pieces_ = std::make_unique<Pieces>(manifest.path(manifest.tokenizer_file));
    before_ = {manifest.bos_id};
    after_ = {manifest.eos_id};
    size = pieces_->model.size();
  } else if (manifest.tokenizer_kind == "tokenizer-json") {
    compiled_ = std::make_unique<CompiledTokenizer>(manifest.path(manifest.tokenizer_file));
    before_ = compiled_->before();
    after_ = compiled_->after();
    size = compiled_->size();
  } else {
    throw Failure(MSDC_UNSUPPORTED, manifest.folder + ": this core does not read tokenizers of kind \"" +
                                        manifest.tokenizer_kind + "\"");
  }
  if (static_cast<size_t>(max_length_) < before_.size() + after_.size()) {
    damaged(manifest.folder + ": max_length leaves no room for the special ids");
  }
  for (const std::vector<int32_t>* ids : {&before_, &after_}) {
    for (const int32_t id : *ids) {
      if (id < 0 || id >= size) damaged(manifest.folder + ": a special id is not in the tokenizer");
    }
  }
  if (size > manifest.vocabulary) damaged(manifest.folder + ": the tokenizer is larger than the vocabulary");
}

Tokenizer::~Tokenizer() = default;

std::vector<int32_t> Tokenizer::segment(std::string_view text) const {
  WorkBudget budget(text.size());
  if (compiled_ != nullptr) return compiled_->segment(text, &budget);
  const std::string normalized = pieces_->normalizer.normalize(text, &budget);
  return pieces_->model.kind() == PieceModel::Kind::unigram ? segment_unigram(pieces_->model, normalized, &budget)
                                                            : segment_bpe(pieces_->model, normalized, &budget);
}

size_t Tokenizer::prompt_tokens(std::string_view prompt) const {
  if (prompt.empty()) return 0;
  const std::vector<int32_t> ids = encode(prompt), none = encode("");
  const bool ends = !none.empty() && !ids.empty() && ids.back() == none.back();
  return ids.size() - (ends ? 1 : 0);
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, size_t most) const {
  if (text.size() > kMaxTextBytes) throw Failure(MSDC_BAD_ARGUMENT, "a text of more than 64 MiB");
  std::vector<int32_t> ids = segment(text);
  if (ids.size() > room(most)) ids.resize(room(most));
  ids.insert(ids.begin(), before_.begin(), before_.end());
  ids.insert(ids.end(), after_.begin(), after_.end());
  return ids;
}

bool Tokenizer::truncates(std::string_view text) const {
  if (text.size() > kMaxTextBytes) throw Failure(MSDC_BAD_ARGUMENT, "a text of more than 64 MiB");
  return segment(text).size() > room(static_cast<size_t>(max_length_));
}

}  // namespace msdc
