#include "database.h"

#include <utility>

#include "failure.h"

namespace msdc {

namespace {

// Written from search.sql when the core is built.
constexpr char kSearchSql[] =
#include "search_sql.h"
    ;
constexpr std::string_view kName = "-- name: ";

// The statements of search.sql by name.
const std::map<std::string, std::string, std::less<>>& named_statements() {
  static const auto statements = [] {
    std::map<std::string, std::string, std::less<>> out;
    const std::string_view file = kSearchSql;
    for (size_t start = file.find(kName); start != file.npos;) {
      const size_t line = file.find('\n', start), next = file.find(kName, line);
      out.emplace(file.substr(start + kName.size(), line - start - kName.size()),
                  file.substr(line + 1, next == file.npos ? file.npos : next - line - 1));
      start = next;
    }
    return out;
  }();
  return statements;
}

// The SQL of a name; other text is SQL itself.
std::string_view sql_of(std::string_view statement) {
  const auto& statements = named_statements();
  const auto entry = statements.find(statement);
  return entry == statements.end() ? statement : std::string_view(entry->second);
}

bool is_full(int code) {
  return (code & 0xFF) == SQLITE_FULL || code == SQLITE_IOERR_WRITE || code == SQLITE_IOERR_FSYNC ||
         code == SQLITE_IOERR_TRUNCATE || code == SQLITE_IOERR_SHMSIZE || code == SQLITE_IOERR_SHMOPEN ||
         code == SQLITE_IOERR_SHMMAP;
}

}  // namespace

Database::Database(const std::string& file, int flags, std::string label, int32_t lock_ms)
    : label_(std::move(label)), lock_ms_(lock_ms) {
  // Calls wait for each other on the index's own mutex.
  const int code = sqlite3_open_v2(file.c_str(), &connection_, flags | SQLITE_OPEN_NOMUTEX, nullptr);
  if (connection_ == nullptr) throw std::bad_alloc();
  try {
    sqlite3_extended_result_codes(connection_, 1);
    if (code != SQLITE_OK) fail();
    // The plan of a statement is that of its text: with other values newer releases would prepare it again.
    sqlite3_db_config(connection_, SQLITE_DBCONFIG_ENABLE_QPSG, 1, nullptr);
    wait_for_locks(lock_ms);
    run("PRAGMA foreign_keys = ON");
  } catch (...) {
    sqlite3_close(connection_);
    throw;
  }
}

Database::~Database() {
  for (const auto& [name, statement] : statements_) sqlite3_finalize(statement);
  sqlite3_close(connection_);
}

void Database::fail() const {
  const int code = sqlite3_extended_errcode(connection_);
  const std::string message = sqlite3_errmsg(connection_);
  const auto raise = [&](msdc_status status, const std::string& line) { msdc::fail(status, line); };
  if (is_full(code)) raise(MSDC_FULL, "disk full while writing " + label_ + ": free some space and run again");
  switch (code & 0xFF) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      raise(MSDC_LOCKED, label_ + ": another process has held the lock for " + std::to_string(lock_ms_ / 1000) + " s");
      break;
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM:
      raise(MSDC_READ_ONLY, "cannot write " + label_ + ": " + message);
      break;
    case SQLITE_CONSTRAINT:
      raise(MSDC_BAD_ARGUMENT, label_ + ": " + (message.find("metadata_is_a_json_object") == message.npos
                                                    ? message
                                                    : "metadata that is not a JSON object"));
      break;
    case SQLITE_INTERRUPT:
      raise(MSDC_CANCELLED, label_ + ": " + message);
      break;
    case SQLITE_NOMEM:
      throw std::bad_alloc();
    default:
      break;
  }
  if (message.find("no such table") != message.npos) {
    raise(MSDC_DAMAGED, label_ + ": exists and is not a search index; choose another file");
  }
  damaged(message);
}

void Database::damaged(const std::string& what) const { msdc::damaged(label_ + ": damaged (" + what + ")"); }

