#include "compiled_tokenizer.h"

#include <algorithm>
#include <utility>

#include "failure.h"
#include "utf8.h"

namespace msdc {

namespace {

constexpr uint32_t kSingleWord = 1, kStripLeft = 2, kStripRight = 4;
constexpr uint32_t kMaxIds = 1u << 24;
constexpr uint32_t kMaxSpecial = 64;
constexpr uint32_t kMaxShared = 1024;

[[noreturn]] void broken() { damaged("tokenizer.bin: broken"); }

// The text with U+FFFD for every byte that is not UTF-8.
std::string valid_text(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t bytes = valid_bytes(text);
    if (bytes == 0) {
      out += "\xEF\xBF\xBD";
    } else {
      out.append(text.substr(0, bytes));
    }
    text.remove_prefix(std::max<size_t>(bytes, 1));
  }
  return out;
}

}  // namespace

CompiledTokenizer::CompiledTokenizer(const std::string& path) : file_(path) {
  WordReader words{Words(file_.table(0))};
  const auto shared_count = [&] {
    const uint32_t count = words.count();
    if (count > kMaxShared) broken();
    return count;
  };
  // A pattern is copied when it is opened: one large table named a thousand times must not be copied a thousand times.
  size_t opened = 0;
  const auto shared_table = [&] {
    const std::string_view out = file_.table(words.next());
    opened += out.size();
    if (opened > 2 * file_.bytes()) broken();
    return out;
  };
  for (uint32_t i = shared_count(); i > 0; --i) tables_.sets.emplace_back(shared_table());
  for (uint32_t i = shared_count(); i > 0; --i) tables_.maps.emplace_back(shared_table());
  for (uint32_t i = shared_count(); i > 0; --i) tables_.patterns.emplace_back(Words(shared_table()), &tables_.sets);
  word_ = CharacterSet(file_.table(words.next()));
  space_ = CharacterSet(file_.table(words.next()));
  raw_ = read_added(&words);
  normalized_ = read_added(&words);
  rules_ = std::make_unique<TextRules>(&words, file_, tables_);
  splitter_ = std::make_unique<Splitter>(&words, file_, tables_);
  vocabulary_ = TextTable(file_.table(words.next()));
  model_ = TokenModel::read(&words, file_, vocabulary_);
  size_ = static_cast<int32_t>(std::min(words.next(), kMaxIds));
  for (std::vector<int32_t>* ids : {&before_, &after_}) {
    const uint32_t count = words.count();
    if (count > kMaxSpecial) broken();
    for (uint32_t i = 0; i < count; ++i) ids->push_back(static_cast<int32_t>(std::min(words.next(), kMaxIds)));
  }
  if (!words.done()) broken();
}

CompiledTokenizer::AddedTokens CompiledTokenizer::read_added(WordReader* words) const {
  AddedTokens out;
  out.names = TextTable(file_.table(words->next()));
  out.records = Words(file_.table(words->next()));
  out.starts = CharacterSet(file_.table(words->next()));
  if (out.records.size() / 2 < out.names.size()) broken();
  return out;
}

size_t CompiledTokenizer::longest_match(const AddedTokens& tokens, std::string_view text, size_t at,
                                        size_t* index, WorkBudget* budget) const {
  size_t longest = 0;
  uint32_t hash = TextTable::kSeed;
  for (size_t end = at; end < text.size() && end - at < tokens.names.longest_bytes();) {
    const size_t stop = std::min(end + announced_bytes(text[end]), text.size());
    while (end < stop) hash = TextTable::add(hash, text[end++]);
    const int32_t found = tokens.names.find({}, text.substr(at, end - at), hash, budget);
    if (found >= 0) {
      longest = end - at;
      *index = static_cast<size_t>(found);
    }
  }
  return longest;
}

std::vector<CompiledTokenizer::Part> CompiledTokenizer::find_added(const AddedTokens& tokens, std::string_view text,
                                                                   WorkBudget* budget) const {
  std::vector<Part> out;
  size_t done = 0;
  uint32_t code;
  for (size_t at = 0; at < text.size() && tokens.names.size() != 0;) {
    const size_t bytes = decode_utf8(text, at, &code);
    size_t index = 0;
    const size_t length = tokens.starts.has(code) ? longest_match(tokens, text, at, &index, budget) : 0;
    if (length == 0) {
      at += bytes;
      continue;
    }
    size_t from = at, to = at + length;
    at = to;
    const uint32_t flags = tokens.records.at(2 * index + 1);
    if ((flags & kSingleWord) != 0) {
      const auto is_word = [&](size_t place) { return decode_utf8(text, place, &code) != 0 && word_.has(code); };
      if ((from > 0 && is_word(from - step_back(text, from))) || is_word(to)) continue;
    }
    if ((flags & kStripLeft) != 0) {
      while (from > done) {
        const size_t before = step_back(text, from);
        if (decode_utf8(text, from - before, &code) == 0 || !space_.has(code)) break;
        from -= before;
      }
    }
    if ((flags & kStripRight) != 0) {
      while (true) {
        const size_t next = decode_utf8(text, to, &code);
        if (next == 0 || !space_.has(code)) break;
        budget->spend(WorkBudget::kStep);
        to += next;
      }
    }
    if (done < from) out.push_back({done, from, -1});
    out.push_back({from, to, static_cast<int32_t>(std::min(tokens.records.at(2 * index), kMaxIds))});
    done = to;
  }
  if (done < text.size() || text.empty()) out.push_back({done, text.size(), -1});
  return out;
}

std::vector<int32_t> CompiledTokenizer::segment(std::string_view text, WorkBudget* budget) const {
  const std::string valid = valid_text(text);
  std::vector<int32_t> ids;
  for (const Part& part : find_added(raw_, valid, budget)) {
    if (part.id >= 0) {
      ids.push_back(part.id);
      continue;
    }
    const std::string normal = rules_->apply(valid.substr(part.from, part.to - part.from), budget);
    for (const Part& inner : find_added(normalized_, normal, budget)) {
      if (inner.id >= 0) {
        ids.push_back(inner.id);
        continue;
      }
      const bool first = part.from == 0 && inner.from == 0;
      for (const std::string& piece : splitter_->split(normal.substr(inner.from, inner.to - inner.from), first, budget)) {
        model_->segment(piece, &ids, budget);
      }
    }
  }
  return ids;
}

}  // namespace msdc
