import MSDC
import SwiftUI

@main
struct NotesApp: App {
  var body: some Scene {
    WindowGroup { NotesView() }
  }
}

/// A text field over a list: typing searches the notes by meaning.
struct NotesView: View {
  @State private var query = ""
  @State private var status = "Preparing the notes…"
  @State private var search: NoteSearch?
  @State private var found: [FoundNote] = []

  var body: some View {
    VStack(alignment: .leading) {
      TextField("Search in any language", text: $query)
        .textFieldStyle(.roundedBorder)
      Text(status).font(.footnote)
      List(found) { one in
        Text(query.isEmpty ? one.note : String(format: "%.2f  %@", one.cosine, one.note))
      }
    }
    .padding()
    .task {
      do {
        guard let folder = Bundle.main.url(forResource: "{{folder}}", withExtension: nil) else {
          status = "The folder {{folder}} is not in the app: add it as a folder reference"
          return
        }
        let encoder = try await SentenceEncoder.open(bundle: folder)
        search = try await NoteSearch(encoder: encoder, notes: allNotes)
      } catch {
        status = "\(error)"
      }
    }
    // A new text cancels the search of the one before; the first runs when the notes are ready.
    .task(id: "\(search != nil) \(query)") {
      guard let search else { return }
      do {
        found = try await search.nearest(to: query)
        status = "\(found.count) notes"
      } catch is CancellationError {
      } catch {
        status = "\(error)"
      }
    }
  }
}
