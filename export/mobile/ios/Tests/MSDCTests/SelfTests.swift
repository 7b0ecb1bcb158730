import XCTest

@testable import MSDC

/// Set MSDC_BUNDLE to the bundle folder.
final class SelfTests: XCTestCase {
  private func encoder() throws -> SentenceEncoder {
    guard let path = ProcessInfo.processInfo.environment["MSDC_BUNDLE"] else {
      throw XCTSkip("MSDC_BUNDLE names no bundle folder")
    }
    return try SentenceEncoder(bundle: URL(fileURLWithPath: path), checkFiles: true)
  }

  func testGoldenTextsAreReproduced() throws {
    let encoder = try encoder()
    let found = try encoder.selfTest()
    XCTAssertEqual(found.idsDiffer, 0)
    XCTAssertGreaterThanOrEqual(found.meanCosine, 0.999)
    XCTAssertEqual(try encoder.encodeBlocking("hello").count, encoder.width)
  }

  func testBatchAndSearch() async throws {
    let encoder = try encoder()
    let texts = ["Buy milk", "", "Der Zug fährt um acht"]
    let vectors = try await encoder.encode(texts)
    XCTAssertEqual(vectors.count, texts.count)
    for (row, text) in texts.enumerated() { XCTAssertEqual(vectors[row], try encoder.encodeBlocking(text)) }
    XCTAssertEqual(try vectors.nearest(to: encoder.encodeBlocking(texts[2]), k: 1).first?.row, 2)
    let task = Task { try await encoder.encode(Array(repeating: "a long list", count: 1_000_000)) }
    task.cancel()
    do {
      _ = try await task.value
      XCTFail("the cancelled batch came to its end")
    } catch is CancellationError {}
  }

  /// search.tsv: documents, and what the machine that exported the bundle found among them.
  func testSearchFindsWhatTheExportFound() async throws {
    let encoder = try encoder()
    let file = FileManager.default.temporaryDirectory.appendingPathComponent(UUID().uuidString + ".sqlite")
    let index = try SearchIndex(file: file, encoder: encoder)
    let answers = try String(contentsOf: XCTUnwrap(Bundle.module.url(forResource: "search", withExtension: "tsv")), encoding: .utf8)
    let lines = answers.split(separator: "\n").map { $0.split(separator: "\t", omittingEmptySubsequences: false).map(String.init) }
    try await index.add(lines.filter { $0[0] == "document" }.map { Document(id: $0[1], text: $0[2]) })
    for line in lines where line[0] != "document" {
      let found = try await index.search(line[1], mode: XCTUnwrap(Mode(rawValue: line[0])))
      let wanted = line[2].split(separator: " ").map { $0.split(separator: ":").map(String.init) }
      XCTAssertEqual(found.count, wanted.count, line[1])
      // 20 x the difference of two processors' cosines.
      for (one, want) in zip(found, wanted) { XCTAssertEqual(one.score, try XCTUnwrap(Double(want[1])), accuracy: 0.2, line[1]) }
    }
  }
}
