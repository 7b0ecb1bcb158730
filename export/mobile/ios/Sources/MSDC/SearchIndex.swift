import Foundation
import MSDCCore

/// Documents that are found by words and by meaning: the SQLite file of `msdc search` and `msdc.open_index`, with the same
/// answers. One made on a workstation is opened as it is, and one made here opens there.
///
///     let index = try SearchIndex(file: url, encoder: encoder)
///     try await index.add([Document(id: "n1", text: "The car is on level 2.", metadata: #"{"year": 2026}"#)])
///     let found = try await index.search("Wo ist das Auto?", where: ["year": .between(2026, nil)])
///
/// Uses the system's SQLite. Without an encoder an index of any model is searched by its words, until `rebuild` encodes its
/// documents.
public actor SearchIndex {
  private static let block = Int(MSDC_INDEX_BLOCK)
  private let handle: OpaquePointer
  private var encoder: SentenceEncoder?

  /// The index in `file`, made if it is not there. A file of the app's bundle must be copied to a writable folder first.
  /// Without an encoder one of any model, for searches by words and for `rebuild`; with one, an intact index of another
  /// model throws `EncoderError.otherModel`.
  ///
  /// `check` compares the whole file with its checksums, which takes the longer the more it has; without, what is read
  /// later is compared. An app may leave it out where it has opened the file before.
  public init(file: URL, encoder: SentenceEncoder?, check: Bool = true) throws {
    var options = msdc_index_options()
    options.size = UInt32(MemoryLayout<msdc_index_options>.size)
    options.check = check ? 1 : 0
    var model = msdc_index_model(encoder: encoder?.handle, tokenizer: nil)
    var opened: OpaquePointer?
    try checked { line, size in msdc_index_open(file.path, &options, &model, &opened, line, size) }
    guard let opened else { throw EncoderError.runtime("no index came") }
    handle = opened
    self.encoder = encoder
  }

  deinit { msdc_index_close(handle) }

  /// Compares the whole file with its checksums, as `init` does with `check`.
  public func check() throws { try checked { line, size in msdc_index_check(handle, line, size) } }

  /// Number of documents.
  public func count() throws -> Int { try state().documents }

  /// The least cosine of a relevant entry by this model, a threshold for `search`; nil in an empty index.
  public func relevantCosine() throws -> Double? { try state().relevant }

  private struct State: Decodable { let documents: Int, relevant: Double? }

  private func state() throws -> State { try decoded(try received { msdc_index_state(handle, $0, $1, $2, $3) }[0]) }

  /// Adds documents and returns their number; an id that is there already is an error, an empty one is given by the index.
  /// They are written in blocks of 256: what was added before an error or a cancellation stays.
  @discardableResult
  public func add(_ documents: [Document]) async throws -> Int { try await put(documents, replaces: false) }

  /// `add` that replaces documents of the same id; of one id in `documents` the last stays.
  @discardableResult
  public func update(_ documents: [Document]) async throws -> Int { try await put(documents, replaces: true) }

  /// The ids of all documents, in the order in which they were added.
  public func ids() throws -> [String] { try decoded(try received { msdc_index_ids(handle, $0, $1, $2, $3) }[0]) }

  /// The document of an id; nil without one.
  public func get(_ id: String) throws -> Document? {
    struct Row: Decodable { let id, text, title, metadata: String }
    guard let json = try received({ msdc_index_get(handle, id, id.utf8.count, $0, $1, $2, $3) }).first else { return nil }
    let row: Row = try decoded(json)
    return Document(id: row.id, text: row.text, title: row.title, metadata: row.metadata)
  }

  /// Removes documents by id; ids that are not there are left alone. Returns how many were removed.
  @discardableResult
  public func remove(_ ids: [String]) throws -> Int {
    let keys = json(ids)
    var count: Int64 = 0
    try checked { line, size in msdc_index_remove(handle, keys, keys.utf8.count, &count, line, size) }
    return Int(count)
  }

  private func put(_ documents: [Document], replaces: Bool) async throws -> Int {
    guard let encoder else {
      throw EncoderError.badArgument("the index was opened without an encoder, which only words need not")
    }
    for start in stride(from: 0, to: documents.count, by: SearchIndex.block) {
      let rows = json(documents[start..<min(start + SearchIndex.block, documents.count)].map {
        ["id": $0.id.isEmpty ? NSNull() : $0.id, "text": $0.text, "title": $0.title, "metadata": $0.metadata] as [String: Any]
      })
      try Task.checkCancellation()
      var model = msdc_index_model(encoder: encoder.handle, tokenizer: nil)
      var batch: OpaquePointer?
      try checked { line, size in
        msdc_index_documents(handle, &model, rows, rows.utf8.count, replaces ? 1 : 0, &batch, line, size)
      }
      if let batch { _ = try await write(SearchBatch(batch), encoder) }
    }
    return documents.count
  }

  private func write(_ batch: SearchBatch, _ encoder: SentenceEncoder) async throws -> msdc_index_progress {
    let texts = try batch.texts()
    let vectors = texts.isEmpty ? [] : try await encoder.encode(texts).values
    var progress = msdc_index_progress()
    try checked { line, size in
      msdc_index_write(handle, batch.handle, vectors, texts.count, encoder.width, &progress, line, size)
    }
    return progress
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
    while true {
      try Task.checkCancellation()
      var model = msdc_index_model(encoder: encoder.handle, tokenizer: nil)
      var batch: OpaquePointer?
      try checked { line, size in msdc_index_rebuild(handle, &model, &batch, line, size) }
      guard let batch else { break }
      let written = try await write(SearchBatch(batch), encoder)
      count += Int(written.written)
      progress?(Int(written.done), Int(written.total))
    }
    self.encoder = encoder
    return count
  }

  /// The `top` documents nearest to `query`, best first, behind the first `offset`. The last word of a query without a
  /// blank behind it also matches words that begin with it. If no document has a word of the query, the most similar
  /// words of the index are looked for.
  ///
  /// `threshold`: documents have at least this cosine, or every word of the query. `filter`: values that the metadata
  /// must have by name; a name that no document has is an error. `prompt` is put before the query; nil takes the bundle's
  /// default. `mode`: without an encoder `.both` is by words. `distinct`: documents with the same words are a single hit,
  /// the best. `operators`: "words in quotes" come first, and documents with -excluded words are no hits; else quotes and
  /// minus are text. `order`: up to three columns that sort the documents which match ("-day": the greatest first), as in
  /// Python. `boost`: filters, and a number that their documents get on their score. `group`: a column of which each value
  /// has at most `groupSize` hits; `top` and `offset` count groups.
  public func search(
    _ query: String, top: Int = 5, mode: Mode = .both, threshold: Float? = nil, where filter: [String: Filter] = [:],
    prompt: String? = nil, offset: Int = 0, distinct: Bool = true, operators: Bool = true,
    order: [String] = [], boost: [(where: [String: Filter], bonus: Double)] = [], group: String? = nil, groupSize: Int = 1
  ) async throws -> [SearchHit] {
    let asked = ["query": query, "mode": mode.rawValue, "syntax": operators ? "operators" : "plain"]
    let request = try SearchIndex.request(asked, top, threshold, filter, offset, distinct, order, boost, group, groupSize)
    let encoder = self.encoder
    var model = msdc_index_model(encoder: encoder?.handle, tokenizer: nil)
    let texts = try received { msdc_index_query(handle, &model, request, request.utf8.count, $0, $1, $2, $3) }
    var vector: [Float] = []
    if let encoder, let text = texts.first { vector = try await encoder.encode(text, prompt: prompt) }
    return try await cancellable { try hits(request, vector) }
  }

  /// The `top` documents nearest to the one of an id, by the stored vectors: the mean of its passages against the best
  /// passage of each. Nothing is encoded. The document itself is no hit, nor, with `distinct`, are those with the same words.
  /// The other parameters are those of `search`.
  public func similar(
    _ id: String, top: Int = 5, threshold: Float? = nil, where filter: [String: Filter] = [:], offset: Int = 0,
    distinct: Bool = true, order: [String] = [], boost: [(where: [String: Filter], bonus: Double)] = [],
    group: String? = nil, groupSize: Int = 1
  ) throws -> [SearchHit] {
    let asked = ["like": id]
    return try hits(
      SearchIndex.request(asked, top, threshold, filter, offset, distinct, order, boost, group, groupSize), [])
  }

  private static func request(
    _ asked: [String: Any], _ top: Int, _ threshold: Float?, _ filter: [String: Filter], _ offset: Int, _ distinct: Bool,
    _ order: [String], _ boost: [(where: [String: Filter], bonus: Double)], _ group: String?, _ groupSize: Int
  ) throws -> String {
    guard boost.allSatisfy({ $0.bonus.isFinite }) else { throw EncoderError.badArgument("a boost that JSON cannot hold") }
    var options = asked.merging([
      "top": top, "offset": offset, "distinct": distinct, "where": json(try Filter.conditions(filter)), "order": order,
      "boost": try boost.map { [json(try Filter.conditions($0.where)), $0.bonus] as [Any] }, "group_size": groupSize,
    ]) { $1 }
    if let threshold { options["threshold"] = Double(threshold) }
    if let group { options["group"] = group }
    return json(options)
  }

  private func hits(_ request: String, _ vector: [Float]) throws -> [SearchHit] {
    let hits: [CoreHit] = try decoded(
      try received { msdc_index_search(handle, request, request.utf8.count, vector, vector.count, $0, $1, $2, $3) }[0])
    return hits.map(\.found)
  }

  /// Writes a copy of the index to a new file, while it is used: of one state, without unused space. A copy of the
  /// index's own file may lack what is still in its write-ahead log. A file that exists is an error.
  public func backup(to file: URL) async throws {
    try await cancellable { try checked { line, size in msdc_index_backup(handle, file.path, line, size) } }
  }

  /// `work`, whose statement ends with its task. It runs on this actor, so that no other task's statement is running.
  private func cancellable<Result>(_ work: () throws -> Result) async throws -> Result {
    let address = UInt(bitPattern: handle)
    return try await withTaskCancellationHandler {
      try Task.checkCancellation()
      return try work()
    } onCancel: {
      msdc_index_interrupt(OpaquePointer(bitPattern: address))
    }
  }

  /// Gives the space of removed documents back to the storage. Needs about the size of the index as free space.
  public func compact() throws { try checked { line, size in msdc_index_compact(handle, line, size) } }
}
