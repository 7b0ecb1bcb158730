#include "compiled_file.h"

#include <algorithm>

#include "failure.h"
#include "utf8.h"

namespace msdc {

namespace {

constexpr uint64_t kMaxFileBytes = 256ull * 1024 * 1024;
constexpr std::string_view kMagic = std::string_view("msdctok\0", 8);
constexpr uint32_t kVersion = 1;
constexpr uint32_t kMaxTables = 4096;
constexpr uint32_t kMaxProbe = 256;
constexpr uint32_t kMaxTextBytes = 1024;
constexpr uint32_t kIndexBits = 20;
constexpr uint32_t kIndexMask = (1u << kIndexBits) - 1;
constexpr uint32_t kNoPair = 0xFFFFFFFFu;
constexpr const char* kBroken = "tokenizer.bin: broken (a table does not fit); copy or export the bundle again";

uint64_t spread(uint32_t hash) { return (hash + 1ull) * 0x9E3779B97F4A7C15ull; }

uint32_t little_endian(const char* bytes) {
  const auto at = [bytes](int i) { return static_cast<uint32_t>(static_cast<unsigned char>(bytes[i])); };
  return at(0) | at(1) << 8 | at(2) << 16 | at(3) << 24;
}

void need(bool held) {
  if (!held) damaged(kBroken);
}

// Word index of the last range [start, end) at or before `code`, in records of `step` words; SIZE_MAX for none.
size_t record_of(const Words& words, size_t step, uint32_t code) {
  size_t low = 0, high = words.size() / step;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (words.at(middle * step) <= code) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low == 0 || words.at((low - 1) * step + 1) <= code) return SIZE_MAX;
  return (low - 1) * step;
}

}  // namespace

uint32_t Words::at(size_t index) const {
  if (index >= size()) damaged(kBroken);
  return little_endian(bytes_.data() + 4 * index);
}

std::string_view Words::bytes_from(size_t word) const {
  need(word <= size());
  return bytes_.substr(word * 4);
}

TextTable::TextTable(std::string_view blob) {
  const Words head(blob);
  count_ = head.at(0);
  home_slots_ = head.at(1);
  max_probe_ = head.at(2);
  longest_ = head.at(3);
  const uint32_t slots = head.at(4);
  need(count_ < kIndexMask && max_probe_ <= kMaxProbe && longest_ <= kMaxTextBytes && home_slots_ <= slots);
  const size_t texts = 5 + static_cast<size_t>(slots) + count_ + 1;
  need(texts <= head.size());
  slots_ = Words(blob.substr(20, static_cast<size_t>(slots) * 4));
  offsets_ = Words(blob.substr(20 + static_cast<size_t>(slots) * 4, (static_cast<size_t>(count_) + 1) * 4));
  bytes_ = blob.substr(texts * 4);
}

std::string_view TextTable::text(size_t index) const {
  const uint32_t from = offsets_.at(index), to = offsets_.at(index + 1);
  need(from <= to && to <= bytes_.size());
  return bytes_.substr(from, to - from);
}

int32_t TextTable::find(std::string_view head, std::string_view tail, uint32_t hash, WorkBudget* budget) const {
  budget->spend(1);
  const uint64_t mixed = spread(hash);
  const size_t home = static_cast<size_t>((mixed >> 32) * home_slots_ >> 32);
  const uint32_t tag = static_cast<uint32_t>(mixed & 0xFFF);
  const size_t end = std::min<size_t>(home + max_probe_, slots_.size());
  for (size_t at = home; at < end; ++at) {
    budget->spend(1);
    const uint32_t slot = slots_.at(at);
    if (slot == 0) return -1;
    if (slot >> kIndexBits != tag) continue;
    budget->spend_bytes(head.size() + tail.size());
    const uint32_t index = (slot & kIndexMask) - 1;
    if (index >= count_) damaged(kBroken);
    const std::string_view own = text(index);
    if (own.size() == head.size() + tail.size() && own.substr(0, head.size()) == head &&
        own.substr(head.size()) == tail) {
      return static_cast<int32_t>(index);
    }
  }
  return -1;
}

PairTable::PairTable(std::string_view blob) {
  const Words head(blob);
  home_slots_ = head.at(0);
  max_probe_ = head.at(1);
  slots_ = Words(head.bytes_from(2));
  need(max_probe_ <= kMaxProbe && home_slots_ <= slots_.size() / 4);
}

