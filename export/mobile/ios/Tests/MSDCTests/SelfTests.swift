import XCTest

@testable import MSDC

/// Set MSDC_BUNDLE to the bundle folder.
final class SelfTests: XCTestCase {
  func testGoldenTextsAreReproduced() throws {
    guard let path = ProcessInfo.processInfo.environment["MSDC_BUNDLE"] else {
      throw XCTSkip("MSDC_BUNDLE names no bundle folder")
    }
    let encoder = try SentenceEncoder(bundle: URL(fileURLWithPath: path), checkFiles: true)
    let found = try encoder.selfTest()
    XCTAssertEqual(found.idsDiffer, 0)
    XCTAssertGreaterThanOrEqual(found.meanCosine, 0.999)
    XCTAssertEqual(try encoder.encode("hello").count, encoder.width)
  }

  func testBatchAndSearch() async throws {
    guard let path = ProcessInfo.processInfo.environment["MSDC_BUNDLE"] else {
      throw XCTSkip("MSDC_BUNDLE names no bundle folder")
    }
    let encoder = try SentenceEncoder(bundle: URL(fileURLWithPath: path))
    let texts = ["Buy milk", "", "Der Zug fährt um acht"]
    let vectors = try await encoder.vectors(of: texts)
    XCTAssertEqual(vectors.count, texts.count)
    for (row, text) in texts.enumerated() { XCTAssertEqual(vectors[row], try encoder.encode(text)) }
    XCTAssertEqual(try vectors.nearest(to: encoder.encode(texts[2]), k: 1).first?.row, 2)
    let task = Task { try await encoder.vectors(of: Array(repeating: "a long list", count: 1_000_000)) }
    task.cancel()
    do {
      _ = try await task.value
      XCTFail("the cancelled batch came to its end")
    } catch is CancellationError {}
  }
}
