import Foundation
import MSDCCore

#if canImport(SQLite3)
  import SQLite3
#else
  import CSQLite
#endif

/// A text with its id, a title that may be empty, and a JSON object of values to filter by.
public struct Document: Sendable, Equatable {
  public let id: String
  public let text: String
  public let title: String
  public let metadata: String

  public init(id: String, text: String, title: String = "", metadata: String = "{}") {
    self.id = id
    self.text = text
    self.title = title
    self.metadata = metadata
  }
}

/// A document that was found. `score` ranks it: bm25 of its words + 20 x the cosine of its best passage.
public struct Found: Sendable, Equatable {
  public let document: Document
  public let score: Double
  public let cosine: Double
  public let words: Double
  public let passage: String
}

/// Rank by the words (BM25), by the vectors (cosine of the best passage), or by the sum of both.
public enum Mode: String, Sendable {
  case words, vectors, both
}

/// What a value of the metadata must be: one of some, as text, or a number between two bounds (nil: none).
public enum Filter: Sendable, ExpressibleByStringLiteral, ExpressibleByIntegerLiteral {
  case oneOf([String])
  case between(Double?, Double?)

  public init(stringLiteral value: String) { self = .oneOf([value]) }
  public init(integerLiteral value: Int) { self = .oneOf(["\(value)"]) }
}

/// Documents that are found by words and by meaning: the SQLite file of `msdc search` and `msdc.open_index`, with the same
/// answers. One made on a workstation is opened as it is, and one made here opens there.
///
///     let index = try SearchIndex(file: url, encoder: encoder)
///     try await index.add([Document(id: "n1", text: "The car is on level 2.", metadata: #"{"year": 2026}"#)])
///     let found = try await index.search("Wo ist das Auto?", where: ["year": .between(2026, nil)])
///
/// Uses the system's SQLite. Safe to share between threads.
public final class SearchIndex: @unchecked Sendable {
  private static let format = "2"
  private static let block = 256  // documents that are encoded and written together
  private static let candidates = 1000  // documents of each kind that are ranked together
  private static let weight = 20.0
  private static let schema: [Substring] = """
    CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL)
    CREATE TABLE documents (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, title TEXT NOT NULL, \
    text TEXT NOT NULL, metadata TEXT NOT NULL, crc INTEGER NOT NULL)
    CREATE TABLE passages (id INTEGER PRIMARY KEY AUTOINCREMENT, document INTEGER NOT NULL REFERENCES documents \
    ON DELETE CASCADE, start INTEGER NOT NULL, end INTEGER NOT NULL, scale REAL, vector BLOB, crc INTEGER)
    CREATE INDEX passages_of_document ON passages (document)
    CREATE VIRTUAL TABLE words USING fts5(title, text, tokenize='ascii')
    CREATE TRIGGER removed AFTER DELETE ON documents BEGIN DELETE FROM words WHERE rowid = old.id; END
    """.split(separator: "\n")

  private let encoder: SentenceEncoder
  private let db: Database
  private let path: String
  private let queue = DispatchQueue(label: "org.msdc.search", qos: .userInitiated)
  private let adding = DispatchQueue(label: "org.msdc.search.add", qos: .utility)

  // Passages that have a vector: row, document, and 8-bit numbers with one scale each. Read again after each write.
  private var version: Int64 = -1
  private var rows: [Int64] = []
  private var owners: [Int64] = []
  private var scales: [Float] = []
  private var codes: [Int8] = []

