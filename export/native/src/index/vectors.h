// The vectors of an index in memory: the blocks of its file, compared with a query.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "database.h"

namespace msdc {

using Cosines = std::unordered_map<int64_t, double>;  // by document

class PassageVectors {
 public:
  // Read new blocks, and drop removed ones, if this or another connection changed the file.
  void refresh(Database* database);
  // This connection writes: its own changes have no other sign.
  void expire() { is_current_ = false; }

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
  struct BlockSpan {
    int64_t crc;
    size_t start, count;
  };

  size_t position_of(int64_t document) const;  // the number of documents where it has no vector

  size_t width_ = 0;  // of the blocks
  bool is_current_ = false;
  int64_t version_ = -1;
  std::map<int64_t, BlockSpan> spans_;  // by row
  std::vector<int64_t> passages_, owners_;
  std::vector<float> scales_, cosines_;
  std::vector<int8_t> codes_;
  std::vector<int64_t> documents_;
  std::vector<size_t> starts_;  // of each document in passages_, and the end
  std::vector<float> best_;
};

}  // namespace msdc
