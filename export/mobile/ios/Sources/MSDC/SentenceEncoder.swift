import Foundation
import MSDCCore

/// An error, with the one-line message of the core.
public enum EncoderError: Error, Equatable {
  case badArgument(String)
  case damaged(String)
  case unsupported(String)
  /// An index is intact but of another model: `SearchIndex.rebuild` encodes its documents again.
  case otherModel(String)
  case runtime(String)
  case memory(String)
  case golden(String)
  /// The network or storage failed.
  case io(String)
  /// Another file took the place of an index's.
  case replaced(String)
  /// Another process holds an index's lock.
  case locked(String)
  /// The storage is full.
  case full(String)
  /// An index's file cannot be written.
  case readOnly(String)

  init(status: msdc_status, line: String) {
    switch status {
    case MSDC_BAD_ARGUMENT: self = .badArgument(line)
    case MSDC_DAMAGED: self = .damaged(line)
    case MSDC_UNSUPPORTED: self = .unsupported(line)
    case MSDC_MEMORY: self = .memory(line)
    case MSDC_GOLDEN: self = .golden(line)
    case MSDC_OTHER_MODEL: self = .otherModel(line)
    case MSDC_REPLACED: self = .replaced(line)
    case MSDC_LOCKED: self = .locked(line)
    case MSDC_FULL: self = .full(line)
    case MSDC_READ_ONLY: self = .readOnly(line)
    default: self = .runtime(line)
    }
  }
}

/// What a self-test found: golden texts run, texts whose ids differ, cosines to the vectors stored at export.
public struct SelfTest: Sendable, Equatable {
  public let texts: Int
  public let idsDiffer: Int
  public let minCosine: Float
  public let meanCosine: Float
}

/// Text to vector, from a bundle of `msdc export --target ios`.
///
///     let encoder = try await SentenceEncoder.open(bundle: folder)
///     let vector = try await encoder.encode("Wo ist der Bahnhof?")
///
/// Safe to share between threads: calls that run the program take turns in the order in which they came.
public final class SentenceEncoder: @unchecked Sendable {
  /// The model's name.
  public let name: String
  /// Numbers in a vector.
  public let width: Int
  /// Longest input in tokens, special ids included; longer texts are cut.
  public let maxLength: Int

  let handle: OpaquePointer
  private let box: ProgramBox
  // One for single texts and one for lists: the core takes turns between them after each text.
  private let queries = DispatchQueue(label: "org.msdc.query", qos: .userInitiated)
  private let lists = DispatchQueue(label: "org.msdc.list", qos: .utility)

  /// The encoder of a bundle folder. The first time on this device (and after an update of it or of the bundle) every hash
  /// is compared and the self-test run; later calls are fast.
  public static func open(bundle folder: URL, program: Program? = nil) async throws -> SentenceEncoder {
    try await Task.detached { try Proof(of: folder).opened { try SentenceEncoder(bundle: folder, checkFiles: $0, program: program) } }
      .value
  }

  /// Open a bundle folder on the calling thread, without a self-test. With `checkFiles` every file's hash is compared first; with `program` the caller runs the
  /// bundle's ExecuTorch program.
  public init(bundle folder: URL, checkFiles: Bool = false, program: Program? = nil) throws {
    let box = ProgramBox(try program ?? SentenceEncoder.executorch(folder))
    var options = msdc_options()
    options.size = UInt32(MemoryLayout<msdc_options>.size)
    options.threads = 1
    options.check_files = checkFiles ? 1 : 0
    var opened: OpaquePointer?
    let context = Unmanaged.passUnretained(box).toOpaque()
    try SentenceEncoder.check { error, size in
      msdc_open_with(folder.path, &options, "executorch", runSwiftProgram, context, &opened, error, size)
    }
    guard let opened else { throw EncoderError.runtime("no encoder came") }
    handle = opened
    self.box = box
    name = String(cString: msdc_name(opened))
    width = Int(msdc_width(opened))
    maxLength = Int(msdc_max_length(opened))
  }