  /// The index in `file`, made if it is not there. A file of the app's bundle must be copied to a writable folder first.
  public init(file: URL, encoder: SentenceEncoder) throws {
    self.encoder = encoder
    path = file.path
    db = try Database(path)
    for set in ["busy_timeout=60000", "journal_mode=WAL", "foreign_keys=ON"] { try db.run("PRAGMA \(set)") }
    let tables = try self.tables()
    guard !tables.isEmpty else { return }
    guard tables.isSuperset(of: ["facts", "documents", "passages", "words"]) else {
      throw EncoderError.damaged("\(path): not a search index")
    }
    let said = try text("PRAGMA quick_check(1)")
    guard said == "ok" else { throw EncoderError.damaged("\(path): damaged (\(said.prefix(100)))") }
    var facts: [String: String] = [:]
    try db.run("SELECT name, value FROM facts") { facts[$0.text(0)] = $0.text(1) }
    guard facts["format"] == SearchIndex.format else {
      throw EncoderError.damaged("\(path): an index of another version of msdc")
    }
    guard facts["source"] == encoder.source || facts["model"] == encoder.source else {
      throw EncoderError.damaged("\(path): made with another \(facts["name"] ?? "model") than this \(encoder.name)")
    }
  }

  /// Number of documents.
  public func count() async throws -> Int {
    try await on(queue) { index in try index.isEmpty() ? 0 : Int(index.number("SELECT count(*) FROM documents")) }
  }

  /// Adds documents and returns their number; an id that is there already is an error. They are written in blocks of 256:
  /// what was added before an error or a cancellation stays.
  @discardableResult
  public func add(_ documents: [Document]) async throws -> Int { try await put(documents, replace: false) }

  /// `add` that replaces documents of the same id.
  @discardableResult
  public func update(_ documents: [Document]) async throws -> Int { try await put(documents, replace: true) }

  /// Removes documents by id; ids that are not there are left alone. Returns how many were removed.
  @discardableResult
  public func remove(_ ids: [String]) async throws -> Int {
    try await on(queue) { index in
      try index.transaction("IMMEDIATE") {
        index.version = -1
        return try index.isEmpty() ? 0 : Set(ids).reduce(0) { try $0 + index.removed($1) }
      }
    }
  }

  /// The `top` documents nearest to `query`, best first. `threshold`: they have at least this cosine. `filter`: values that
  /// the metadata must have. `prompt` is put before the query; nil takes the bundle's default.
  public func search(
    _ query: String, top: Int = 5, mode: Mode = .both, threshold: Float? = nil, where filter: [String: Filter] = [:],
    prompt: String? = nil
  ) async throws -> [Found] {
    guard query.contains(where: { !$0.isWhitespace }) else { throw EncoderError.badArgument("a query is empty") }
    guard top >= 1 else { throw EncoderError.badArgument("top: \(top), expected at least 1") }
    let reads = try mode != .words && encoder.canRead(query)
    let vector = reads ? try await encoder.encode(query, prompt: prompt) : nil
    return try await on(queue) { index in
      try index.transaction("DEFERRED") {
        try index.isEmpty() ? [] : index.found(query, vector, top, mode, threshold, filter)
      }
    }
  }

  private func on<T: Sendable>(_ queue: DispatchQueue, _ work: @escaping @Sendable (SearchIndex) throws -> T) async throws -> T {
    try await withCheckedThrowingContinuation { continuation in
      queue.async { continuation.resume(with: Result { try work(self) }) }
    }
  }

  private func put(_ documents: [Document], replace: Bool) async throws -> Int {
    for one in documents where !one.text.contains(where: { !$0.isWhitespace }) {
      throw EncoderError.badArgument("document \"\(one.id)\" has no text")
    }
    for start in stride(from: 0, to: documents.count, by: SearchIndex.block) {
      let block = Array(documents[start..<min(start + SearchIndex.block, documents.count)])
      let titled = block.contains { !$0.title.isEmpty }
      var made: [[Passage]] = []
      for one in block {
        try Task.checkCancellation()
        made.append(try await on(adding) { try $0.encoder.passages(title: one.title, text: one.text, titled: titled) })
      }
      let passages = made
      try await on(queue) { index in
        try index.transaction("IMMEDIATE") {
          index.version = -1
          try index.create()
          if replace { for one in block { _ = try index.removed(one.id) } }
          for (one, parts) in zip(block, passages) { try index.insert(one, parts) }
        }
      }
    }
    return documents.count
  }

