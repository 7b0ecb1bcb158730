import Foundation

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

/// A document that matches. `score` ranks it: `words` (BM25 x coverage of the query's words) + 4 x the matched share,
/// `cosine` of its best passage, or the sum with 20 x cosine. `passage` is the part to show, `matches` are the places of
/// the query's words as offsets in `document.text.unicodeScalars`, and `count` is the number of documents with the same
/// words, of which this is the best.
public struct Found: Sendable, Equatable {
  public let document: Document
  public let score: Double
  public let cosine: Double
  public let words: Double
  public let passage: String
  public let matches: [Range<Int>]
  public let count: Int
}

/// Rank by the words (BM25), by the vectors (cosine of the best passage), or by the sum of both.
public enum Mode: String, Sendable {
  case words, vectors, both
}

/// What a value of the metadata must be: any of these texts or none of them, between two bounds (nil: none), missing
/// (also null or an empty text) or present. Numbers compare as numbers, also those in texts ("4" is 4.0); dates and times
/// (2031-05-31T10:00+02:00; without a zone UTC) as such; other texts as text.
public enum Filter: Sendable, ExpressibleByStringLiteral, ExpressibleByIntegerLiteral {
  case oneOf([String])
  case noneOf([String])
  case between(Double?, Double?)
  case range(String?, String?)
  case missing
  case present

  public init(stringLiteral value: String) { self = .oneOf([value]) }
  public init(integerLiteral value: Int) { self = .oneOf(["\(value)"]) }

  // For the statement `filter`.
  fileprivate func condition(_ name: String) throws -> [Any] {
    func refused(_ reason: String) -> EncoderError { .badArgument("filter \(name): \(reason)") }
    var (alternatives, excluded): ([Any], Int) = ([NSNull()], 0)
    switch self {
    case .oneOf(let texts): alternatives = texts
    case .noneOf(let texts): (alternatives, excluded) = (texts, 1)
    case .between(let least, let most): alternatives = [[orNull(least), orNull(most)]]
    case .range(let least, let most): alternatives = [[orNull(least), orNull(most)]]
    case .missing: break
    case .present: excluded = 1
    }
    if name.contains("\"") { throw refused("a name with a double quote") }
    if alternatives.isEmpty { throw refused("an empty list matches nothing") }
    let sides = alternatives.flatMap { $0 as? [Any] ?? [] }
    if !sides.isEmpty && sides.allSatisfy({ $0 is NSNull }) { throw refused("no bound") }
    let finite = sides.allSatisfy { ($0 as? Double)?.isFinite ?? true }
    if !finite { throw refused("a number that JSON cannot hold") }
    try requireKeys([name] + (alternatives + sides).compactMap { $0 as? String })
    return [name, alternatives, excluded]
  }
}

/// Documents that are found by words and by meaning: the SQLite file of `msdc search` and `msdc.open_index`, with the same
/// answers. One made on a workstation is opened as it is, and one made here opens there.
///
///     let index = try SearchIndex(file: url, encoder: encoder)
///     try await index.add([Document(id: "n1", text: "The car is on level 2.", metadata: #"{"year": 2026}"#)])
///     let found = try await index.search("Wo ist das Auto?", where: ["year": .between(2026, nil)])
///
/// Uses the system's SQLite. Safe to share between threads. Without an encoder an index of any model is searched by its
/// words, until `rebuild` encodes its documents.
public final class SearchIndex: @unchecked Sendable {
  private static let constants = sql("constants").split { !$0.isNumber }.map { Int($0)! }
  private static let block = constants[0]
  private static let candidates = constants[1]
  private static let lockMilliseconds = 60_000

  private var encoder: SentenceEncoder?
  private var compared: String?  // the file's model, when the encoder was compared with it
  private var db: Database
  private let path: String
  private let queue = DispatchQueue(label: "org.msdc.search", qos: .userInitiated)
  private let adding = DispatchQueue(label: "org.msdc.search.add", qos: .utility)
  private var vectors: IndexVectors?

