// The SQLite file of an index: checks, copies, what belongs to its write-ahead log.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "database.h"

namespace msdc {

struct OpenOptions {
  std::string path;        // empty: in memory
  std::string_view bytes;  // of a file, for an index in memory
  bool is_read_only = false;
  bool checks = true;  // compare all content with its checksums
  int32_t lock_ms = 60000;
};

// The fields of an entry that a hit shows; `id` may be empty before it is written.
struct Document {
  std::string id, text, title, metadata = "{}";
};

// CRC-32 of bytes, begun with the value `start`.
uint32_t crc_of(std::string_view bytes, uint32_t start = 0);
// The checksum of a document.
uint32_t crc_of(const Document& document);
// The checksum of a passage in the table `passages`, and, with its vector, in the table `rebuilt`.
uint32_t crc_of_passage(int64_t document, int64_t start, int64_t end, double scale = 0, std::string_view codes = {});

// The document of five columns from `first` on, the last of which is its checksum. Throws Failure(MSDC_DAMAGED).
Document read_document(const Database& database, const Row& row, int first = 0);

class IndexFile {
 public:
  // Throws Failure: another kind of file, damage, a version that is not read, a log without its file.
  explicit IndexFile(const OpenOptions& options);
  ~IndexFile();

  Database& database() { return *database_; }
  const std::string& label() const { return label_; }
  bool is_in_memory() const { return path_.empty(); }
  // Whether there are no tables yet: they are created with the first documents.
  bool is_empty() { return database_->is_empty(); }

  // Compare the version, and with `full` all content with its checksums.
  void check(bool full);
  // The file of the path is still the one that is open.
  void require_same_file() const;
  // Before a transaction that writes: refuses a file that is only read, and begins a write-ahead log.
  void prepare_to_write();
  // Move what is in the write-ahead log to the file, so that a copy of the file alone has it. Nothing is lost if another
  // connection prevents it: the log is read together with the file.
  void checkpoint();
  // Write a copy of one state to a new file.
  void backup(const std::string& path);
  // The content of a file in memory.
  void bytes(const std::function<void(std::string_view)>& on_bytes);
  // Give the space of removed documents back.
  void compact();

 private:
  void open(const OpenOptions& options);
  void check_content();
  void copy();
  std::string log_path() const { return path_ + "-wal"; }

  std::string path_, label_;
  int32_t lock_ms_;
  bool is_read_only_, has_log_ = false;
  std::pair<uint64_t, uint64_t> identity_{0, 0};  // device and number of the file
  std::unique_ptr<Database> database_;
};

}  // namespace msdc