  private func removed(_ id: String) throws -> Int {
    try db.run("DELETE FROM documents WHERE key = ?", [.text(id)])
    return Int(try number("SELECT changes()"))
  }

  /// The tables, created with the first documents.
  private func create() throws {
    guard try isEmpty() else { return }
    for statement in SearchIndex.schema { try db.run(String(statement)) }
    let facts = [
      ("format", SearchIndex.format), ("model", encoder.source), ("name", encoder.name), ("source", encoder.source),
    ]
    for (name, value) in facts { try db.run("INSERT INTO facts VALUES (?, ?)", [.text(name), .text(value)]) }
  }

  private func insert(_ one: Document, _ passages: [Passage]) throws {
    try db.run(
      "INSERT INTO documents (key, title, text, metadata, crc) VALUES (?, ?, ?, ?, ?)",
      [.text(one.id), .text(one.title), .text(one.text), .text(one.metadata), .integer(crc(one))])
    let row = try number("SELECT last_insert_rowid()")
    try db.run(
      "INSERT INTO words (rowid, title, text) VALUES (?, ?, ?)",
      [.integer(row), .text(try searchWords(one.title)), .text(try searchWords(one.text))])
    for part in passages {
      var values: [Value] = [.integer(row), .integer(Int64(part.start)), .integer(Int64(part.end))]
      if part.vector.isEmpty {
        values += [Value.null, Value.null, Value.null]
      } else {
        values += [Value.real(Double(part.scale)), Value.blob(part.vector), Value.integer(crc(row, part.vector))]
      }
      try db.run(
        "INSERT INTO passages (document, start, end, scale, vector, crc) VALUES (?, ?, ?, ?, ?, ?)", values)
    }
  }

  private func found(
    _ query: String, _ vector: [Float]?, _ top: Int, _ mode: Mode, _ threshold: Float?, _ filter: [String: Filter]
  ) throws -> [Found] {
    try refresh()
    let (kept, values) = conditions(filter)
    let filtered = "SELECT id FROM documents WHERE \(kept)"
    let most = max(SearchIndex.candidates, 4 * top)
    let cosines = try vector.map { try int8Cosines($0, codes, scales) } ?? []
    var allowed: Set<Int64>?
    if !filter.isEmpty {
      var ids: Set<Int64> = []
      try db.run(filtered, values) { ids.insert($0.integer(0)) }
      allowed = ids
    }
    // Document -> the place of its best passage.
    var best: [Int64: Int] = [:]
    for place in cosines.indices where allowed?.contains(owners[place]) ?? true {
      if let before = best[owners[place]], cosines[before] >= cosines[place] { continue }
      best[owners[place]] = place
    }
    let ordered = best.keys.sorted { (one: Int64, other: Int64) -> Bool in
      let (mine, its): (Float, Float) = (cosines[best[one]!], cosines[best[other]!])
      return mine != its ? mine > its : one < other
    }
    let near = Array(ordered.prefix(most))
    var words: [Int64: Double] = [:]
    let expression = mode == .vectors ? "" : try searchWords(query, isQuery: true)
    if !expression.isEmpty {
      let ranked = "SELECT rowid, -rank FROM words WHERE words MATCH ?"
      let inside = filter.isEmpty ? "" : " AND rowid IN (\(filtered))"
      var given: [Value] = [.text(expression)]
      if !filter.isEmpty { given.append(contentsOf: values) }
      given.append(.integer(Int64(most)))
      try db.run("\(ranked)\(inside) ORDER BY rank LIMIT ?", given) { words[$0.integer(0)] = $0.real(1) }
      if words.count == most {
        // Below the best by words: bm25 of those that are near in meaning.
        let others = near.filter { words[$0] == nil }.map(String.init).joined(separator: ",")
        try db.run("\(ranked) AND rowid IN (SELECT value FROM json_each(?))", [.text(expression), .text("[\(others)]")]) {
          words[$0.integer(0)] = $0.real(1)
        }
      }
    }
    let weight = mode == .both ? SearchIndex.weight : 1
    func cosine(_ row: Int64) -> Double? { best[row].map { Double(cosines[$0]) } }
    var scores: [Int64: Double] = [:]
    for row in near + Array(words.keys) {
      let near = cosine(row) ?? -1
      if let threshold, mode != .words, near < Double(threshold) { continue }
      let score: Double = (words[row] ?? 0) + weight * (cosine(row) ?? 0)
      scores[row] = rounded(score)
    }
    let ranked = scores.keys.sorted { (one: Int64, other: Int64) -> Bool in
      let (mine, its): (Double, Double) = (scores[one]!, scores[other]!)
      return mine != its ? mine > its : one < other
    }
    return try ranked.prefix(top).map { row in
      try hit(row, scores[row]!, cosine(row) ?? 0, words[row] ?? 0, best[row])
    }
  }

