import Foundation
import MSDC

/// A note, and the places of the query's words in its text, as offsets in `unicodeScalars`.
struct Note: Identifiable, Equatable, Sendable {
  let id: String
  let text: String
  var matches: [Range<Int>] = []
}

/// The notes of the app, in an index that is opened once. What was written is on the disk when the call returns.
struct Notes: Sendable {
  private static let newest = 100
  private static let hits = 20
  private let index: SearchIndex

  /// Opens the notes in `file`. After an update with another model all of them are encoded again, and `progress` reports
  /// how many.
  init(file: URL, encoder: SentenceEncoder, progress: @escaping @Sendable (Int, Int) -> Void) async throws {
    do {
      index = try SearchIndex(file: file, encoder: encoder)
    } catch EncoderError.otherModel {
      index = try SearchIndex(file: file, encoder: nil)
      try await index.rebuild(encoder, progress: progress)
    }
  }

  /// The notes nearest to `query` by words and meaning, none where nothing is relevant; the newest where it is blank.
  func search(_ query: String) async throws -> [Note] {
    guard query.contains(where: { !$0.isWhitespace }) else {
      var notes: [Note] = []
      for id in try await index.ids().suffix(Notes.newest).reversed() {
        if let document = try await index.get(id) { notes.append(Note(id: id, text: document.text)) }
      }
      return notes
    }
    let threshold = try await index.relevantCosine().map { Float($0) }
    return try await index.search(query, top: Notes.hits, threshold: threshold)
      .map { Note(id: $0.document.id, text: $0.document.text, matches: $0.matches) }
  }

  /// Writes a note, in place of one of the same id.
  func save(_ text: String, id: String) async throws { try await index.update([Document(id: id, text: text)]) }

  func remove(_ id: String) async throws { try await index.remove([id]) }
}
