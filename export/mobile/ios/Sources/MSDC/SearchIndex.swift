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

/// What a value of the metadata must be: one of some, or between two bounds (nil: none). Numbers compare as numbers, also
/// those in texts ("4" is 4.0); other texts as text, so that dates sort.
public enum Filter: Sendable, ExpressibleByStringLiteral, ExpressibleByIntegerLiteral {
  case oneOf([String])
  case between(Double?, Double?)
  case range(String?, String?)

  public init(stringLiteral value: String) { self = .oneOf([value]) }
  public init(integerLiteral value: Int) { self = .oneOf(["\(value)"]) }

  fileprivate var texts: [String] {
    switch self {
    case .oneOf(let some): return some
    case .between: return []
    case .range(let least, let most): return [least, most].compactMap { $0 }
    }
  }

  // For the statement `filter`.
  fileprivate var ranges: [Any] {
    switch self {
    case .oneOf(let some): return some
    case .between(let least, let most): return [[orNull(least), orNull(most)]]
    case .range(let least, let most): return [[orNull(least), orNull(most)]]
    }
  }
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
  private static let block = 256  // documents that are encoded and written together
  private static let candidates = 1000  // documents of each kind that are ranked together
  // The statements of search.sql by name.
  private static let statements: [String: String] = Dictionary(
    uniqueKeysWithValues: searchSQL.components(separatedBy: "-- name: ").dropFirst().map { part in
      let end = part.firstIndex(of: "\n")!
      return (String(part[..<end]), String(part[part.index(after: end)...]))
    })

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
    // Shorter than its header: SQLite would take the shortest for a new file.
    let size = ((try? FileManager.default.attributesOfItem(atPath: file.path))?[.size] as? NSNumber)?.intValue ?? 0
    guard size == 0 || size >= 100 else { throw EncoderError.damaged("\(file.path): damaged (\(size) bytes)") }
    db = try Database(path)
    for set in ["busy_timeout=60000", "journal_mode=WAL", "foreign_keys=ON"] { try db.run("PRAGMA \(set)") }
    try check()
  }

  /// Compares the file with its checksums.
  private func check() throws {
    guard try !isEmpty() else { return }
    let wrong = try db.texts(sql("check"), [.text(encoder.source)]).first { !$0.isEmpty } ?? db.texts(sql("strays")).first
    if let wrong { throw damaged(wrong) }
    try db.run(sql("check_words"))
    try db.run(sql("check_documents")) { _ = try document($0) }
  }

  private func damaged(_ what: String) -> EncoderError { EncoderError.damaged("\(path): \(what)") }

  private func sql(_ name: String) -> String { SearchIndex.statements[name]! }

  /// A document of columns 0 to 3 whose checksum is column 4.
  private func document(_ row: Database.Row) throws -> Document {
    let one = Document(id: row.text(0), text: row.text(1), title: row.text(2), metadata: row.text(3))
    guard crc(one) == row.integer(4) else { throw damaged("damaged (document \(one.id))") }
    return one
  }

  /// Number of documents.
  public func count() async throws -> Int {
    try await on(queue) { index in try index.isEmpty() ? 0 : Int(index.db.number("SELECT count(*) FROM documents")) }
  }

  /// Adds documents and returns their number; an id that is there already is an error. They are written in blocks of 256:
  /// what was added before an error or a cancellation stays.
  @discardableResult
  public func add(_ documents: [Document]) async throws -> Int { try await put(documents, replace: false) }

  /// `add` that replaces documents of the same id; of one id in `documents` the last stays.
  @discardableResult
  public func update(_ documents: [Document]) async throws -> Int { try await put(documents, replace: true) }

  /// Removes documents by id; ids that are not there are left alone. Returns how many were removed.
  @discardableResult
  public func remove(_ ids: [String]) async throws -> Int {
    try requireKeys(ids)
    return try await on(queue) { index in
      try index.transaction("IMMEDIATE") {
        index.version = -1
        return try index.isEmpty() ? 0 : index.removed(ids)
      }
    }
  }

  /// The `top` documents nearest to `query`, best first. `threshold`: they have at least this cosine. `filter`: values that
  /// the metadata must have by name; a name that no document has is an error. `prompt` is put before the query; nil takes the bundle's default.
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
    try requireKeys(documents.map(\.id))
    for start in stride(from: 0, to: documents.count, by: SearchIndex.block) {
      var block = Array(documents[start..<min(start + SearchIndex.block, documents.count)])
      if replace { block = block.indices.filter { at in !block[(at + 1)...].contains { $0.id == block[at].id } }.map { block[$0] } }
      var made: [[Passage]] = []
      for one in block {
        try Task.checkCancellation()
        made.append(try await on(adding) { try $0.encoder.passages(title: one.title, text: one.text) })
      }
      let (kept, passages) = (block, made)
      try await on(queue) { index in
        try index.transaction("IMMEDIATE") {
          index.version = -1
          try index.create()
          if replace { _ = try index.removed(kept.map(\.id)) }
          for (one, parts) in zip(kept, passages) { try index.insert(one, parts) }
        }
      }
    }
    return documents.count
  }

  private func removed(_ ids: [String]) throws -> Int {
    try db.run(sql("remove"), [.text(json(ids))])
    return Int(try db.number("SELECT changes()"))
  }

  /// The tables, created with the first documents.
  private func create() throws {
    guard try isEmpty() else { return }
    for statement in sql("schema").components(separatedBy: ";\n") where statement.contains(where: { !$0.isWhitespace }) {
      try db.run(statement)
    }
    try db.run(sql("add_facts"), [.text(encoder.source), .text(encoder.name), .text(encoder.source)])
  }

  private func insert(_ one: Document, _ passages: [Passage]) throws {
    try db.run(
      sql("add_document"), [.text(one.id), .text(one.text), .text(one.title), .text(one.metadata), .integer(crc(one))])
    let row = try db.number("SELECT last_insert_rowid()")
    try db.run(
      sql("add_words"), [.integer(row), .text(try searchWords(one.title)), .text(try searchWords(one.text))])
    for part in passages {
      let span = (Int64(part.start), Int64(part.end))
      let read = !part.vector.isEmpty
      let values: [Value] = [
        .integer(row), .integer(span.0), .integer(span.1), read ? .real(Double(part.scale)) : .null,
        read ? .blob(part.vector) : .null,
        .integer(crc(row, span.0, span.1, read ? Double(part.scale) : 0, part.vector)),
      ]
      try db.run(sql("add_passage"), values)
    }
  }

  private func found(
    _ query: String, _ vector: [Float]?, _ top: Int, _ mode: Mode, _ threshold: Float?, _ filter: [String: Filter]
  ) throws -> [Found] {
    if vector != nil { try refresh() }
    let most = max(SearchIndex.candidates, 4 * top)
    let cosines = try vector.map { try int8Cosines($0, codes, scales) } ?? []
    let allowed = filter.isEmpty ? nil : try self.allowed(filter)
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
      let inside: Value = allowed.map { .text(json(Array($0))) } ?? .null
      let values: [Value] = [.text(expression), inside, .integer(Int64(most)), .text(json(near))]
      try db.run(sql("words"), values) { words[$0.integer(0)] = $0.real(1) }
    }
    let rows = Set(near).union(words.keys).map { row in
      [row, orNull(best[row].map { Double(cosines[$0]) }), orNull(words[row])] as [Any]
    }
    let least: Value = threshold.map { .real(Double($0)) } ?? .null
    var ranked: [Found] = []
    try db.run(sql("ranked"), [.text(json(rows)), .text(mode.rawValue), least, .integer(Int64(top))]) {
      try ranked.append(hit($0.integer(0), $0.real(1), $0.real(2), $0.real(3), best[$0.integer(0)]))
    }
    return ranked
  }

  /// The documents that a filter keeps.
  private func allowed(_ filter: [String: Filter]) throws -> Set<Int64> {
    for name in filter.keys where name.contains("\"") {
      throw EncoderError.badArgument("filter \(name): a name with a double quote")
    }
    try requireKeys(filter.flatMap { name, wanted in [name] + wanted.texts })
    let parts = json(filter.mapValues { $0.ranges })
    var found: Set<Int64> = []
    try db.run(sql("filter"), [.text(parts)]) { found.insert($0.integer(0)) }
    if found.isEmpty {
      try db.run(sql("unknown"), [.text(parts)]) {
        throw EncoderError.badArgument("no column \($0.text(0)) to filter by (columns: \($0.text(1)))")
      }
    }
    return found
  }

  private func hit(_ row: Int64, _ score: Double, _ cosine: Double, _ words: Double, _ place: Int?) throws -> Found {
    var found: Found?
    try db.run(sql("hit"), [.integer(row), place.map { .integer(rows[$0]) } ?? .null]) {
      let one = try document($0)
      var passage = one.text
      if place != nil {
        let (start, end) = (Int($0.integer(5)), Int($0.integer(6)))
        let scalars = one.text.unicodeScalars
        guard start >= 0, start < end, end <= scalars.count else {
          throw damaged("damaged (a passage outside document \(one.id))")
        }
        passage = String(String.UnicodeScalarView(scalars.dropFirst(start).prefix(end - start)))
      }
      found = Found(document: one, score: score, cosine: cosine, words: words, passage: passage)
    }
    guard let found else { throw damaged("damaged (words of a document that is not there)") }
    return found
  }

  private func refresh() throws {
    let now = try db.number("PRAGMA data_version")
    guard now != version else { return }
    version = -1
    rows = []
    owners = []
    scales = []
    codes = []
    try db.run(sql("vectors"), [.integer(0)]) {
      let vector = $0.blob(5)
      let sum = crc($0.integer(1), $0.integer(2), $0.integer(3), $0.real(4), vector)
      guard sum == $0.integer(6), vector.isEmpty || vector.count == encoder.width else {
        throw damaged("damaged (the vector of passage \($0.integer(0)))")
      }
      if vector.isEmpty { return }
      rows.append($0.integer(0))
      owners.append($0.integer(1))
      scales.append(Float($0.real(4)))
      codes.append(contentsOf: vector)
    }
    version = now
  }

  private func isEmpty() throws -> Bool { try db.number("SELECT count(*) FROM sqlite_master") == 0 }

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

