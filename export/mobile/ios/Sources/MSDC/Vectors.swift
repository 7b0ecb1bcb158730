import Foundation
import MSDCCore

/// One result of a search: a row of the vectors, and its cosine to the query.
public struct Hit: Sendable, Equatable {
  public let row: Int
  public let cosine: Float
}

/// Vectors of `width` numbers, one after another in `values`, that rows are added to and removed from. Keep `values` to
/// store them, and make `Vectors(values:width:)` of it again.
public struct Vectors: Sendable {
  public private(set) var values: [Float]
  public let width: Int

  /// `values` must be a whole number of rows.
  public init(values: [Float], width: Int) {
    precondition(width > 0 && values.count % width == 0, "\(values.count) numbers are no rows of \(width)")
    self.values = values
    self.width = width
  }

  public var count: Int { values.count / width }

  /// A copy of one row.
  public subscript(row: Int) -> [Float] {
    precondition(row >= 0 && row < count, "row \(row) of \(count)")
    return Array(values[row * width..<(row + 1) * width])
  }

  /// Adds a row at the end.
  public mutating func append(_ vector: [Float]) {
    precondition(vector.count == width, "\(vector.count) numbers for rows of \(width)")
    values.append(contentsOf: vector)
  }

  /// Adds the rows of `other` at the end.
  public mutating func append(contentsOf other: Vectors) {
    precondition(other.width == width, "rows of \(other.width) numbers for rows of \(width)")
    values.append(contentsOf: other.values)
  }

  /// Removes a row; those behind it move up.
  public mutating func remove(at row: Int) {
    precondition(row >= 0 && row < count, "row \(row) of \(count)")
    values.removeSubrange(row * width..<(row + 1) * width)
  }

  /// The `k` rows with the largest cosine to `query`, best first, equal ones by row.
  public func nearest(to query: [Float], k: Int = 10) throws -> [Hit] {
    guard query.count == width, k >= 0 else {
      throw EncoderError.badArgument("a query of \(query.count) numbers for rows of \(width), k \(k)")
    }
    let places = min(k, count)
    guard places > 0 else { return [] }
    var rows = [Int32](repeating: 0, count: places)
    var cosines = [Float](repeating: 0, count: places)
    var found = 0
    var line = [CChar](repeating: 0, count: 256)
    let status = msdc_top_k(query, values, count, width, places, &rows, &cosines, &found, &line, line.count)
    guard status == MSDC_OK else { throw EncoderError(status: status, line: text(of: line)) }
    return (0..<found).map { Hit(row: Int(rows[$0]), cosine: cosines[$0]) }
  }

  /// The cosine of two vectors of one width; 0 where one of them is zero.
  public static func cosine(_ a: [Float], _ b: [Float]) -> Float {
    precondition(a.count == b.count, "vectors of \(a.count) and \(b.count) numbers")
    return msdc_cosine(a, b, a.count)
  }
}

/// The text of a NUL-terminated buffer.
func text(of line: [CChar]) -> String {
  String(decoding: line.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
}

/// Set by the task that cancels, read by the thread that encodes.
final class StopFlag: @unchecked Sendable {
  private let lock = NSLock()
  private var stopped = false

  func set() {
    lock.lock()
    stopped = true
    lock.unlock()
  }

  var isSet: Bool {
    lock.lock()
    defer { lock.unlock() }
    return stopped
  }
}

func askStopFlag(context: UnsafeMutableRawPointer?, done: Int) -> Int32 {
  guard let context else { return 0 }
  return Unmanaged<StopFlag>.fromOpaque(context).takeUnretainedValue().isSet ? 1 : 0
}
