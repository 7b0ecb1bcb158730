import Foundation
import MSDC

/// A note and its cosine to the query.
struct FoundNote: Identifiable {
  let id: Int
  let note: String
  let cosine: Float
}

/// Search over notes by meaning. The vectors of the notes are computed once, in one batch.
struct NoteSearch: Sendable {
  private let encoder: SentenceEncoder
  private let notes: [String]
  private let vectors: Vectors

  init(encoder: SentenceEncoder, notes: [String]) async throws {
    self.encoder = encoder
    self.notes = notes
    vectors = try await encoder.encode(notes)
  }

  /// The `k` notes nearest to `query`, best first; all notes in their order where it is blank.
  func nearest(to query: String, k: Int = 10) async throws -> [FoundNote] {
    guard query.contains(where: { !$0.isWhitespace }) else {
      return notes.enumerated().map { FoundNote(id: $0.offset, note: $0.element, cosine: 0) }
    }
    return try await vectors.nearest(to: encoder.encode(query), k: k)
      .map { FoundNote(id: $0.row, note: notes[$0.row], cosine: $0.cosine) }
  }
}