Database::Cursor::Cursor(Database& database, std::string_view name, std::initializer_list<Argument> arguments)
    : database_(database) {
  const auto entry = database.statements_.find(name);
  if (entry != database.statements_.end()) {
    statement_ = entry->second;
  } else {
    const std::string_view text = sql_of(name);
    if (sqlite3_prepare_v3(database.connection_, text.data(), static_cast<int>(text.size()), SQLITE_PREPARE_PERSISTENT,
                           &statement_, nullptr) != SQLITE_OK) {
      database.fail();
    }
    database.statements_.emplace(name, statement_);
  }
  int number = 0;
  for (const Argument& argument : arguments) {
    ++number;
    const int size = static_cast<int>(argument.bytes.size());
    // A null pointer would be null, not an empty text.
    const char* const bytes = size == 0 ? "" : argument.bytes.data();
    int code = SQLITE_OK;
    switch (argument.kind) {
      case Argument::Kind::null: code = sqlite3_bind_null(statement_, number); break;
      case Argument::Kind::integer: code = sqlite3_bind_int64(statement_, number, argument.integer); break;
      case Argument::Kind::real: code = sqlite3_bind_double(statement_, number, argument.real); break;
      case Argument::Kind::text: code = sqlite3_bind_text(statement_, number, bytes, size, SQLITE_STATIC); break;
      case Argument::Kind::blob: code = sqlite3_bind_blob(statement_, number, bytes, size, SQLITE_STATIC); break;
    }
    if (code != SQLITE_OK) database.fail();
  }
}

bool Database::Cursor::step() const {
  const int code = sqlite3_step(statement_);
  if (code != SQLITE_ROW && code != SQLITE_DONE) database_.fail();
  return code == SQLITE_ROW;
}

void Database::run(std::string_view statement, std::initializer_list<Argument> arguments) {
  each(statement, arguments, [](const Row&) {});
}

void Database::run_all(std::string_view name) {
  const std::string text(sql_of(name));
  if (sqlite3_exec(connection_, text.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) fail();
}

std::optional<int64_t> Database::integer(std::string_view statement, std::initializer_list<Argument> arguments) {
  std::optional<int64_t> out;
  each(statement, arguments, [&](const Row& row) {
    if (!row.is_null(0)) out = row.integer(0);
    return false;
  });
  return out;
}

std::optional<std::string> Database::text(std::string_view statement, std::initializer_list<Argument> arguments) {
  std::optional<std::string> out;
  each(statement, arguments, [&](const Row& row) {
    if (!row.is_null(0)) out = row.text(0);
    return false;
  });
  return out;
}

bool Database::has_row(std::string_view statement, std::initializer_list<Argument> arguments) {
  bool out = false;
  each(statement, arguments, [&](const Row&) {
    out = true;
    return false;
  });
  return out;
}

bool Database::is_empty() {
  if (!has_tables_) {
    forget_pages();
    has_tables_ = has_row("SELECT 1 FROM sqlite_master");
  }
  return !has_tables_;
}

void Database::forget_pages() {
  if (!has_tables_) sqlite3_db_release_memory(connection_);
}

Transaction::Transaction(Database& database, bool writes) : database_(&database) {
  database.forget_pages();
  database.run(writes ? "BEGIN IMMEDIATE" : "BEGIN DEFERRED");
}

Transaction::~Transaction() {
  if (database_ == nullptr) return;
  sqlite3* const connection = database_->connection();
  // An error may have ended it already.
  if (sqlite3_get_autocommit(connection) == 0) sqlite3_exec(connection, "ROLLBACK", nullptr, nullptr, nullptr);
}

void Transaction::commit() {
  database_->run("COMMIT");
  database_ = nullptr;
}

const SearchConstants& search_constants() {
  static SearchConstants constants = [] {
    const std::string_view text = sql_of("constants");
    size_t position = text.find("SELECT");
    const auto next = [&] {
      position = text.find_first_of("0123456789", position);
      size_t number = 0;
      for (; position < text.size() && text[position] >= '0' && text[position] <= '9'; ++position) {
        number = 10 * number + static_cast<size_t>(text[position] - '0');
      }
      return number;
    };
    SearchConstants out;
    out.block = next();
    out.candidates = next();
    return out;
  }();
  return constants;
}

}  // namespace msdc
