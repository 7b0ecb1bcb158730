import MSDC
import SwiftUI

@main
struct NotesApp: App {
  @State private var model = NotesModel()

  var body: some Scene {
    WindowGroup {
      NotesView(model: model).task {
        let file = URL.documentsDirectory.appending(path: "notes.sqlite")
        await model.open(file: file) {
          guard let folder = Bundle.main.url(forResource: "model", withExtension: nil) else {
            throw EncoderError.io("the folder model is not in the app")
          }
          return try await SentenceEncoder.open(bundle: folder)
        }
      }
    }
  }
}

/// Notes with a search box that answers as one types.
struct NotesView: View {
  @Bindable var model: NotesModel
  @State private var edited: Note?

  var body: some View {
    NavigationStack {
      List(model.notes ?? []) { note in
        Button { edited = note } label: { Text(highlighted(note)).foregroundStyle(Color.primary) }
          .swipeActions { Button("Delete", role: .destructive) { model.remove(note.id) } }
      }
      .overlay { status }
      .navigationTitle("Notes")
      .searchable(text: $model.query, prompt: "Search in any language")
      .toolbar {
        Button("New note", systemImage: "plus") { edited = Note(id: UUID().uuidString, text: "") }
          .disabled(model.notes == nil)
      }
      .sheet(item: $edited) { note in Editor(text: note.text) { model.save($0, id: note.id) } }
    }
  }

  @ViewBuilder private var status: some View {
    if let failure = model.failure {
      Text(failure).foregroundStyle(.red).padding()
    } else if let notes = model.notes {
      if notes.isEmpty {
        ContentUnavailableView(model.query.isEmpty ? "No notes yet" : "Nothing relevant", systemImage: "magnifyingglass")
      }
    } else if let progress = model.progress {
      ProgressView("Updating the notes for a new model", value: progress).padding()
    } else {
      ProgressView("Preparing the model")
    }
  }

  private func highlighted(_ note: Note) -> AttributedString {
    var text = AttributedString(note.text)
    let scalars = text.unicodeScalars
    let ranges = note.matches.map { match in
      scalars.index(scalars.startIndex, offsetBy: match.lowerBound)
        ..< scalars.index(scalars.startIndex, offsetBy: match.upperBound)
    }
    for range in ranges { text[range].font = .body.bold() }
    return text
  }
}

struct Editor: View {
  @State var text: String
  let onSave: (String) -> Void
  @Environment(\.dismiss) private var dismiss

  var body: some View {
    NavigationStack {
      TextEditor(text: $text).padding()
        .toolbar {
          ToolbarItem(placement: .cancellationAction) { Button("Cancel") { dismiss() } }
          ToolbarItem(placement: .confirmationAction) {
            Button("Save") {
              onSave(text)
              dismiss()
            }
            .disabled(text.allSatisfy(\.isWhitespace))
          }
        }
    }
  }
}
