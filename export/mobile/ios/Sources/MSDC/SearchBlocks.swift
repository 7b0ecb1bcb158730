import Foundation
import MSDCCore

/// A row of the table `blocks`: the number and the document (int64) of each passage, its scale (float32) and its vector
/// (int8), all little-endian.
struct Block {
  static let most = 256  // passages

  let row: Int64
  let columns: [[Int8]]

  var count: Int { columns[0].count / 8 }
  var width: Int { count == 0 ? 0 : columns[3].count / count }
  var numbers: [Int64] { integers(columns[0]) }
  var documents: [Int64] { integers(columns[1]) }

  var scales: [Float] {
    var bits = [UInt32](repeating: 0, count: count)
    bits.withUnsafeMutableBytes { to in columns[2].withUnsafeBytes { to.copyMemory(from: $0) } }
    return bits.map { Float(bitPattern: UInt32(littleEndian: $0)) }
  }

  var crc: Int64 {
    Int64(
      columns.reduce(UInt32(0)) { start, column in
        msdc_crc32(start, column.map { UInt8(bitPattern: $0) }, column.count)
      })
  }

  init(row: Int64, columns: [[Int8]]) {
    self.row = row
    self.columns = columns
  }

  /// The block of a row of `path`, compared with its checksum.
  init(_ path: String, _ stored: Database.Row) throws {
    self.init(row: stored.integer(0), columns: (2...5).map { stored.blob($0) })
    let sizes = [8, 8, 4, width].map { $0 * count }
    guard columns.map(\.count) == sizes, crc == stored.integer(1) else {
      throw EncoderError.damaged("\(path): damaged (the vectors of block \(row))")
    }
  }

  /// The block without the passages of removed documents.
  func without(_ removed: Set<Int64>) -> Block {
    let owners = documents
    let left = owners.indices.filter { !removed.contains(owners[$0]) }
    return Block(
      row: row,
      columns: columns.map { column in
        let size = column.count / max(count, 1)
        return left.flatMap { column[$0 * size..<($0 + 1) * size] }
      })
  }
}

/// The numbers of a column of a block.
private func integers(_ column: [Int8]) -> [Int64] {
  var numbers = [Int64](repeating: 0, count: column.count / 8)
  numbers.withUnsafeMutableBytes { to in
    column.withUnsafeBytes { to.copyMemory(from: UnsafeRawBufferPointer(rebasing: $0.prefix(to.count))) }
  }
  return numbers.map { Int64(littleEndian: $0) }
}

private func littleEndian<T: FixedWidthInteger>(_ number: T) -> [Int8] {
  withUnsafeBytes(of: number.littleEndian) { $0.map { Int8(bitPattern: $0) } }
}

/// Writes passages, whose vectors fill the last block and further ones, until `finish`.
final class BlockWriter {
  private let db: Database
  private var row: Int64 = 1
  private var columns: [[Int8]] = [[], [], [], []]
  private var isWritten = true

  init(_ db: Database, _ path: String) throws {
    self.db = db
    try db.run(sql("last_block")) { stored in
      let last = try Block(path, stored)
      row = last.row
      columns = last.columns
    }
  }

  /// A passage of a document; without a vector where the model cannot read it.
  func add(_ document: Int64, _ start: Int64, _ end: Int64, _ scale: Float, _ vector: [Int8]) throws {
    if !vector.isEmpty && columns[0].count == 8 * Block.most {
      try finish()
      row += 1
      columns = [[], [], [], []]
    }
    let block: Value = vector.isEmpty ? .null : .integer(row)
    let values: [Value] = [.integer(document), .integer(start), .integer(end), block, .integer(crc(document, start, end, 0, []))]
    try db.run(sql("add_passage"), values)
    if vector.isEmpty { return }
    columns[0] += littleEndian(try db.number("SELECT last_insert_rowid()"))
    columns[1] += littleEndian(document)
    columns[2] += littleEndian(scale.bitPattern)
    columns[3] += vector
    isWritten = false
  }

  func finish() throws {
    if !isWritten { try db.write(Block(row: row, columns: columns)) }
    isWritten = true
  }
}

extension Database {
  fileprivate func write(_ block: Block) throws {
    try run(sql("write_block"), [.integer(block.row), .integer(block.crc)] + block.columns.map { .blob($0) })
  }

  /// Removes the documents of `keys` (JSON), with their words, passages and vectors; returns their number.
  func removeDocuments(_ path: String, _ keys: String) throws -> Int {
    var removed: [Int64: Set<Int64>] = [:]
    try run(sql("blocks_of"), [.text(keys)]) { removed[$0.integer(1), default: []].insert($0.integer(0)) }
    for (row, documents) in removed {
      var blocks: [Block] = []
      try run(sql("block"), [.integer(row)]) { blocks.append(try Block(path, $0)) }
      guard let block = blocks.first else { throw EncoderError.damaged("\(path): damaged (the vectors of block \(row))") }
      let left = block.without(documents)
      if left.count > 0 { try write(left) } else { try run(sql("remove_block"), [.integer(row)]) }
    }
    try run(sql("remove"), [.text(keys)])
    return Int(try number("SELECT changes()"))
  }

  /// Puts the passages of the table `rebuilt` in the place of all others.
  func replacePassages(_ path: String) throws {
    try runAll("begin_finish")
    let writer = try BlockWriter(self, path)
    try run(sql("rebuilt")) {
      let (document, start, end, vector) = ($0.integer(0), $0.integer(1), $0.integer(2), $0.blob(4))
      guard crc(document, start, end, $0.real(3), vector) == $0.integer(5) else {
        throw EncoderError.damaged("\(path): damaged (a new passage of document \(document))")
      }
      try writer.add(document, start, end, Float($0.real(3)), vector)
    }
    try writer.finish()
    try runAll("finish_rebuild")
  }

  /// Compares all passages and blocks with their checksums.
  func checkPassages(_ path: String) throws {
    try run(sql("check_passages")) {
      guard crc($0.integer(1), $0.integer(2), $0.integer(3), 0, []) == $0.integer(4) else {
        throw EncoderError.damaged("\(path): damaged (passage \($0.integer(0)))")
      }
    }
    try run(sql("blocks")) { _ = try Block(path, $0) }
  }
}
