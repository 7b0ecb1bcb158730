// Runs the table of tests/helpers/hostile_inputs.py: texts, damaged bundles, damaged indexes. A line for each check.
import Foundation

@testable import MSDC

// Code units in hexadecimal digits.
func units(_ digits: String) -> String {
  let all = Array(digits)
  let codes = stride(from: 0, to: all.count, by: 4).map { UInt16(String(all[$0..<$0 + 4]), radix: 16)! }
  return String(decoding: codes, as: UTF16.self)
}

func numbers(_ text: String) -> [Double] { text.split(separator: " ").map { Double($0)! } }

func answersOf(_ file: URL, _ encoder: SentenceEncoder) async throws -> [String] {
  let index = try SearchIndex(file: file, encoder: encoder)
  var all: [String] = []
  for mode in [Mode.words, .both] {
    all += try await index.search("the ticket", top: 9, mode: mode).map { "\($0.document) \($0.score) \($0.passage)" }
  }
  return all
}

func checkHostile(_ encoder: SentenceEncoder, _ folder: URL, _ program: Borrowed) async throws {
  func rows(_ name: String) throws -> [[String]] { try lines(folder.appendingPathComponent("\(name).tsv")) }
  for row in try rows("bundles") {
    await fails(row[0], row[1]) {
      let bundle = folder.appendingPathComponent("bundles/\(row[0])")
      try SentenceEncoder(bundle: bundle, checkFiles: true, program: program).selfTest()
    }
  }
  let texts = try rows("texts")
  let batch = try encoder.encodeBlocking(texts.map { units($0[1]) }, prompt: "")
  for (at, row) in texts.enumerated() {
    let ids = try encoder.tokenize(units(row[1])).map(Double.init)
    let near = zip(numbers(row[3]), batch[at]).allSatisfy { abs($0 - Double($1)) < 1e-3 }
    passed(row[0], ids == numbers(row[2]) && near)
  }
  let nul = units(try String(contentsOf: folder.appendingPathComponent("nul.txt"), encoding: .utf8))
  let own = try SearchIndex(file: folder.appendingPathComponent("own.sqlite"), encoder: encoder)
  let documents = try rows("documents").map { Document(id: units($0[0]), text: units($0[2]), title: units($0[1]), metadata: units($0[3])) }
  try await own.add(documents)
  passed("documents", try await own.count() == documents.count)
  await fails("NUL in an id", "NUL") { try await own.add([Document(id: nul, text: "fine")]) }
  await fails("NUL in an update", "NUL") { try await own.update([Document(id: nul, text: "fine")]) }
  await fails("NUL in a removal", "NUL") { try await own.remove([nul]) }
  await fails("NUL in a filter", "NUL") { _ = try await own.search("fine", where: ["note": .oneOf([nul])]) }
  await fails("NUL in a column", "NUL") { _ = try await own.search("fine", where: [nul: "x"]) }
  await fails("NUL in a prompt", "NUL") { _ = try encoder.encodeBlocking("a", prompt: nul) }
  await fails("NUL in a name", "NUL") { _ = try encoder.prompt(named: nul) }
  for row in texts where units(row[1]).contains(where: { !$0.isWhitespace }) {
    passed("query \(row[0])", try await own.search(units(row[1]), top: 3).count <= 3)
  }
  let wanted = try await answersOf(folder.appendingPathComponent("whole.sqlite"), encoder)
  var refused = 0
  for row in try rows("indexes") {
    do {
      passed(row[0], try await answersOf(folder.appendingPathComponent("indexes/\(row[0])"), encoder) == wanted)
    } catch let error as EncoderError {
      refused += 1
      passed(row[0], !"\(error)".contains("\n"))
    }
  }
  passed("refused", refused > 30)
}
