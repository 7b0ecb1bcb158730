#include "blocks.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <unordered_set>

#include "failure.h"
#include "index_file.h"

namespace msdc {

namespace {

constexpr size_t kMost = 256;  // passages of a block

// Numbers are little-endian, as the devices are.
template <typename Number>
void append(std::string* column, Number number) {
  column->append(reinterpret_cast<const char*>(&number), sizeof number);
}

template <typename Number>
Number number_at(const std::string& column, size_t position) {
  Number out;
  std::memcpy(&out, column.data() + position * sizeof out, sizeof out);
  return out;
}

int64_t crc_of_columns(const Block& block) {
  uint32_t crc = 0;
  for (const std::string* column : {&block.passages, &block.documents, &block.scales, &block.codes}) {
    crc = crc_of(*column, crc);
  }
  return crc;
}

}  // namespace

Block Block::read(const Database& database, const Row& row) {
  Block out{row.integer(0), row.integer(1), row.text(2), row.text(3), row.text(4), row.text(5)};
  const size_t count = out.count();
  if (crc_of_columns(out) != out.crc || count == 0 || out.passages.size() != count * sizeof(int64_t) ||
      out.documents.size() != out.passages.size() || out.scales.size() != count * sizeof(float) ||
      out.codes.size() % count != 0) {
    database.damaged("the vectors of block " + std::to_string(out.row));
  }
  return out;
}

int64_t Block::passage(size_t position) const { return number_at<int64_t>(passages, position); }
int64_t Block::document(size_t position) const { return number_at<int64_t>(documents, position); }
float Block::scale(size_t position) const { return number_at<float>(scales, position); }

void Block::add(int64_t number, int64_t document, const Passage& passage) {
  append(&passages, number);
  append(&documents, document);
  append(&scales, passage.scale);
  codes += passage.codes;
}

void Block::add(const Block& other, size_t position) {
  append(&passages, other.passage(position));
  append(&documents, other.document(position));
  append(&scales, other.scale(position));
  codes.append(other.codes, position * other.width(), other.width());
}

void Block::write(Database* database) const {
  database->run("write_block", {row, crc_of_columns(*this), Argument::blob(passages), Argument::blob(documents),
                                Argument::blob(scales), Argument::blob(codes)});
}

BlockWriter::BlockWriter(Database* database) : database_(database) {
  block_.row = 1;
  database->each("last_block", {}, [&](const Row& row) { block_ = Block::read(*database_, row); });
}

void BlockWriter::add(int64_t document, const Passage& passage) {
  const bool has_vector = !passage.codes.empty();
  if (has_vector && block_.count() == kMost) {
    finish();
    const int64_t next = block_.row + 1;
    block_ = {};
    block_.row = next;
  }
  if (has_vector && block_.count() != 0 && block_.width() != passage.codes.size()) {
    database_->damaged("the vectors of block " + std::to_string(block_.row));
  }
  const int64_t crc = crc_of_passage(document, passage.start, passage.end);
  database_->run("add_passage",
                 {document, passage.start, passage.end, has_vector ? Argument(block_.row) : nullptr, crc});
  if (!has_vector) return;
  block_.add(int64_t{sqlite3_last_insert_rowid(database_->connection())}, document, passage);
  is_changed_ = true;
}

void BlockWriter::finish() {
  if (is_changed_) block_.write(database_);
  is_changed_ = false;
}

int64_t remove_documents(Database* database, const std::string& keys) {
  std::map<int64_t, std::unordered_set<int64_t>> removed;
  database->each("blocks_of", {keys}, [&](const Row& row) { removed[row.integer(1)].insert(row.integer(0)); });
  for (const auto& [row, documents] : removed) {
    Block block;
    database->each("block", {row}, [&](const Row& entry) { block = Block::read(*database, entry); });
    if (block.count() == 0) database->damaged("the vectors of block " + std::to_string(row));
    Block remaining;
    remaining.row = row;
    for (size_t position = 0; position < block.count(); ++position) {
      if (documents.count(block.document(position)) == 0) remaining.add(block, position);
    }
    if (remaining.count() == 0) {
      database->run("remove_block", {row});
    } else {
      remaining.write(database);
    }
  }
  database->run("remove", {keys});
  return sqlite3_changes(database->connection());
}

void check_passages(Database& database) {
  database.each("check_passages", {}, [&](const Row& row) {
    if (crc_of_passage(row.integer(1), row.integer(2), row.integer(3)) != row.integer(4)) {
      database.damaged("passage " + std::to_string(row.integer(0)));
    }
  });
  database.each("blocks", {}, [&](const Row& row) { Block::read(database, row); });
}

void replace_passages(Database* database) {
  database->run_all("begin_finish");
  BlockWriter writer(database);
  database->each("rebuilt", {}, [&](const Row& row) {
    const double scale = row.real(3);
    const Passage passage{row.integer(1), row.integer(2), static_cast<float>(scale), row.text(4)};
    if (crc_of_passage(row.integer(0), passage.start, passage.end, scale, passage.codes) != row.integer(5)) {
      database->damaged("a new passage of document " + std::to_string(row.integer(0)));
    }
    writer.add(row.integer(0), passage);
  });
  writer.finish();
  database->run_all("finish_rebuild");
}

}  // namespace msdc
