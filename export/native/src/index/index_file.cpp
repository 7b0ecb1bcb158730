#include "index_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <new>

#include "blocks.h"
#include "failure.h"
#include "files.h"
#include "search.h"

namespace msdc {

namespace {

constexpr std::string_view kMagic{"SQLite format 3\0", 16};
constexpr int64_t kHeaderBytes = 100;
constexpr size_t kReadVersion = 18, kWriteVersion = 19;  // bytes of the header
constexpr char kLegacy = 1;                              // without a write-ahead log

bool has_content(const std::string& path) { return file_bytes(path) > 0; }

std::string last_part(const std::string& path) { return path.substr(path.find_last_of('/') + 1); }

// Device and number of a file; zeros where there is none.
std::pair<uint64_t, uint64_t> identity_of(const std::string& path) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0) return {0, 0};
  return {static_cast<uint64_t>(status.st_dev), static_cast<uint64_t>(status.st_ino)};
}

// A path as SQLite takes it in a URI.
std::string uri_of(const std::string& path, const char* options) {
  std::string out = "file:";
  for (const char c : path) {
    if (c == '%' || c == '?' || c == '#') {
      char escape[4];
      std::snprintf(escape, sizeof escape, "%%%02X", static_cast<unsigned>(static_cast<unsigned char>(c)));
      out += escape;
    } else {
      out.push_back(c);
    }
  }
  return out + "?" + options;
}

// A file of another kind would be overwritten; SQLite takes one that is shorter than its header for a new one.
void require_index(const std::string& path) {
  const int64_t size = file_bytes(path);
  if (size <= 0) return;
  char start[16] = {};
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) fail(MSDC_READ_ONLY, "cannot read " + path + ": " + std::strerror(errno));
  const size_t count = std::fread(start, 1, sizeof start, file);
  std::fclose(file);
  if (std::string_view(start, count) != kMagic) {
    damaged(path + ": exists and is not a search index; choose another file");
  }
  if (size < kHeaderBytes) damaged(path + ": damaged (" + std::to_string(size) + " bytes)");
}

}  // namespace