  private func hit(_ row: Int64, _ score: Double, _ cosine: Double, _ words: Double, _ place: Int?) throws -> Found {
    var read: (Document, Int64)?
    try db.run("SELECT key, text, title, metadata, crc FROM documents WHERE id = ?", [.integer(row)]) {
      read = (Document(id: $0.text(0), text: $0.text(1), title: $0.text(2), metadata: $0.text(3)), $0.integer(4))
    }
    guard let (one, written) = read, crc(one) == written else {
      throw EncoderError.damaged("\(path): damaged (document \(read?.0.id ?? "\(row)"))")
    }
    var passage = one.text
    if let place {
      var span: (Int, Int)?
      try db.run("SELECT start, end FROM passages WHERE id = ?", [.integer(rows[place])]) {
        span = (Int($0.integer(0)), Int($0.integer(1)))
      }
      let scalars = one.text.unicodeScalars
      guard let (start, end) = span, start >= 0, start <= end, end <= scalars.count else {
        throw EncoderError.damaged("\(path): damaged (a passage outside document \(one.id))")
      }
      passage = String(String.UnicodeScalarView(scalars.dropFirst(start).prefix(end - start)))
    }
    return Found(document: one, score: score, cosine: rounded(cosine), words: rounded(words), passage: passage)
  }

  private func refresh() throws {
    let now = try number("PRAGMA data_version")
    guard now != version else { return }
    version = -1
    rows = []
    owners = []
    scales = []
    codes = []
    var wrong: Int64?
    try db.run("SELECT id, document, scale, vector, crc FROM passages WHERE vector IS NOT NULL ORDER BY id") {
      let vector = $0.blob(3)
      if vector.count != encoder.width || crc($0.integer(1), vector) != $0.integer(4) { wrong = wrong ?? $0.integer(0) }
      rows.append($0.integer(0))
      owners.append($0.integer(1))
      scales.append(Float($0.real(2)))
      codes.append(contentsOf: vector)
    }
    if let wrong { throw EncoderError.damaged("\(path): damaged (the vector of passage \(wrong))") }
    version = now
  }

  private func tables() throws -> Set<String> {
    var found: Set<String> = []
    try db.run("SELECT name FROM sqlite_master WHERE type = 'table'") { found.insert($0.text(0)) }
    return found
  }

  private func isEmpty() throws -> Bool { try number("SELECT count(*) FROM sqlite_master") == 0 }

  private func number(_ sql: String) throws -> Int64 {
    var found: Int64 = 0
    try db.run(sql) { found = $0.integer(0) }
    return found
  }

  private func text(_ sql: String) throws -> String {
    var found = ""
    try db.run(sql) { found = $0.text(0) }
    return found
  }

  private func transaction<T>(_ kind: String, _ work: () throws -> T) throws -> T {
    try db.run("BEGIN \(kind)")
    do {
      let made = try work()
      try db.run("COMMIT")
      return made
    } catch {
      try? db.run("ROLLBACK")
      throw error
    }
  }
}

// A document's checksum: CRC-32 of its fields with zeros between.
private func crc(_ one: Document) -> Int64 {
  let bytes = Array([one.id, one.text, one.title, one.metadata].joined(separator: "\0").utf8)
  return Int64(msdc_crc32(0, bytes, bytes.count))
}

