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
/// `cosine` of its best passage, or the sum, with the cosine scaled. `passage` is the part to show, `matches` are the places of
/// the query's words as offsets in `document.text.unicodeScalars`, and `count` is the number of documents with the same
/// words, of which this is the best.
public struct SearchHit: Sendable, Equatable {
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
/// (2031-05-31T10:00+02:00; without a zone UTC) as such; other texts as text. `any`, `all` and `none` combine filters,
/// whatever name they have.
public enum Filter: Sendable, ExpressibleByStringLiteral, ExpressibleByIntegerLiteral {
  case oneOf([String])
  case noneOf([String])
  case between(Double?, Double?)
  case range(String?, String?)
  case missing
  case present
  indirect case any([[String: Filter]])
  indirect case all([[String: Filter]])
  indirect case none([String: Filter])

  public init(stringLiteral value: String) { self = .oneOf([value]) }
  public init(integerLiteral value: Int) { self = .oneOf(["\(value)"]) }

  // A filter of msdc_index_search: [[column, [alternative, ...], excluded], {"or": [filter, ...]}, {"not": [filter]}, ...].
  static func conditions(_ filter: [String: Filter]) throws -> [Any] {
    try filter.flatMap { try $0.value.conditions($0.key) }
  }

  private func conditions(_ name: String) throws -> [Any] {
    switch self {
    case .any(let filters): return [["or": try filters.map(Filter.conditions)]]
    case .all(let filters): return try filters.flatMap(Filter.conditions)
    case .none(let excluded): return [["not": [try Filter.conditions(excluded)]]]
    case .oneOf(let texts): return [[name, texts, 0] as [Any]]
    case .noneOf(let texts): return [[name, texts, 1] as [Any]]
    case .between(let least, let most):
      guard [least, most].allSatisfy({ $0?.isFinite ?? true }) else {
        throw EncoderError.badArgument("filter \(name): a number that JSON cannot hold")
      }
      return [[name, [[least ?? NSNull(), most ?? NSNull()] as [Any]], 0] as [Any]]
    case .range(let least, let most): return [[name, [[least ?? NSNull(), most ?? NSNull()] as [Any]], 0] as [Any]]
    case .missing: return [[name, [NSNull()], 0] as [Any]]
    case .present: return [[name, [NSNull()], 1] as [Any]]
    }
  }
}