uint32_t crc_of(std::string_view bytes, uint32_t start) {
  return crc32(start, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

uint32_t crc_of(const Document& document) {
  const std::string_view zero("\0", 1);
  uint32_t crc = crc_of(document.id);
  for (const std::string* field : {&document.text, &document.title, &document.metadata}) {
    crc = crc_of(*field, crc_of(zero, crc));
  }
  return crc;
}

uint32_t crc_of_passage(int64_t document, int64_t start, int64_t end, double scale, std::string_view codes) {
  char fields[32];  // little-endian, as the devices are
  const int64_t numbers[] = {document, start, end};
  std::memcpy(fields, numbers, sizeof numbers);
  std::memcpy(fields + sizeof numbers, &scale, sizeof scale);
  return crc_of(codes, crc_of({fields, sizeof fields}));
}

Document read_document(const Database& database, const Row& row, int first) {
  Document out{row.text(first), row.text(first + 1), row.text(first + 2), row.text(first + 3)};
  if (crc_of(out) != row.integer(first + 4)) database.damaged("document " + out.id);
  return out;
}

IndexFile::IndexFile(const OpenOptions& options)
    : path_(options.path),
      label_(path_.empty() ? "index" : path_),
      lock_ms_(options.lock_ms),
      is_read_only_(options.is_read_only) {
  open(options);
  if (!path_.empty()) identity_ = identity_of(path_);
}

IndexFile::~IndexFile() { checkpoint(); }

void IndexFile::open(const OpenOptions& options) {
  if (path_.empty()) {
    database_ = std::make_unique<Database>(":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, label_, lock_ms_);
    const size_t size = options.bytes.size();
    if (size == 0) return;
    if (options.bytes.substr(0, kMagic.size()) != kMagic || size < static_cast<size_t>(kHeaderBytes)) {
      damaged(label_ + ": the bytes are no search index");
    }
    auto* bytes = static_cast<unsigned char*>(sqlite3_malloc64(size));
    if (bytes == nullptr) throw std::bad_alloc();
    std::memcpy(bytes, options.bytes.data(), size);
    bytes[kReadVersion] = bytes[kWriteVersion] = static_cast<unsigned char>(kLegacy);  // a log is beside a file only
    const auto bytes_held = static_cast<sqlite3_int64>(size);
    if (sqlite3_deserialize(database_->connection(), "main", bytes, bytes_held, bytes_held,
                            SQLITE_DESERIALIZE_FREEONCLOSE | SQLITE_DESERIALIZE_RESIZEABLE) != SQLITE_OK) {
      database_->fail();
    }
    check(options.checks);
    return;
  }
  require_index(path_);
  // SQLite would delete the log next to a file that is missing or empty, and what is in it.
  if (!has_content(path_) && has_content(log_path())) {
    damaged(path_ + ": empty next to its write-ahead log " + last_part(log_path()) +
            "; put back the file that belongs to it");
  }
  if (is_read_only_ && file_bytes(path_) < 0) damaged(path_ + " is missing");
  const auto unwritable = [&](const Failure& failure) {
    return failure.status == MSDC_READ_ONLY && file_bytes(path_) >= 0;
  };
  // A log is checked with its file before anything can move it there: it may be that of another state.
  if (has_content(log_path()) && !is_read_only_) {
    is_read_only_ = true;
    try {
      database_ = std::make_unique<Database>(path_, SQLITE_OPEN_READONLY, label_, lock_ms_);
      check(options.checks);
    } catch (const Failure& failure) {
      if (!unwritable(failure)) throw;
    }
    is_read_only_ = false;
    database_.reset();
  }
  try {
    const int flags = is_read_only_ ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
    database_ = std::make_unique<Database>(path_, flags, label_, lock_ms_);
    check(options.checks);
  } catch (const Failure& failure) {
    if (!unwritable(failure)) throw;
    copy();
    check(options.checks);
  }
}

// A file that this user cannot write, or in a folder of this kind: as it is now, in memory.
void IndexFile::copy() {
  database_.reset();
  // A write-ahead log is not read with `immutable`, and without it the log's index may have to be written.
  const std::string uri = uri_of(path_, has_content(log_path()) ? "mode=ro" : "immutable=1");
  Database disk(uri, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, label_, lock_ms_);
  database_ = std::make_unique<Database>(":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, label_, lock_ms_);
  sqlite3_backup* backup = sqlite3_backup_init(database_->connection(), "main", disk.connection(), "main");
  if (backup == nullptr) database_->fail();
  sqlite3_backup_step(backup, -1);
  if (sqlite3_backup_finish(backup) != SQLITE_OK) database_->fail();
  is_read_only_ = true;
}

void IndexFile::check(bool full) {
  if (is_empty()) {
    // Tables are written before the write-ahead log begins: a file without them is new, or a cut one.
    const int64_t size = path_.empty() ? 0 : file_bytes(path_);
    if (size > 0 && database_->integer("PRAGMA page_count").value_or(0) > 0) {
      database_->damaged(std::to_string(size) + " bytes without a table");
    }
    return;
  }
  if (const auto problem = database_->text("check", {nullptr})) {
    fail(MSDC_UNSUPPORTED, label_ + ": " + *problem + "; write its documents to a new one");
  }
  if (full) check_content();
  if (is_read_only_) return;
  database_->wait_for_locks(0);
  try {
    database_->run(full ? "check_words" : "DELETE FROM facts WHERE 0");
  } catch (const Failure& failure) {
    database_->wait_for_locks(lock_ms_);
    if (failure.status != MSDC_LOCKED) throw;  // else another process writes, which has checked the file
  }
  database_->wait_for_locks(lock_ms_);
}

void IndexFile::check_content() {
  Transaction transaction(*database_, false);  // one state of the file
  // The check of FTS5 takes the structure of words that this connection read last, whatever other processes have written; a
  // cursor reads it again.
  database_->has_row("SELECT rowid FROM words LIMIT 1");
  if (const auto damage = database_->text("damage")) database_->damaged(*damage);
  database_->each("check_documents", {}, [&](const Row& row) { read_document(*database_, row); });
  check_passages(*database_);
  transaction.commit();
}

void IndexFile::require_same_file() const {
  if (path_.empty() || is_read_only_ || identity_ == std::pair<uint64_t, uint64_t>{0, 0}) return;
  if (identity_of(path_) != identity_) {
    fail(MSDC_REPLACED, path_ + ": replaced or removed since it was opened; open it again");
  }
}

void IndexFile::prepare_to_write() {
  if (is_read_only_) fail(MSDC_READ_ONLY, "cannot write " + label_ + ": read-only");
  require_same_file();
  if (path_.empty() || has_log_ || is_empty()) return;
  // Writers block no reader then; later if another connection has the file open.
  database_->wait_for_locks(0);
  try {
    has_log_ = database_->text("PRAGMA journal_mode = WAL") == "wal";
  } catch (const Failure& failure) {
    database_->wait_for_locks(lock_ms_);
    if (failure.status != MSDC_LOCKED && failure.status != MSDC_READ_ONLY && failure.status != MSDC_FULL) throw;
  }
  database_->wait_for_locks(lock_ms_);
}

void IndexFile::checkpoint() {
  if (path_.empty() || is_read_only_ || database_ == nullptr) return;
  database_->wait_for_locks(0);
  sqlite3_wal_checkpoint_v2(database_->connection(), nullptr, SQLITE_CHECKPOINT_TRUNCATE, nullptr, nullptr);
  database_->wait_for_locks(lock_ms_);
}

void IndexFile::backup(const std::string& path) {
  if (file_bytes(path) >= 0 || identity_of(path) != std::pair<uint64_t, uint64_t>{0, 0}) {
    fail(MSDC_BAD_ARGUMENT, path + " exists already: choose another path");
  }
  const std::string stage = path + ".partial";
  struct Cleanup {
    const std::string& file;
    ~Cleanup() { std::remove(file.c_str()); }
  } cleanup{stage};
  std::remove(stage.c_str());
  if (!is_empty()) database_->run("VACUUM INTO ?1", {stage});
  const int file = ::open(stage.c_str(), O_RDWR | O_CREAT, 0644);
  const bool is_written = file >= 0 && fsync(file) == 0;
  const std::string reason = std::strerror(errno);
  if (file >= 0) ::close(file);
  if (!is_written || std::rename(stage.c_str(), path.c_str()) != 0) {
    fail(MSDC_READ_ONLY, "cannot write " + path + ": " + (is_written ? std::strerror(errno) : reason));
  }
}

void IndexFile::bytes(const std::function<void(std::string_view)>& on_bytes) {
  if (!is_in_memory()) fail(MSDC_BAD_ARGUMENT, label_ + ": a file; copy it with a backup");
  if (is_empty()) return on_bytes({});
  sqlite3_int64 size = 0;
  // SQLite's own buffer where it has one: a copy would be a second one of all documents.
  const unsigned char* content = sqlite3_serialize(database_->connection(), "main", &size, SQLITE_SERIALIZE_NOCOPY);
  std::unique_ptr<unsigned char, void (*)(void*)> copy(nullptr, sqlite3_free);
  if (content == nullptr) {
    copy.reset(sqlite3_serialize(database_->connection(), "main", &size, 0));
    content = copy.get();
  }
  if (content == nullptr) throw std::bad_alloc();
  on_bytes({reinterpret_cast<const char*>(content), static_cast<size_t>(size)});
}

void IndexFile::compact() {
  if (is_read_only_) fail(MSDC_READ_ONLY, "cannot write " + label_ + ": read-only");
  require_same_file();
  if (!is_empty()) {
    database_->run("INSERT INTO words (words) VALUES ('optimize')");
    database_->run("VACUUM");
  }
  checkpoint();
}

}  // namespace msdc
