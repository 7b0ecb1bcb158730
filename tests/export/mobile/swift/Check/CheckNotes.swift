// The notes app of examples/ios without its views.
import Foundation

@testable import MSDC

private let texts = [
  "Buy milk, eggs and bread on the way home", "Receta: arroz con verduras y limón", "Le chat doit aller chez le vétérinaire",
]

@MainActor
private func shows(_ name: String, _ model: NotesModel, _ condition: ([String]) -> Bool) async throws {
  for _ in 0..<6000 where !condition((model.notes ?? []).map(\.text)) { try await Task.sleep(nanoseconds: 10_000_000) }
  passed(name, condition((model.notes ?? []).map(\.text)) && model.failure == nil)
}

@MainActor
func checkNotes(_ encoder: SentenceEncoder, _ files: URL, bundle other: URL, _ program: Program) async throws {
  let file = files.appendingPathComponent("notes.sqlite")
  let model = NotesModel()
  await model.open(file: file) { encoder }
  try await shows("no notes", model) { $0.isEmpty }
  for (number, text) in texts.enumerated() {
    model.save(text, id: "\(number)")
    try await shows("saved", model) { $0.contains(text) }
  }
  try await shows("newest first", model) { $0 == texts.reversed() }
  for end in 1...texts[1].count { model.query = String(texts[1].prefix(end)) }
  try await shows("as one types", model) { $0.first == texts[1] }
  let scalars = Array(texts[1].unicodeScalars)
  let words = model.notes![0].matches.map { String(String.UnicodeScalarView(scalars[$0])) }
  passed("matches", words.contains("arroz"))
  model.save("Receta: sopa", id: "1")
  model.query = "sopa "
  try await shows("changed", model) { $0.first == "Receta: sopa" && !$0.contains(texts[1]) }
  model.remove("1")
  try await shows("removed", model) { !$0.contains("Receta: sopa") }
  let later = NotesModel()
  await later.open(file: file) { encoder }
  try await shows("another start", later) { $0 == [texts[2], texts[0]] }
  passed("nothing was encoded again", later.progress == nil)
  let updated = NotesModel()
  await updated.open(file: file) { try SentenceEncoder(bundle: other, program: program) }
  try await shows("another model", updated) { $0 == [texts[2], texts[0]] }
  for _ in 0..<6000 where updated.progress != 1 { try await Task.sleep(nanoseconds: 10_000_000) }
  passed("progress", updated.progress == 1)
  let failing = NotesModel()
  await failing.open(file: files.appendingPathComponent("none")) { throw EncoderError.io("no model") }
  passed("no model", failing.failure == "io(\"no model\")" && failing.notes == nil)
}
