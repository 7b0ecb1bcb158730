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
}