  /// The index in `file`, made if it is not there. A file of the app's bundle must be copied to a writable folder first.
  /// Without an encoder one of any model, for searches by words and for `rebuild`; with one, an intact index of another
  /// model throws `EncoderError.otherModel`.
  ///
  /// `check` compares the whole file with its checksums, which takes the longer the more it has; without, what is read
  /// later is compared. An app may leave it out where it has opened the file before.
  public init(file: URL, encoder: SentenceEncoder?, check: Bool = true) throws {
    self.encoder = encoder
    path = file.path
    vectors = encoder.map { IndexVectors(width: $0.width) }
    // Shorter than its header: SQLite would take the shortest for a new file.
    let size = bytes(of: path)
    guard size == 0 || size >= 100 else { throw EncoderError.damaged("\(path): damaged (\(size) bytes)") }
    // SQLite would delete the log next to a file that is missing or empty, and what is in it.
    guard size > 0 || bytes(of: path + "-wal") == 0 else {
      let log = file.lastPathComponent + "-wal"
      throw EncoderError.damaged("\(path): empty next to its write-ahead log \(log); put back the file that belongs to it")
    }
    // Checked before anything can move the log to the file: it may be that of another state.
    let hasLog = bytes(of: path + "-wal") > 0
    db = try Database(path, readOnly: hasLog)
    if hasLog {
      try compare(whole: check)
      db = try Database(path)
    }
    for set in ["busy_timeout=\(SearchIndex.lockMilliseconds)", "foreign_keys=ON"] { try db.run("PRAGMA \(set)") }
    try compare(whole: check)
  }

  deinit { checkpoint() }

  /// Compares the whole file with its checksums, as `init` does with `check`.
  public func check() async throws { try await on(queue) { try $0.compare(whole: true) } }

  /// Compares the version and the model, and the `whole` file with its checksums.
  private func compare(whole: Bool) throws {
    guard try !isEmpty() else {
      // Tables are written before the write-ahead log begins: a file without them is new, or a cut one.
      let size = bytes(of: path)
      if try size > 0 && db.number("PRAGMA page_count") > 0 { throw damaged("damaged (\(size) bytes without a table)") }
      return
    }
    var (problem, kind) = ("", "")
    try db.run(sql("check"), [encoder.map { .text($0.source) } ?? .null]) { (problem, kind) = ($0.text(0), $0.text(1)) }
    if kind == "version" { throw EncoderError.unsupported("\(path): \(problem)") }
    if whole { try compareAll() }
    if kind == "model" { throw otherModel(problem) }
    compared = try db.texts(sql("model")).first
  }

  private func compareAll() throws {
    if let damage = try db.texts(sql("damage")).first { throw damaged("damaged (\(damage))") }
    try db.run(sql("check_documents")) { _ = try document($0) }
    try db.checkPassages(path)
    try db.run("PRAGMA busy_timeout=0")
    defer { try? db.run("PRAGMA busy_timeout=\(SearchIndex.lockMilliseconds)") }
    do {
      try db.run(sql("check_words"))
    } catch let error where ["locked", "readonly"].contains(where: { "\(error)".contains($0) }) {
      // Another process writes, which has checked the file; or this connection only reads.
    }
  }

  private func damaged(_ what: String) -> EncoderError { EncoderError.damaged("\(path): \(what)") }

  private func otherModel(_ problem: String) -> EncoderError {
    .otherModel("\(path): \(problem); open it without an encoder and let rebuild encode its documents again")
  }

  private func requireEncoder(_ encoder: SentenceEncoder?) throws -> SentenceEncoder {
    guard let encoder else { throw EncoderError.badArgument("\(path): opened without an encoder, which only words need not") }
    return encoder
  }

