import Foundation
import MSDCCore

#if canImport(SQLite3)
  import SQLite3
#else
  import CSQLite
#endif

// The statements of search.sql by name, without comments: a semicolon in one ends no statement.
private let statements: [String: String] = Dictionary(
  uniqueKeysWithValues: searchSQL.components(separatedBy: "-- name: ").dropFirst().map { part in
    let lines = part.components(separatedBy: "\n")
    return (lines[0], lines.dropFirst().filter { !$0.hasPrefix("--") }.joined(separator: "\n"))
  })

func sql(_ name: String) -> String { statements[name]! }

/// What a query asks for, and what the statement `plan` says of it: the text for the model, the terms one per line.
struct Plan: Sendable {
  let json: String
  let text: String
  let excludes: Bool
  let hasWords: Bool
  let terms: String
}

enum Value {
  case null
  case integer(Int64)
  case real(Double)
  case text(String)
  case blob([Int8])
}

/// One connection. The caller lets one thread at a time use it.
final class Database {
  private var handle: OpaquePointer?
  private let path: String
  private static let copied = unsafeBitCast(-1, to: sqlite3_destructor_type.self)

  init(_ path: String, readOnly: Bool = false) throws {
    self.path = path
    let kind = readOnly ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE
    guard sqlite3_open_v2(path, &handle, kind | SQLITE_OPEN_FULLMUTEX, nil) == SQLITE_OK else { throw failure() }
  }

  deinit { sqlite3_close_v2(handle) }

  struct Row {
    fileprivate let statement: OpaquePointer?

    func integer(_ column: Int32) -> Int64 { sqlite3_column_int64(statement, column) }
    func real(_ column: Int32) -> Double { sqlite3_column_double(statement, column) }
    func isNull(_ column: Int32) -> Bool { sqlite3_column_type(statement, column) == SQLITE_NULL }
    func text(_ column: Int32) -> String {
      String(decoding: blob(column).map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
    func blob(_ column: Int32) -> [Int8] {
      guard let bytes = sqlite3_column_blob(statement, column) else { return [] }
      let count = Int(sqlite3_column_bytes(statement, column))
      return Array(UnsafeRawBufferPointer(start: bytes, count: count).bindMemory(to: Int8.self))
    }
  }

  func run(_ sql: String, _ values: [Value] = [], row: (Row) throws -> Void = { _ in }) throws {
    var statement: OpaquePointer?
    guard sqlite3_prepare_v2(handle, sql, -1, &statement, nil) == SQLITE_OK else { throw failure() }
    defer { sqlite3_finalize(statement) }
    for (before, value) in values.enumerated() {
      let at = Int32(before + 1)
      switch value {
      case .null: sqlite3_bind_null(statement, at)
      case .integer(let number): sqlite3_bind_int64(statement, at, number)
      case .real(let number): sqlite3_bind_double(statement, at, number)
      case .text(let text): sqlite3_bind_text(statement, at, text, Int32(text.utf8.count), Database.copied)
      case .blob(let bytes): sqlite3_bind_blob(statement, at, bytes, Int32(bytes.count), Database.copied)
      }
    }
    while true {
      switch sqlite3_step(statement) {
      case SQLITE_ROW: try row(Row(statement: statement))
      case SQLITE_DONE: return
      default: throw failure()
      }
    }
  }

  func number(_ sql: String, _ values: [Value] = []) throws -> Int64 {
    var number: Int64 = 0
    try run(sql, values) { number = $0.integer(0) }
    return number
  }

  func texts(_ sql: String, _ values: [Value] = []) throws -> [String] {
    var texts: [String] = []
    try run(sql, values) { texts.append($0.text(0)) }
    return texts
  }

  func plan(_ json: String) throws -> Plan {
    var plans: [Plan] = []
    try run(sql("plan"), [.text(json)]) {
      plans.append(
        Plan(
          json: json, text: $0.text(0), excludes: $0.integer(1) != 0, hasWords: $0.integer(2) != 0, terms: $0.text(3)))
    }
    return plans[0]
  }

  /// Runs the statements of search.sql that have one name.
  func runAll(_ name: String) throws {
    for statement in sql(name).components(separatedBy: ";\n") where statement.contains(where: { !$0.isWhitespace }) {
      try run(statement)
    }
  }

  private func failure() -> EncoderError {
    let message = sqlite3_errmsg(handle).map { String(cString: $0) } ?? "cannot be opened"
    if message.contains("UNIQUE constraint") {
      return .badArgument("\(path): a document of this id is there already; use update")
    }
    if message.contains("no such table") { return .damaged("\(path): not a search index") }
    if message.contains("metadata_is") { return .badArgument("\(path): metadata that is not a JSON object") }
    let code = sqlite3_errcode(handle) & 0xFF
    if code == SQLITE_CORRUPT || code == SQLITE_NOTADB { return .damaged("\(path): damaged (\(message))") }
    return .io("\(path): \(message)")
  }
}
