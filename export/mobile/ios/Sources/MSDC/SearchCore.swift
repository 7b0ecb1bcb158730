import Foundation
import MSDCCore

func json(_ value: Any) -> String {
  let data = try! JSONSerialization.data(withJSONObject: value, options: [.withoutEscapingSlashes])
  return String(decoding: data, as: UTF8.self)
}

func decoded<T: Decodable>(_ json: String) throws -> T { try JSONDecoder().decode(T.self, from: Data(json.utf8)) }

/// Calls the core, whose line becomes an error where it fails.
func checked(_ call: (UnsafeMutablePointer<CChar>, Int) -> msdc_status) throws {
  var line = [CChar](repeating: 0, count: 1024)
  let status = line.withUnsafeMutableBufferPointer { call($0.baseAddress!, $0.count) }
  if status == MSDC_CANCELLED { throw CancellationError() }
  guard status == MSDC_OK else { throw EncoderError(status: status, line: text(of: line)) }
}

private func appendText(context: UnsafeMutableRawPointer?, text: UnsafePointer<CChar>?, size: Int) {
  guard let context, let text else { return }
  let bytes = UnsafeRawBufferPointer(start: text, count: size)
  context.assumingMemoryBound(to: [String].self).pointee.append(String(decoding: bytes, as: UTF8.self))
}

/// The texts that a function of the core hands to its receiver.
func received(
  _ call: (msdc_on_text?, UnsafeMutableRawPointer?, UnsafeMutablePointer<CChar>, Int) -> msdc_status
) throws -> [String] {
  var texts: [String] = []
  try checked { line, size in withUnsafeMutablePointer(to: &texts) { call(appendText, $0, line, size) } }
  return texts
}

/// A hit as the core writes it.
struct CoreHit: Decodable {
  let id, text, title, metadata: String
  let score: Double
  let cosine, words: Double?
  let start, end, count: Int
  let matches: [[Int]]

  var found: SearchHit {
    let passage = String(String.UnicodeScalarView(text.unicodeScalars.dropFirst(start).prefix(end - start)))
    return SearchHit(
      document: Document(id: id, text: text, title: title, metadata: metadata), score: score, cosine: cosine ?? 0,
      words: words ?? 0, passage: passage, matches: matches.map { $0[0]..<$0[1] }, count: count)
  }
}

/// A batch of documents, closed with it.
final class SearchBatch {
  let handle: OpaquePointer

  init(_ handle: OpaquePointer) { self.handle = handle }

  deinit { msdc_index_batch_close(handle) }

  func texts() throws -> [String] { try received { msdc_index_texts(handle, $0, $1, $2, $3) } }
}