  deinit {
    msdc_close(handle)
  }

  /// The prompt that the model holds under `name`, such as "query". An unknown name is an error that lists the
  /// known ones.
  public func prompt(named name: String) throws -> String {
    if name.utf8.contains(0) { throw EncoderError.badArgument("the prompt's name has a NUL character") }
    var found: UnsafePointer<CChar>?
    try check { error, size in msdc_find_prompt(handle, name, &found, error, size) }
    return found.map { String(cString: $0) } ?? ""
  }

  /// The vector of `text`, on a queue of this encoder's own. Waits for no list: only for the text of it that is being
  /// encoded. `prompt` is put before the text; nil takes the bundle's default prompt, an empty one none.
  public func encode(_ text: String, prompt: String? = nil) async throws -> [Float] {
    try await on(queries) { try self.batch([text], prompt: prompt, stop: $0) }.values
  }

  /// The vectors of `texts`, in order: one call of the core, one `prompt` for all of them. Cancelling the task ends it
  /// before the next text and throws `CancellationError`.
  public func encode(_ texts: [String], prompt: String? = nil) async throws -> Vectors {
    try await on(lists) { try self.batch(texts, prompt: prompt, stop: $0) }
  }

  /// `encode` on the calling thread. Takes milliseconds: call it off the main thread.
  public func encodeBlocking(_ text: String, prompt: String? = nil) throws -> [Float] {
    try batch([text], prompt: prompt, stop: StopFlag()).values
  }

  /// `encode` on the calling thread. Takes milliseconds per text: call it off the main thread.
  public func encodeBlocking(_ texts: [String], prompt: String? = nil) throws -> Vectors {
    try batch(texts, prompt: prompt, stop: StopFlag())
  }

  private func on<T: Sendable>(_ queue: DispatchQueue, _ work: @escaping @Sendable (StopFlag) throws -> T) async throws -> T {
    let stop = StopFlag()
    return try await withTaskCancellationHandler {
      try await withCheckedThrowingContinuation { continuation in
        queue.async { continuation.resume(with: Result { try work(stop) }) }
      }
    } onCancel: {
      stop.set()
    }
  }

  /// How many of `texts`, with their prompt, have more than `maxLength` tokens: `encode` cuts these.
  public func countTruncated(_ texts: [String], prompt: String? = nil) throws -> Int {
    var count = 0
    try withBytes(of: texts, prompt) { starts, sizes in
      try check { error, size in
        msdc_count_truncated(handle, prompt, starts, sizes, sizes.count, &count, error, size)
      }
    }
    return count
  }

  private func batch(_ texts: [String], prompt: String?, stop: StopFlag) throws -> Vectors {
    var values = [Float](repeating: 0, count: texts.count * width)
    try withBytes(of: texts, prompt) { starts, sizes in
      try check { error, size in
        msdc_encode_batch(
          handle, prompt, starts, sizes, sizes.count, &values, width, askStopFlag,
          Unmanaged.passUnretained(stop).toOpaque(), error, size)
      }
    }
    return Vectors(values: values, width: width)
  }

  /// Calls `work` with where each text begins and its bytes; not at all for no texts.
  private func withBytes(
    of texts: [String], _ prompt: String?, _ work: ([UnsafePointer<CChar>?], [Int]) throws -> Void
  ) throws {
    if prompt?.utf8.contains(0) == true { throw EncoderError.badArgument("the prompt has a NUL character") }
    if texts.isEmpty { return }
    // All texts in one piece of memory, with a byte at the end so that it is never empty.
    var bytes: [CChar] = []
    var sizes: [Int] = []
    for text in texts {
      bytes.append(contentsOf: text.utf8.map { CChar(bitPattern: $0) })
      sizes.append(text.utf8.count)
    }
    bytes.append(0)
    try bytes.withUnsafeBufferPointer { all in
      var next = all.baseAddress!
      var starts: [UnsafePointer<CChar>?] = []
      for size in sizes {
        starts.append(next)
        next += size
      }
      try work(starts, sizes)
    }
  }