bool PairTable::find(uint32_t left, uint32_t right, Value* value, WorkBudget* budget) const {
  budget->spend(1);
  uint64_t mixed = left * 0x9E3779B97F4A7C15ull + right * 0xC2B2AE3D27D4EB4Full;
  mixed = (mixed ^ mixed >> 29) * 0xBF58476D1CE4E5B9ull;
  const size_t home = static_cast<size_t>((mixed >> 32) * home_slots_ >> 32);
  const size_t end = std::min<size_t>(home + max_probe_, slots_.size() / 4);
  for (size_t at = home; at < end; ++at) {
    budget->spend(1);
    const uint32_t own = slots_.at(4 * at);
    if (own == kNoPair) return false;
    if (own == left && slots_.at(4 * at + 1) == right) {
      *value = {slots_.at(4 * at + 2), slots_.at(4 * at + 3)};
      return true;
    }
  }
  return false;
}

CharacterSet::CharacterSet(std::string_view blob) : ranges_(blob) {
  for (uint32_t code = 0; code < 128; ++code) {
    if (beyond_ascii(code)) ascii_[code >> 5] |= 1u << (code & 31);
  }
}

bool CharacterSet::beyond_ascii(uint32_t code) const { return record_of(ranges_, 2, code) != SIZE_MAX; }

CharacterMap::CharacterMap(std::string_view blob) {
  const Words head(blob);
  const size_t words = static_cast<size_t>(head.at(0)) * 4;
  need(words + 1 <= head.size());
  entries_ = Words(blob.substr(4, words * 4));
  pool_ = head.bytes_from(words + 1);
  Entry entry;
  for (uint32_t code = 0; code < 128; ++code) kept_[code] = !find(code, &entry);
}

bool CharacterMap::find(uint32_t code, Entry* entry) const {
  const size_t at = record_of(entries_, 4, code);
  if (at == SIZE_MAX) return false;
  *entry = {static_cast<Action>(entries_.at(at + 2)), entries_.at(at + 3)};
  return true;
}

std::string_view CharacterMap::text(const Entry& entry) const {
  const size_t from = entry.value >> 8, bytes = entry.value & 0xFF;
  need(from + bytes <= pool_.size());
  return pool_.substr(from, bytes);
}

void CharacterMap::apply(uint32_t code, std::string_view own, std::string* out) const {
  Entry entry;
  if ((code < 128 && kept_[code]) || !find(code, &entry)) {
    out->append(own);
    return;
  }
  switch (entry.action) {
    case Action::replace: out->append(text(entry)); return;
    case Action::shift: {
      const uint32_t moved = code + entry.value;
      need(moved <= 0x10FFFF);
      append_utf8(moved, out);
      return;
    }
    case Action::surround:
      out->append(text(entry)).append(own).append(text(entry));
      return;
    default: damaged(kBroken);
  }
}

CompiledFile::CompiledFile(const std::string& path) : file_(path, kMaxFileBytes), path_(path) {
  const std::string_view bytes = file_.bytes();
  if (bytes.substr(0, kMagic.size()) != kMagic) damaged(path_ + ": not a compiled tokenizer");
  const Words words(bytes);
  if (words.at(2) != kVersion) {
    throw Failure(MSDC_UNSUPPORTED, path_ + ": a compiled tokenizer of version " + std::to_string(words.at(2)) +
                                        "; this core reads version " + std::to_string(kVersion));
  }
  count_ = words.at(3);
  if (words.at(4) != bytes.size() || count_ == 0 || count_ > kMaxTables) damaged(path_ + ": truncated or broken");
}

std::string_view CompiledFile::table(uint32_t index) const {
  const std::string_view bytes = file_.bytes();
  const Words words(bytes);
  if (index >= count_) damaged(path_ + ": names a table that it does not have");
  const uint32_t from = words.at(5 + 2 * static_cast<size_t>(index)), size = words.at(6 + 2 * static_cast<size_t>(index));
  if (from % 4 != 0 || from > bytes.size() || size > bytes.size() - from) damaged(path_ + ": a table outside the file");
  return bytes.substr(from, size);
}

std::string_view CompiledFile::short_text(uint32_t index) const {
  const std::string_view out = table(index);
  if (out.size() > kMaxTextBytes) damaged(path_ + ": a text in it is longer than any token");
  return out;
}

uint32_t WordReader::count() {
  const uint32_t out = next();
  need(out <= words_.size() - at_);
  return out;
}

}  // namespace msdc
