#include "vectors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "blocks.h"
#include "search.h"

namespace msdc {

void PassageVectors::refresh(Database* database) {
  const int64_t version = database->integer("PRAGMA data_version").value_or(0);
  if (is_current_ && version == version_) return;
  is_current_ = false;
  std::map<int64_t, BlockSpan> spans;
  size_t count = 0;
  std::optional<size_t> block_width;
  database->each("block_checksums", {}, [&](const Row& row) {
    const auto passages = static_cast<size_t>(row.integer(2));
    if (!block_width) block_width = static_cast<size_t>(row.integer(3));
    spans[row.integer(0)] = {row.integer(1), count, passages};
    count += passages;
  });
  if (block_width.value_or(0) != width_) spans_.clear();  // another model's
  width_ = block_width.value_or(0);
  std::vector<int64_t> passages(count), owners(count);
  std::vector<float> scales(count);
  std::vector<int8_t> codes(count * width_);
  for (const auto& [row, span] : spans) {
    const auto former = spans_.find(row);
    if (former != spans_.end() && former->second.crc == span.crc && former->second.count == span.count) {
      const auto first = static_cast<std::ptrdiff_t>(former->second.start);
      const auto last = first + static_cast<std::ptrdiff_t>(span.count);
      const auto target = static_cast<std::ptrdiff_t>(span.start), width = static_cast<std::ptrdiff_t>(width_);
      std::copy(passages_.begin() + first, passages_.begin() + last, passages.begin() + target);
      std::copy(owners_.begin() + first, owners_.begin() + last, owners.begin() + target);
      std::copy(scales_.begin() + first, scales_.begin() + last, scales.begin() + target);
      std::copy(codes_.begin() + first * width, codes_.begin() + last * width, codes.begin() + target * width);
      continue;
    }
    Block block;
    database->each("block", {row}, [&](const Row& entry) { block = Block::read(*database, entry); });
    if (block.count() != span.count || block.width() != width_) {
      database->damaged("the vectors of block " + std::to_string(row));
    }
    std::memcpy(&passages[span.start], block.passages.data(), block.passages.size());
    std::memcpy(&owners[span.start], block.documents.data(), block.documents.size());
    std::memcpy(&scales[span.start], block.scales.data(), block.scales.size());
    std::memcpy(&codes[span.start * width_], block.codes.data(), block.codes.size());
  }
  std::vector<int64_t> documents;
  std::vector<size_t> starts;
  for (size_t i = 0; i < count; ++i) {
    if (i > 0 && (owners[i] < owners[i - 1] || passages[i] <= passages[i - 1])) {
      database->damaged("passages in another order");
    }
    if (i > 0 && owners[i] == owners[i - 1]) continue;
    documents.push_back(owners[i]);
    starts.push_back(i);
  }
  starts.push_back(count);
  spans_ = std::move(spans);
  passages_ = std::move(passages);
  owners_ = std::move(owners);
  scales_ = std::move(scales);
  codes_ = std::move(codes);
  documents_ = std::move(documents);
  starts_ = std::move(starts);
  version_ = version;
  is_current_ = true;
}

std::vector<float> PassageVectors::mean_of(int64_t document) const {
  const size_t position = position_of(document);
  if (position == documents_.size()) return {};
  std::vector<double> sum(width_, 0.0);
  for (size_t passage = starts_[position]; passage < starts_[position + 1]; ++passage) {
    const double scale = static_cast<double>(scales_[passage]);
    for (size_t i = 0; i < width_; ++i) sum[i] += scale * codes_[passage * width_ + i];
  }
  double squares = 0;
  for (const double value : sum) squares += value * value;
  const double length = squares > 0 ? std::sqrt(squares) : 1;
  std::vector<float> out;
  for (const double value : sum) out.push_back(static_cast<float>(value / length));
  return out;
}

void PassageVectors::compare(const std::vector<float>& query) {
  cosines_.resize(passages_.size());
  best_.resize(documents_.size());
  int8_cosines(query.data(), query.size(), codes_.data(), scales_.data(), passages_.size(), cosines_.data());
  for (size_t i = 0; i < documents_.size(); ++i) {
    best_[i] = *std::max_element(cosines_.data() + starts_[i], cosines_.data() + starts_[i + 1]);
  }
}

size_t PassageVectors::position_of(int64_t document) const {
  const auto entry = std::lower_bound(documents_.begin(), documents_.end(), document);
  if (entry == documents_.end() || *entry != document) return documents_.size();
  return static_cast<size_t>(entry - documents_.begin());
}

Cosines PassageVectors::nearest(size_t most, const std::vector<int64_t>* allowed) const {
  std::vector<size_t> positions;
  if (allowed == nullptr) {
    for (size_t i = 0; i < documents_.size(); ++i) positions.push_back(i);
  } else {
    for (const int64_t document : *allowed) {
      const size_t position = position_of(document);
      if (position < documents_.size()) positions.push_back(position);
    }
  }
  if (most < positions.size()) {
    std::nth_element(positions.begin(), positions.begin() + static_cast<std::ptrdiff_t>(most), positions.end(),
                     [&](size_t a, size_t b) { return best_[a] != best_[b] ? best_[a] > best_[b] : a < b; });
    positions.resize(most);
  }
  Cosines out;
  for (const size_t position : positions) out.emplace(documents_[position], best_[position]);
  return out;
}

const float* PassageVectors::cosine_of(int64_t document) const {
  const size_t position = position_of(document);
  return position < documents_.size() ? &best_[position] : nullptr;
}

const float* PassageVectors::cosine_of_passage(int64_t document, int64_t passage) const {
  const size_t position = position_of(document);
  if (position == documents_.size()) return nullptr;
  const auto first = passages_.begin() + static_cast<std::ptrdiff_t>(starts_[position]);
  const auto last = passages_.begin() + static_cast<std::ptrdiff_t>(starts_[position + 1]);
  const auto entry = std::lower_bound(first, last, passage);
  if (entry == last || *entry != passage) return nullptr;
  return &cosines_[static_cast<size_t>(entry - passages_.begin())];
}

}  // namespace msdc
