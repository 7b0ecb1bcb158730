import Foundation
import MSDC
import Observation

/// What the screen shows.
@MainActor @Observable
final class NotesModel {
  var query = "" { didSet { find() } }
  /// nil until the notes are open.
  private(set) var notes: [Note]?
  /// Share of the notes that were encoded with a new model; nil: none has to be.
  private(set) var progress: Double?
  private(set) var failure: String?
  private var opened: Notes?
  private var search: Task<Void, Never>?

  /// Opens the notes once; `encoder` opens the model.
  func open(file: URL, encoder: () async throws -> SentenceEncoder) async {
    guard opened == nil else { return }
    await attempt {
      opened = try await Notes(file: file, encoder: try await encoder()) { done, total in
        Task { @MainActor in self.progress = Double(done) / Double(total) }
      }
    }
    find()
  }

  func save(_ text: String, id: String) { change { try await $0.save(text, id: id) } }

  func remove(_ id: String) { change { try await $0.remove(id) } }

  /// The search of an earlier text is cancelled: the newest is shown.
  private func find() {
    search?.cancel()
    guard let opened else { return }
    let query = query
    search = Task {
      await attempt {
        let results = try await opened.search(query)
        if !Task.isCancelled { notes = results }
      }
    }
  }

  private func change(_ work: @escaping @Sendable (Notes) async throws -> Void) {
    guard let opened else { return }
    Task {
      await attempt { try await work(opened) }
      find()
    }
  }

  private func attempt(_ work: () async throws -> Void) async {
    do {
      try await work()
      failure = nil
    } catch is CancellationError {
    } catch {
      failure = "\(error)"
    }
  }
}
