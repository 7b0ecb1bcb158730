// The vectors of an index in memory: the blocks of its file, compared with a query.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "database.h"

namespace msdc {

using Cosines = std::unordered_map<int64_t, double>;  // by document

class PassageVectors {
 public:
  // Read new blocks, and drop removed ones, if this or another connection changed the file.
  void refresh(Database* database);

  // The mean of a document's vectors, of length 1; empty without one.
  std::vector<float> mean_of(int64_t document) const;
  // Whether there are vectors, of another width than a query.
  bool differs(const std::vector<float>& query) const { return !passages_.empty() && query.size() != width_; }
  // Cosines of a query with every passage, and of each document the highest.
  void compare(const std::vector<float>& query);
  // At most `most` of the nearest documents, of those `allowed` (in order), null for all.
  Cosines nearest(size_t most, const std::vector<int64_t>* allowed) const;
  // Of a document's best passage; null without a vector.
  const float* cosine_of(int64_t document) const;
  // Of a document's passage; null without a vector.
  const float* cosine_of_passage(int64_t document, int64_t passage) const;

 private:
  // Where the passages of a block are: `count` rows from `start`; up to `stop` the last of them again. So a block that loses
  // passages stays where it is, and a write costs what it changes, not a copy of all vectors.
  struct BlockSpan {
    int64_t crc;
    size_t start, count, stop;
    bool operator==(const BlockSpan& other) const {
      return crc == other.crc && start == other.start && count == other.count && stop == other.stop;
    }
  };
  using Spans = std::map<int64_t, BlockSpan>;  // by row

  // The spans of blocks that stay where they were, new ones behind them; false if they overlap or leave large gaps.
  static bool place(const Spans& former, Spans* spans);
  // Put the blocks that have not changed one after another.
  void move(const Spans& spans, Spans* former);
  // Read a block that has changed, and fill the gap behind it.
  void fill(Database* database, int64_t row, const BlockSpan& span, const BlockSpan* former);
  // Find where documents start, of which rows of `start` to `stop` have changed.
  void find_documents(Database* database, size_t start, size_t stop);
  size_t position_of(int64_t document) const;  // the number of documents where it has no vector

  size_t width_ = 0;  // of the blocks
  std::pair<int64_t, int64_t> state_{-1, -1};  // the file's version, and the changes of this connection
  Spans spans_;
  std::vector<int64_t> passages_, owners_;
  std::vector<float> scales_, cosines_;
  std::vector<int8_t> codes_;
  std::vector<int64_t> documents_;
  std::vector<size_t> starts_;  // of each document in passages_, and the end
  std::vector<float> best_;
};

}  // namespace msdc