// A passage's: of document, start, end, scale (0 without a vector) and vector.
private func crc(_ document: Int64, _ start: Int64, _ end: Int64, _ scale: Double, _ vector: [Int8]) -> Int64 {
  var bytes: [UInt8] = []
  for number in [document, start, end, Int64(bitPattern: scale.bitPattern)] {
    withUnsafeBytes(of: number.littleEndian) { bytes.append(contentsOf: $0) }
  }
  bytes.append(contentsOf: vector.map { UInt8(bitPattern: $0) })
  return Int64(msdc_crc32(0, bytes, bytes.count))
}

/// Ids and filters reach SQLite as JSON, which it reads up to a NUL character.
private func requireKeys(_ keys: [String]) throws {
  for key in keys where key.utf8.contains(0) { throw EncoderError.badArgument("a NUL character in an id or a filter") }
}

private func orNull(_ value: Any?) -> Any { value ?? NSNull() }

private func json(_ value: Any) -> String {
  let data = try! JSONSerialization.data(withJSONObject: value, options: [.withoutEscapingSlashes])
  return String(decoding: data, as: UTF8.self)
}

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

  func number(_ sql: String) throws -> Int64 {
    var found: Int64 = 0
    try run(sql) { found = $0.integer(0) }
    return found
  }

  func texts(_ sql: String, _ values: [Value] = []) throws -> [String] {
    var found: [String] = []
    try run(sql, values) { found.append($0.text(0)) }
    return found
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