private func crc(_ row: Int64, _ vector: [Int8]) -> Int64 {
  Int64(msdc_crc32(UInt32(truncatingIfNeeded: row), vector, vector.count))
}

private func rounded(_ number: Double) -> Double { (number * 1e4).rounded(.toNearestOrEven) / 1e4 }

private func int8Cosines(_ query: [Float], _ codes: [Int8], _ scales: [Float]) throws -> [Float] {
  var cosines = [Float](repeating: 0, count: scales.count)
  var line = [CChar](repeating: 0, count: 256)
  let status = msdc_int8_cosines(query, query.count, codes, scales, scales.count, &cosines, &line, line.count)
  guard status == MSDC_OK else { throw EncoderError(status: status, line: text(of: line)) }
  return cosines
}

/// The words of a text as the index stores them; of a query, FTS5's expression for any of them.
private func searchWords(_ given: String, isQuery: Bool = false) throws -> String {
  var found = ""
  var line = [CChar](repeating: 0, count: 256)
  let status = withUnsafeMutablePointer(to: &found) {
    msdc_search_words(given, given.utf8.count, isQuery ? 1 : 0, keepText, $0, &line, line.count)
  }
  guard status == MSDC_OK else { throw EncoderError(status: status, line: text(of: line)) }
  return found
}

private func keepText(context: UnsafeMutableRawPointer?, text: UnsafePointer<CChar>?, size: Int) {
  guard let context, let text else { return }
  let bytes = UnsafeRawBufferPointer(start: text, count: size)
  context.assumingMemoryBound(to: String.self).pointee = String(decoding: bytes, as: UTF8.self)
}

/// SQL of a filter, as `conditions` of the Python package has it.
private func conditions(_ filter: [String: Filter]) -> (String, [Value]) {
  var parts = ["1"]
  var values: [Value] = []
  for (name, wanted) in filter {
    let path = Value.text("$.\"\(name.replacingOccurrences(of: "\"", with: ""))\"")
    switch wanted {
    case .between(let least, let most):
      for (sign, bound) in [(">=", least), ("<=", most)] {
        guard let bound else { continue }
        parts.append("CAST(json_extract(metadata, ?) AS REAL) \(sign) ?")
        values += [path, .real(bound)]
      }
    case .oneOf(let some):
      let places = some.map { _ in "?" }.joined(separator: ", ")
      parts.append("CAST(json_extract(metadata, ?) AS TEXT) IN (\(places))")
      values.append(path)
      for one in some { values.append(.text(one)) }
    }
  }
  return (parts.joined(separator: " AND "), values)
}

enum Value {
  case null
  case integer(Int64)
  case real(Double)
  case text(String)
  case blob([Int8])
}

/// One connection. The caller lets one thread at a time use it.
private final class Database {
  private var handle: OpaquePointer?
  private let path: String
  private static let copied = unsafeBitCast(-1, to: sqlite3_destructor_type.self)

  init(_ path: String) throws {
    self.path = path
    let flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX
    guard sqlite3_open_v2(path, &handle, flags, nil) == SQLITE_OK else { throw failure() }
  }

  deinit { sqlite3_close_v2(handle) }

  struct Row {
    fileprivate let statement: OpaquePointer?

    func integer(_ column: Int32) -> Int64 { sqlite3_column_int64(statement, column) }
    func real(_ column: Int32) -> Double { sqlite3_column_double(statement, column) }
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

  private func failure() -> EncoderError {
    let said = sqlite3_errmsg(handle).map { String(cString: $0) } ?? "cannot be opened"
    if said.contains("UNIQUE constraint") {
      return .badArgument("\(path): a document of this id is there already; use update")
    }
    let code = sqlite3_errcode(handle) & 0xFF
    if code == SQLITE_CORRUPT || code == SQLITE_NOTADB { return .damaged("\(path): damaged (\(said))") }
    return .io("\(path): \(said)")
  }
}
