#include "vectors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "blocks.h"
#include "search.h"

namespace msdc {

namespace {

// Of so many passages there is room for one more, and at most one may be a gap.
constexpr size_t kSpare = 8;

}  // namespace

void PassageVectors::refresh(Database* database) {
  const std::pair<int64_t, int64_t> state{database->integer("PRAGMA data_version").value_or(0),
                                          sqlite3_total_changes(database->connection())};
  if (state == state_) return;
  Spans spans, former;
  size_t width = 0;
  database->each("block_checksums", {}, [&](const Row& row) {
    if (spans.empty()) width = static_cast<size_t>(row.integer(3));
    spans[row.integer(0)] = {row.integer(1), 0, static_cast<size_t>(row.integer(2)), 0};
  });
  state_ = {-1, -1};
  former.swap(spans_);  // an error leaves none: all are read again
  if (width != width_) {  // another model's
    former.clear();
    width_ = width;
  }
  const bool moves = former.empty() || !place(former, &spans);
  if (moves) {
    move(spans, &former);
    place(former, &spans);
  }
  const size_t stop = spans.empty() ? 0 : spans.rbegin()->second.stop;
  passages_.resize(stop);
  owners_.resize(stop);
  scales_.resize(stop);
  codes_.resize(stop * width_);
  size_t first = stop, last = stop;
  for (const auto& [row, span] : spans) {
    const auto before = former.find(row);
    if (before != former.end() && before->second == span) continue;
    fill(database, row, span, before == former.end() ? nullptr : &before->second);
    first = std::min(first, span.start);
    last = span.stop;
  }
  find_documents(database, moves ? 0 : first, moves ? stop : last);
  spans_ = std::move(spans);
  state_ = state;
}

bool PassageVectors::place(const Spans& former, Spans* spans) {
  size_t stop = 0, count = 0;
  BlockSpan* last = nullptr;
  for (auto& [row, span] : *spans) {
    const auto before = former.find(row);
    span.start = before == former.end() ? stop : before->second.start;
    if (span.start < stop || (last == nullptr && span.start > 0)) return false;
    if (last != nullptr) last->stop = span.start;
    stop = span.stop = span.start + span.count;
    count += span.count;
    last = &span;
  }
  return stop - count <= count / kSpare;
}

void PassageVectors::move(const Spans& spans, Spans* former) {
  size_t count = 0;
  for (const auto& [row, span] : spans) count += span.count;
  std::vector<int64_t> passages(count), owners(count);
  std::vector<float> scales(count);
  std::vector<int8_t> codes;
  codes.reserve((count + count / kSpare) * width_);
  codes.resize(count * width_);
  Spans moved;
  size_t start = 0;
  for (const auto& [row, span] : spans) {
    const auto before = former->find(row);
    if (before != former->end() && before->second.crc == span.crc && before->second.count == span.count) {
      const size_t source = before->second.start;
      std::copy_n(&passages_[source], span.count, &passages[start]);
      std::copy_n(&owners_[source], span.count, &owners[start]);
      std::copy_n(&scales_[source], span.count, &scales[start]);
      std::copy_n(&codes_[source * width_], span.count * width_, &codes[start * width_]);
      moved[row] = {span.crc, start, span.count, start + span.count};
    }
    start += span.count;
  }
  passages_ = std::move(passages);
  owners_ = std::move(owners);
  scales_ = std::move(scales);
  codes_ = std::move(codes);
  *former = std::move(moved);
}

void PassageVectors::fill(Database* database, int64_t row, const BlockSpan& span, const BlockSpan* former) {
  if (former == nullptr || former->crc != span.crc || former->count != span.count) {
    Block block;
    database->each("block", {row}, [&](const Row& entry) { block = Block::read(*database, entry); });
    if (block.count() != span.count || block.width() != width_) {
      database->damaged("the vectors of block " + std::to_string(row));
    }
    std::memcpy(&passages_[span.start], block.passages.data(), block.passages.size());
    std::memcpy(&owners_[span.start], block.documents.data(), block.documents.size());
    std::memcpy(&scales_[span.start], block.scales.data(), block.scales.size());
    std::memcpy(&codes_[span.start * width_], block.codes.data(), block.codes.size());
    for (size_t i = span.start + 1; i < span.start + span.count; ++i) {
      if (passages_[i] <= passages_[i - 1]) database->damaged("passages in another order");
    }
  }
  for (size_t i = span.start + span.count; i < span.stop; ++i) {
    passages_[i] = passages_[i - 1];
    owners_[i] = owners_[i - 1];
    scales_[i] = scales_[i - 1];
    std::copy_n(&codes_[(i - 1) * width_], width_, &codes_[i * width_]);
  }
}

void PassageVectors::find_documents(Database* database, size_t start, size_t stop) {
  const size_t count = passages_.size();
  std::vector<size_t> starts;
  std::vector<int64_t> documents;
  for (size_t i = start; i < std::min(stop + 1, count); ++i) {
    if (i > 0 && (owners_[i] < owners_[i - 1] || passages_[i] < passages_[i - 1])) {
      database->damaged("passages in another order");
    }
    if (i > 0 && owners_[i] == owners_[i - 1]) continue;
    documents.push_back(owners_[i]);
    starts.push_back(i);
  }
  // Of the former ones those of the rows remain that have not changed; the last start is the end.
  const auto at = [&](size_t row) { return std::lower_bound(starts_.begin(), starts_.end(), row) - starts_.begin(); };
  const std::ptrdiff_t low = std::min(at(start), static_cast<std::ptrdiff_t>(documents_.size()));
  const std::ptrdiff_t high = std::min(at(stop + 1), static_cast<std::ptrdiff_t>(documents_.size()));
  const std::ptrdiff_t end = std::max(high, std::min(at(count), static_cast<std::ptrdiff_t>(documents_.size())));
  starts_.resize(static_cast<size_t>(end));
  documents_.resize(static_cast<size_t>(end));
  const auto replace = [&](auto* all, const auto& part) {
    all->insert(all->erase(all->begin() + low, all->begin() + high), part.begin(), part.end());
  };
  replace(&starts_, starts);
  replace(&documents_, documents);
  starts_.push_back(count);
}

std::vector<float> PassageVectors::mean_of(int64_t document) const {
  const size_t position = position_of(document);
  if (position == documents_.size()) return {};
  std::vector<double> sum(width_, 0.0);
  for (size_t passage = starts_[position]; passage < starts_[position + 1]; ++passage) {
    if (passage > starts_[position] && passages_[passage] == passages_[passage - 1]) continue;  // in a gap
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