  /// A document of four columns from `first` on, whose checksum is the next one.
  private func document(_ row: Database.Row, _ first: Int32 = 0) throws -> Document {
    let one = Document(
      id: row.text(first), text: row.text(first + 1), title: row.text(first + 2), metadata: row.text(first + 3))
    guard crc(one) == row.integer(first + 4) else { throw damaged("damaged (document \(one.id))") }
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

  /// The ids of all documents, in the order in which they were added.
  public func ids() async throws -> [String] {
    try await on(queue) { index in try index.isEmpty() ? [] : index.db.texts(sql("ids")) }
  }

  /// The document of an id; nil without one.
  public func get(_ id: String) async throws -> Document? {
    try requireKeys([id])
    return try await on(queue) { index in
      var documents: [Document] = []
      if try !index.isEmpty() { try index.db.run(sql("document"), [.text(id)]) { try documents.append(index.document($0)) } }
      return documents.first
    }
  }

  /// Removes documents by id; ids that are not there are left alone. Returns how many were removed.
  @discardableResult
  public func remove(_ ids: [String]) async throws -> Int {
    try requireKeys(ids)
    return try await on(queue) { index in
      defer { index.checkpoint() }
      return try index.transaction("IMMEDIATE") { try index.isEmpty() ? 0 : index.removed(ids) }
    }
  }

  /// The `top` documents nearest to `query`, best first, behind the first `offset`. The last word of a query without a
  /// blank behind it also matches words that begin with it. If no document has a word of the query, the most similar
  /// words of the index are looked for.
  ///
  /// `threshold`: documents have at least this cosine, or every word of the query. `filter`: values that the metadata
  /// must have by name; a name that no document has is an error. `prompt` is put before the query; nil takes the bundle's
  /// default. `mode`: without an encoder `.both` is by words. `distinct`: documents with the same words are a single hit, the best. `operators`: "words in quotes" come
  /// first, and documents with -excluded words are no hits; else quotes and minus are text.
  public func search(
    _ query: String, top: Int = 5, mode: Mode = .both, threshold: Float? = nil, where filter: [String: Filter] = [:],
    prompt: String? = nil, offset: Int = 0, distinct: Bool = true, operators: Bool = true
  ) async throws -> [Found] {
    guard query.contains(where: { !$0.isWhitespace }) else { throw EncoderError.badArgument("a query is empty") }
    guard top >= 1 else { throw EncoderError.badArgument("top: \(top), expected at least 1") }
    guard offset >= 0 else { throw EncoderError.badArgument("offset: \(offset), expected at least 0") }
    let conditions = filter.isEmpty ? nil : json(try filter.map { try $0.value.condition($0.key) })
    let asked = try searchPlan(query, operators)
    let plan = try await on(queue) { try $0.db.plan(asked) }
    let current = try await on(queue) { $0.encoder }
    let encoder = mode == .vectors ? try requireEncoder(current) : current
    let ranking = encoder == nil ? .words : mode
    var vector: [Float]?
    if let encoder, ranking != .words, try encoder.canRead(plan.text) {
      vector = try await encoder.encode(plan.text, prompt: prompt)
    }
    let query = (vector, encoder)
    return try await on(queue) { index in
      try index.transaction("DEFERRED") {  // one state of the file for the whole search
        guard try !index.isEmpty() else { return [] }
        if let encoder = query.1, query.0 != nil { try index.requireModel(encoder) }
        return try index.ranked(plan, query.0, top, ranking, threshold, conditions, offset, distinct)
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
    let encoder = try requireEncoder(try await on(queue) { $0.encoder })
    for start in stride(from: 0, to: documents.count, by: SearchIndex.block) {
      var block = Array(documents[start..<min(start + SearchIndex.block, documents.count)])
      if replace { block = block.indices.filter { at in !block[(at + 1)...].contains { $0.id == block[at].id } }.map { block[$0] } }
      var made: [[Passage]] = []
      for one in block {
        try Task.checkCancellation()
        made.append(try await on(adding) { _ in try encoder.passages(title: one.title, text: one.text) })
      }
      let (kept, passages) = (block, made)
      try await on(queue) { index in
        try index.transaction("IMMEDIATE") {
          try index.create(encoder)
          try index.requireModel(encoder)
          if replace { _ = try index.removed(kept.map(\.id)) }
          let writer = try BlockWriter(index.db, index.path)
          for (one, parts) in zip(kept, passages) {
            let row = try index.insert(one)
            for part in parts { try writer.add(row, Int64(part.start), Int64(part.end), part.scale, part.vector) }
          }
          try writer.finish()
        }
      }
    }
    try await on(queue) { $0.checkpoint() }
    return documents.count
  }

  private func removed(_ ids: [String]) throws -> Int { try db.removeDocuments(path, json(ids)) }

  /// The tables, created with the first documents.
  private func create(_ encoder: SentenceEncoder) throws {
    guard try isEmpty() else { return }
    try db.runAll("schema")
    try addFacts(encoder)
  }

  private func addFacts(_ encoder: SentenceEncoder) throws {
    let cosines = encoder.cosines.map { Value.text($0) } ?? .null
    try db.run(sql("add_facts"), [.text(encoder.source), .text(encoder.name), .text(encoder.source), cosines])
  }

  /// Writes a document and its words; returns its row.
  private func insert(_ one: Document) throws -> Int64 {
    let (title, text) = (try searchWords(one.title), try searchWords(one.text))
    // Documents with the same stored words have this number in common.
    let stored = title + "\0" + text
    let form = crc(stored) << 20 + Int64(stored.utf8.count % (1 << 20))
    let values: [Value] = [
      .text(one.id), .text(one.text), .text(one.title), .text(one.metadata), .integer(crc(one)), .integer(form),
    ]
    try db.run(sql("add_document"), values)
    let row = try db.number("SELECT last_insert_rowid()")
    try db.run(sql("add_words"), [.integer(row), .text(title), .text(text)])
    return row
  }

  // --- another model --------------------------------------------------------------------------------------------------

  /// Compares the model again if another connection has rebuilt the file since.
  private func requireModel(_ encoder: SentenceEncoder) throws {
    let model = try db.texts(sql("model")).first
    if model == compared && encoder === self.encoder { return }
    guard encoder === self.encoder, try rebuildState(encoder) == "rebuilt" else {
      throw otherModel("made with another model meanwhile")
    }
    compared = model
    vectors?.expire()
  }

  private func rebuildState(_ encoder: SentenceEncoder) throws -> String {
    try db.texts(sql("rebuild_state"), [.text(encoder.source)])[0]
  }

  private func isRebuilt(_ encoder: SentenceEncoder) throws -> Bool {
    let state = try rebuildState(encoder)
    if state == "other" { throw EncoderError.otherModel("\(path): being rebuilt with another model") }
    return state == "rebuilt"
  }

  /// Encodes all documents again with `encoder`, for an index of another model; it is one of this model then, and has this
  /// encoder. Until the end it stays an index of its former model: searches by words go on, also in other processes. What
  /// was interrupted or cancelled continues with the next call. An index of this model already is left as it is.
  /// `progress` is called with the number of documents that are encoded so far, and of all. Returns how many were encoded.
  @discardableResult
  public func rebuild(
    _ encoder: SentenceEncoder, progress: (@Sendable (Int, Int) -> Void)? = nil
  ) async throws -> Int {
    var count = 0
    var finished = try await on(queue) { index in try index.isEmpty() || index.rebuildState(encoder) == "rebuilt" }
    if !finished {
      try await on(queue) { index in
        try index.transaction("IMMEDIATE") {
          try index.db.runAll("create_rebuilt")
          try index.db.run(sql("begin_rebuild"), [.text(encoder.source)])
          try index.db.run(sql("add_rebuild"), [.text(encoder.source)])
        }
      }
    }
    while !finished {
      let documents = try await on(queue) { index in
        try index.transaction("DEFERRED") { try index.isRebuilt(encoder) ? [] : index.nextRebuilt(SearchIndex.block) }
      }
      var made: [Int64: [Passage]] = [:]
      for (row, one) in documents {
        try Task.checkCancellation()
        made[row] = try await on(adding) { _ in try encoder.passages(title: one.title, text: one.text) }
      }
      let passages = made
      let (written, ended) = try await on(queue) { index in
        try index.transaction("IMMEDIATE") { try index.writeRebuilt(encoder, passages, progress) }
      }
      count += written
      finished = ended
    }
    try await on(queue) { index in
      index.encoder = encoder
      index.vectors = IndexVectors(width: encoder.width)
      if try !index.isEmpty() { index.compared = try index.db.texts(sql("model")).first }
      index.checkpoint()
    }
    return count
  }

  /// How many documents were written, and whether the index is of the next model now.
  private func writeRebuilt(
    _ encoder: SentenceEncoder, _ passages: [Int64: [Passage]], _ progress: ((Int, Int) -> Void)?
  ) throws -> (Int, Bool) {
    if try isRebuilt(encoder) { return (0, true) }  // by another process
    var rows: [Int64] = []
    try db.run(sql("unbuilt"), [.text(json(Array(passages.keys)))]) { rows.append($0.integer(0)) }
    for row in rows {
      for part in passages[row] ?? [] { try db.run(sql("add_rebuilt"), values(row, part)) }
    }
    if let progress, !passages.isEmpty {
      try db.run(sql("count_rebuilt")) { progress(Int($0.integer(0)), Int($0.integer(1))) }
    }
    if try !nextRebuilt(1).isEmpty { return (rows.count, false) }
    try db.replacePassages(path)
    try addFacts(encoder)
    return (rows.count, true)
  }

  private func nextRebuilt(_ most: Int) throws -> [(Int64, Document)] {
    var documents: [(Int64, Document)] = []
    try db.run(sql("next_rebuilt"), [.integer(Int64(most))]) { try documents.append(($0.integer(0), document($0, 1))) }
    return documents
  }

  // --- search ---------------------------------------------------------------------------------------------------------

  private func ranked(
    _ plan: Plan, _ vector: [Float]?, _ top: Int, _ mode: Mode, _ threshold: Float?, _ conditions: String?,
    _ offset: Int, _ distinct: Bool
  ) throws -> [Found] {
    let allowed = try self.allowed(conditions, plan)
    var cosines: Cosines?
    if let vector {
      try vectors?.refresh(db, path)
      cosines = try vectors?.compare(vector)
    }
    let (matches, others, matched) = try candidates(plan, cosines, mode, offset + top, allowed)
    let least: Value = threshold.map { .real(Double($0)) } ?? .null
    var ranked: [Ranked] = []
    try db.run(sql("ranked"), [.text(matches), .text(others), .text(mode.rawValue), least]) {
      ranked.append(
        Ranked(row: $0.integer(0), score: $0.real(1), cosine: $0.isNull(2) ? nil : $0.real(2), words: $0.real(3)))
    }
    let inside: Value = allowed.map { .text(json(Array($0))) } ?? .null
    var forms: Set<Int64> = []  // of documents with the same words the first is a hit
    var (hits, skipped): ([Found], Int) = ([], 0)
    for scores in ranked where hits.count < top {
      if try distinct && !forms.insert(db.number(sql("form"), [.integer(scores.row)])).inserted { continue }
      guard skipped == offset else {
        skipped += 1
        continue
      }
      let count = distinct ? Int(try db.number(sql("equal"), [.integer(scores.row), inside])) : 1
      hits.append(try hit(scores, count, matched.terms, mode, scores.cosine == nil ? nil : cosines))
    }
    return hits
  }

  private struct Ranked {
    let row: Int64
    let score: Double
    let cosine: Double?
    let words: Double
  }

  /// The documents that a filter and the excluded words leave; nil without either.
  private func allowed(_ conditions: String?, _ plan: Plan) throws -> Set<Int64>? {
    if conditions == nil && !plan.excludes { return nil }
    var allowed: Set<Int64> = []
    try db.run(sql("filter"), [.text(conditions ?? "[]"), .text(plan.json)]) { allowed.insert($0.integer(0)) }
    if let conditions, allowed.isEmpty {
      try db.run(sql("unknown"), [.text(conditions)]) {
        throw EncoderError.badArgument("no column \($0.text(0)) to filter by (columns: \($0.text(1)))")
      }
    }
    return allowed
  }

  /// The documents that match by words and the others that are nearest by vectors, both as `ranked` takes them, and the
  /// plan by which they match. As many for every page of the first 1,000, so that pages agree.
  private func candidates(
    _ plan: Plan, _ cosines: Cosines?, _ mode: Mode, _ hits: Int, _ allowed: Set<Int64>?
  ) throws -> (String, String, Plan) {
    var most = SearchIndex.candidates
    while most < hits { most *= 4 }
    let near = cosines?.nearest(most, allowed) ?? []
    var matched = plan
    var words: [Int64: [Any]] = [:]
    if mode != .vectors && plan.hasWords {
      let inside: Value = allowed.map { .text(json(Array($0))) } ?? .null
      func match(_ plan: Plan) throws {
        try db.run(sql("words"), [.text(plan.json), inside, .integer(Int64(most)), .text(json(near))]) {
          words[$0.integer(0)] = [$0.real(1), $0.real(2), $0.integer(3), $0.integer(4)]
        }
      }
      try match(plan)
      if words.isEmpty {
        try db.run(sql("vocabulary"))
        if let similar = try db.texts(sql("similar"), [.text(plan.json)]).first {
          matched = try db.plan(similar)
          try match(matched)
        }
      }
    }
    func cosine(_ row: Int64) -> Double? { cosines?.ofDocument(row).map { Double($0) } }
    let matches = words.map { row, match in [row, orNull(cosine(row))] as [Any] + match }
    var others: [String: Double] = [:]
    for row in near where words[row] == nil { others["\(row)"] = cosine(row) }
    return (json(matches), json(others), matched)
  }

  private func hit(_ scores: Ranked, _ count: Int, _ terms: String, _ mode: Mode, _ cosines: Cosines?) throws -> Found {
    var documents: [Document] = []
    try db.run(sql("hit"), [.integer(scores.row)]) { try documents.append(document($0)) }
    guard let document = documents.first else { throw damaged("damaged (words of a document that is not there)") }
    var (starts, ends, near): ([Int64], [Int64], [Float]) = ([], [], [])
    try db.run(sql("passages_of"), [.integer(scores.row)]) {
      guard crc(scores.row, $0.integer(1), $0.integer(2), 0, []) == $0.integer(3) else {
        throw damaged("damaged (a passage of document \(document.id))")
      }
      starts.append($0.integer(1))
      ends.append($0.integer(2))
      near.append(cosines?.ofPassage($0.integer(0)) ?? (mode == .vectors ? -2 : 0))
    }
    guard !starts.isEmpty else { throw damaged("damaged (document \(document.id) without a passage)") }
    let (best, matches) = try searchShow(document.text, terms, starts, ends, near, byCosine: mode == .vectors)
    let (start, end) = (Int(starts[best]), Int(ends[best]))
    let scalars = document.text.unicodeScalars
    guard start >= 0, start < end, end <= scalars.count else {
      throw damaged("damaged (a passage outside document \(document.id))")
    }
    let passage = String(String.UnicodeScalarView(scalars.dropFirst(start).prefix(end - start)))
    return Found(
      document: document, score: scores.score, cosine: scores.cosine ?? 0, words: scores.words, passage: passage,
      matches: matches, count: count)
  }

  // --- the file's life ------------------------------------------------------------------------------------------------

  /// Writes a copy of the index to a new file, while it is used: of one state, without unused space. A copy of the
  /// index's own file may lack what is still in its write-ahead log. A file that exists is an error.
  public func backup(to file: URL) async throws {
    try await on(queue) { index in
      guard !FileManager.default.fileExists(atPath: file.path) else {
        throw EncoderError.badArgument("\(file.path) exists already")
      }
      let stage = URL(fileURLWithPath: file.path + ".partial")
      defer { try? FileManager.default.removeItem(at: stage) }
      do {
        try Data().write(to: stage)
        if try !index.isEmpty() { try index.db.run("VACUUM INTO ?", [.text(stage.path)]) }
        let copy = try FileHandle(forWritingTo: stage)
        try copy.synchronize()
        try copy.close()
        try FileManager.default.moveItem(at: stage, to: file)
      } catch let error where !(error is EncoderError) {
        throw EncoderError.io("\(file.path): \(error.localizedDescription)")
      }
    }
  }

  /// Gives the space of removed documents back to the storage. Needs about the size of the index as free space.
  public func compact() async throws {
    try await on(queue) { index in
      if try !index.isEmpty() {
        try index.db.run("INSERT INTO words (words) VALUES ('optimize')")
        try index.db.run("VACUUM")
      }
      index.checkpoint()
    }
  }

  /// Moves what is in the write-ahead log to the file, so that a copy of the file alone has it. Nothing is lost where
  /// another connection prevents it: the log is read together with the file.
  private func checkpoint() {
    try? db.run("PRAGMA busy_timeout=0")
    try? db.run("PRAGMA wal_checkpoint(TRUNCATE)")
    try? db.run("PRAGMA busy_timeout=\(SearchIndex.lockMilliseconds)")
  }

  private func isEmpty() throws -> Bool { try db.number("SELECT count(*) FROM sqlite_master") == 0 }

  private func transaction<T>(_ kind: String, _ work: () throws -> T) throws -> T {
    if kind == "IMMEDIATE" {
      vectors?.expire()
      // Writers block no reader then; later if the file is new or another connection has it open.
      if try !isEmpty() { try? db.run("PRAGMA journal_mode=WAL") }
    }
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

/// A passage of document `row` as the table `rebuilt` has it.
private func values(_ row: Int64, _ part: Passage) -> [Value] {
  let (start, end, read) = (Int64(part.start), Int64(part.end), !part.vector.isEmpty)
  return [
    .integer(row), .integer(start), .integer(end), read ? .real(Double(part.scale)) : .null,
    read ? .blob(part.vector) : .null, .integer(crc(row, start, end, read ? Double(part.scale) : 0, part.vector)),
  ]
}