  /// Token ids of `text` with the special ids, at most `maxLength`.
  public func tokenize(_ text: String) throws -> [Int32] {
    var ids = [Int32](repeating: 0, count: maxLength)
    var count = 0
    var utf8 = text
    try utf8.withUTF8 { bytes in
      try bytes.withMemoryRebound(to: CChar.self) { chars in
        try check { error, size in
          msdc_encoder_tokenize(handle, chars.baseAddress, chars.count, &ids, ids.count, &count, error, size)
        }
      }
    }
    return Array(ids.prefix(count))
  }

  /// Run the bundle's golden texts and compare ids and vectors with those of the export. Takes seconds.
  @discardableResult
  public func selfTest(promise: Float = 0.999) throws -> SelfTest {
    var found = msdc_self_test_result()
    try check { error, size in msdc_self_test(handle, promise, &found, error, size) }
    return SelfTest(
      texts: Int(found.texts), idsDiffer: Int(found.ids_differ), minCosine: found.min_cosine,
      meanCosine: found.mean_cosine)
  }

  // A Swift error of the program is more precise than the core's line about it.
  private func check(_ work: (UnsafeMutablePointer<CChar>, Int) throws -> msdc_status) throws {
    do {
      try SentenceEncoder.check(work)
    } catch {
      if let own = box.takeFailure() { throw own }
      throw error
    }
  }

  private static func check(_ work: (UnsafeMutablePointer<CChar>, Int) throws -> msdc_status) throws {
    var line = [CChar](repeating: 0, count: 1024)
    let status = try line.withUnsafeMutableBufferPointer { buffer in try work(buffer.baseAddress!, buffer.count) }
    if status == MSDC_CANCELLED { throw CancellationError() }
    guard status == MSDC_OK else {
      throw EncoderError(status: status, line: text(of: line))
    }
  }

  private static func executorch(_ folder: URL) throws -> Program {
    var file = [CChar](repeating: 0, count: 1024)
    var multiMethod: Int32 = 0
    var repeats: Int32 = 0
    var takesPrompt: Int32 = 0
    try check { error, size in
      msdc_find_program(
        folder.path, "executorch", &file, file.count, &multiMethod, &repeats, &takesPrompt, error, size)
    }
    let name = text(of: file)
    return try ExecuTorchProgram(
      file: folder.appendingPathComponent(name), multiMethod: multiMethod != 0, repeats: Int(repeats),
      takesPrompt: takesPrompt != 0)
  }
}

/// Carries the program through the C interface, and a Swift error back.
private final class ProgramBox: @unchecked Sendable {
  let program: Program
  private let lock = NSLock()
  private var failure: Error?

  init(_ program: Program) {
    self.program = program
  }

  func fail(_ error: Error) {
    lock.lock()
    failure = error
    lock.unlock()
  }

  func takeFailure() -> Error? {
    lock.lock()
    defer {
      failure = nil
      lock.unlock()
    }
    return failure
  }
}

private func runSwiftProgram(
  context: UnsafeMutableRawPointer?, ids: UnsafePointer<Int32>?, count: Int, promptTokens: Int,
  vector: UnsafeMutablePointer<Float>?, width: Int
) -> Int32 {
  guard let context, let ids, let vector else { return 1 }
  let box = Unmanaged<ProgramBox>.fromOpaque(context).takeUnretainedValue()
  do {
    let out = try box.program.run(Array(UnsafeBufferPointer(start: ids, count: count)), promptTokens: promptTokens)
    guard out.count == width else { return 2 }
    vector.update(from: out, count: width)
    return 0
  } catch {
    box.fail(error)
    return 3
  }
}
