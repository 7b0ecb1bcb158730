import Foundation
import MSDCCore

/// CRC-32 of a text's UTF-8.
func crc(_ text: String) -> Int64 {
  let bytes = Array(text.utf8)
  return Int64(msdc_crc32(0, bytes, bytes.count))
}

/// A document's checksum: of its fields with zeros between.
func crc(_ document: Document) -> Int64 {
  crc([document.id, document.text, document.title, document.metadata].joined(separator: "\0"))
}

/// A passage's: of document, start, end, scale (0 without a vector) and vector.
func crc(_ document: Int64, _ start: Int64, _ end: Int64, _ scale: Double, _ vector: [Int8]) -> Int64 {
  var bytes: [UInt8] = []
  for number in [document, start, end, Int64(bitPattern: scale.bitPattern)] {
    withUnsafeBytes(of: number.littleEndian) { bytes.append(contentsOf: $0) }
  }
  bytes.append(contentsOf: vector.map { UInt8(bitPattern: $0) })
  return Int64(msdc_crc32(0, bytes, bytes.count))
}

/// Ids and filters reach SQLite as JSON, which it reads up to a NUL character.
func requireKeys(_ keys: [String]) throws {
  for key in keys where key.utf8.contains(0) { throw EncoderError.badArgument("a NUL character in an id or a filter") }
}

func orNull(_ value: Any?) -> Any { value ?? NSNull() }

func json(_ value: Any) -> String {
  let data = try! JSONSerialization.data(withJSONObject: value, options: [.withoutEscapingSlashes])
  return String(decoding: data, as: UTF8.self)
}

/// The size of a file; 0 where there is none.
func bytes(of path: String) -> Int {
  ((try? FileManager.default.attributesOfItem(atPath: path))?[.size] as? NSNumber)?.intValue ?? 0
}

/// Calls the core, whose line becomes an error where it fails.
private func checked(_ call: (UnsafeMutablePointer<CChar>, Int) -> msdc_status) throws {
  var line = [CChar](repeating: 0, count: 256)
  let status = line.withUnsafeMutableBufferPointer { call($0.baseAddress!, $0.count) }
  guard status == MSDC_OK else { throw EncoderError(status: status, line: text(of: line)) }
}

private func keepText(context: UnsafeMutableRawPointer?, text: UnsafePointer<CChar>?, size: Int) {
  guard let context, let text else { return }
  let bytes = UnsafeRawBufferPointer(start: text, count: size)
  context.assumingMemoryBound(to: String.self).pointee = String(decoding: bytes, as: UTF8.self)
}

/// The words of a text as the index stores them.
func searchWords(_ text: String) throws -> String {
  var words = ""
  try checked { line, size in
    withUnsafeMutablePointer(to: &words) { msdc_search_words(text, text.utf8.count, keepText, $0, line, size) }
  }
  return words
}

/// What the statements of search.sql look for, as JSON.
func searchPlan(_ query: String, _ operators: Bool) throws -> String {
  var plan = ""
  try checked { line, size in
    withUnsafeMutablePointer(to: &plan) {
      msdc_search_plan(query, query.utf8.count, operators ? 1 : 0, keepText, $0, line, size)
    }
  }
  return plan
}

private func keepSpan(context: UnsafeMutableRawPointer?, start: Int, end: Int) {
  context?.assumingMemoryBound(to: [Range<Int>].self).pointee.append(start..<end)
}

/// The number of the passage to show, and the spans of `terms` in a text; all in Unicode scalars.
func searchShow(
  _ text: String, _ terms: String, _ starts: [Int64], _ ends: [Int64], _ cosines: [Float], byCosine: Bool
) throws -> (Int, [Range<Int>]) {
  var (best, spans): (Int, [Range<Int>]) = (0, [])
  try checked { line, size in
    withUnsafeMutablePointer(to: &spans) {
      msdc_search_show(
        text, text.utf8.count, terms, terms.utf8.count, starts, ends, cosines, cosines.count, byCosine ? 1 : 0, &best,
        keepSpan, $0, line, size)
    }
  }
  return (best, spans)
}

/// The vectors of an index in memory: each with the row and the document of its passage, 8-bit numbers and their scale.
struct IndexVectors {
  private let width: Int
  private var version: Int64 = -1
  private var rows: [Int64] = []
  private var owners: [Int64] = []
  private var scales: [Float] = []
  private var codes: [Int8] = []

  init(width: Int) { self.width = width }

  /// This connection writes: its own changes have no other sign.
  mutating func expire() { version = -1 }

  /// Reads the vectors again if the file changed.
  mutating func refresh(_ db: Database, _ path: String) throws {
    let now = try db.number("PRAGMA data_version")
    guard now != version else { return }
    self = IndexVectors(width: width)
    try db.run(sql("blocks")) {
      let block = try Block(path, $0)
      guard block.width == width else {
        throw EncoderError.damaged("\(path): damaged (the vectors of block \(block.row))")
      }
      rows.append(contentsOf: block.numbers)
      owners.append(contentsOf: block.documents)
      scales.append(contentsOf: block.scales)
      codes.append(contentsOf: block.columns[3])
    }
    version = now
  }

  func compare(_ query: [Float]) throws -> Cosines {
    var values = [Float](repeating: 0, count: scales.count)
    try checked { line, size in
      msdc_int8_cosines(query, query.count, codes, scales, scales.count, &values, line, size)
    }
    return Cosines(rows: rows, owners: owners, values: values)
  }
}

/// The cosines of a query with all passages that have a vector, in the order of their rows.
struct Cosines {
  private let rows: [Int64]
  private let values: [Float]
  private var best: [Int64: Float] = [:]

  init(rows: [Int64], owners: [Int64], values: [Float]) {
    self.rows = rows
    self.values = values
    for (owner, value) in zip(owners, values) { best[owner] = max(value, best[owner] ?? value) }
  }

  /// The `most` nearest documents, of those `allowed`.
  func nearest(_ most: Int, _ allowed: Set<Int64>?) -> [Int64] {
    let inside = best.filter { allowed?.contains($0.key) ?? true }
    let ordered = inside.sorted { $0.value != $1.value ? $0.value > $1.value : $0.key < $1.key }
    return ordered.prefix(most).map(\.key)
  }

  /// Of a document's best passage.
  func ofDocument(_ document: Int64) -> Float? { best[document] }

  func ofPassage(_ row: Int64) -> Float? {
    var (low, high) = (0, rows.count)
    while low < high {
      let middle = (low + high) / 2
      if rows[middle] < row { low = middle + 1 } else { high = middle }
    }
    return low < rows.count && rows[low] == row ? values[low] : nil
  }
}
