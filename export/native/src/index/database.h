// A connection to SQLite and the statements of search.sql, by name. SQLite's errors become Failure.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "sqlite3.h"

namespace msdc {

// A value of a statement, which outlives the call.
struct Argument {
  enum class Kind { null, integer, real, text, blob };

  Argument(std::nullptr_t) {}
  Argument(int64_t number) : kind(Kind::integer), integer(number) {}
  Argument(double number) : kind(Kind::real), real(number) {}
  Argument(std::string_view text) : kind(Kind::text), bytes(text) {}
  Argument(const std::string& text) : Argument(std::string_view(text)) {}
  Argument(const char* text) : Argument(std::string_view(text)) {}
  // Null where there is no text.
  Argument(const std::optional<std::string>& text) {
    if (text) *this = Argument(*text);
  }
  static Argument blob(std::string_view bytes) {
    Argument out(bytes);
    out.kind = Kind::blob;
    return out;
  }

  Kind kind = Kind::null;
  int64_t integer = 0;
  double real = 0;
  std::string_view bytes;
};

// A row of a statement; its bytes are valid until the next one.
class Row {
 public:
  explicit Row(sqlite3_stmt* statement) : statement_(statement) {}
  bool is_null(int column) const { return sqlite3_column_type(statement_, column) == SQLITE_NULL; }
  int64_t integer(int column) const { return sqlite3_column_int64(statement_, column); }
  double real(int column) const { return sqlite3_column_double(statement_, column); }
  std::string_view bytes(int column) const {
    const void* start = sqlite3_column_blob(statement_, column);
    return {static_cast<const char*>(start), static_cast<size_t>(sqlite3_column_bytes(statement_, column))};
  }
  std::string text(int column) const { return std::string(bytes(column)); }

 private:
  sqlite3_stmt* statement_;
};

class Database {
 public:
  // `file` and `flags` as sqlite3_open_v2 takes them; `label` names the file in messages. A statement waits `lock_ms` for
  // another connection's lock.
  Database(const std::string& file, int flags, std::string label, int32_t lock_ms);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  sqlite3* connection() const { return connection_; }
  int32_t lock_ms() const { return lock_ms_; }
  const std::string& label() const { return label_; }

  // Calls `on_row` for each row of a statement: a name of search.sql, or SQL. Where it returns a bool, false ends it.
  template <typename OnRow>
  void each(std::string_view statement, std::initializer_list<Argument> arguments, const OnRow& on_row) {
    const Cursor cursor(*this, statement, arguments);
    while (cursor.step()) {
      if constexpr (std::is_same_v<decltype(on_row(cursor.row())), bool>) {
        if (!on_row(cursor.row())) return;
      } else {
        on_row(cursor.row());
      }
    }
  }
  void run(std::string_view statement, std::initializer_list<Argument> arguments = {});
  // All statements of one name, or SQL.
  void run_all(std::string_view name);
  // The first value of the first row; none without a row, or where it is null.
  std::optional<int64_t> integer(std::string_view statement, std::initializer_list<Argument> arguments = {});
  std::optional<std::string> text(std::string_view statement, std::initializer_list<Argument> arguments = {});
  bool has_row(std::string_view statement, std::initializer_list<Argument> arguments = {});
  // Whether there are no tables yet.
  bool is_empty();
  // While there are none: after a disk was full, SQLite would take its page of the file that it could not create for that of
  // the one that another connection creates, since both have the change counter 1.
  void forget_pages();
  void wait_for_locks(int32_t milliseconds) { sqlite3_busy_timeout(connection_, milliseconds); }

  // SQLite's last error as a Failure.
  [[noreturn]] void fail() const;
  // The file is damaged.
  [[noreturn]] void damaged(const std::string& what) const;

 private:
  // A statement with its arguments, reset at the end.
  class Cursor {
   public:
    Cursor(Database& database, std::string_view statement, std::initializer_list<Argument> arguments);
    ~Cursor() { sqlite3_reset(statement_); }
    Cursor(const Cursor&) = delete;
    Cursor& operator=(const Cursor&) = delete;
    bool step() const;
    Row row() const { return Row(statement_); }

   private:
    const Database& database_;
    sqlite3_stmt* statement_;
  };

  sqlite3* connection_ = nullptr;
  std::string label_;
  int32_t lock_ms_;
  bool has_tables_ = false;
  std::map<std::string, sqlite3_stmt*, std::less<>> statements_;
};

// A transaction, rolled back unless it is committed.
class Transaction {
 public:
  Transaction(Database& database, bool writes);
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  void commit();

 private:
  Database* database_;
};

// The numbers of the statement `constants`.
struct SearchConstants {
  size_t block, candidates;
};
const SearchConstants& search_constants();

}  // namespace msdc
