import Foundation
import MSDCCore

#if canImport(FoundationNetworking)
  import FoundationNetworking
#endif

/// Remembers that a bundle's hashes were compared and its self-test passed, for this bundle.json and version of the system.
struct Proof {
  private let mark: URL

  init(of folder: URL) throws {
    let system = ProcessInfo.processInfo.operatingSystemVersionString.filter { $0.isLetter || $0.isNumber }
    let name = try sha256(folder.appendingPathComponent("bundle.json")).prefix(32)
    mark = try support("proven").appendingPathComponent("\(name)-\(system)")
  }

  /// What `open` makes, given whether to compare the hashes; proven once by a self-test.
  func opened(_ open: (Bool) throws -> SentenceEncoder) throws -> SentenceEncoder {
    let proven = FileManager.default.fileExists(atPath: mark.path)
    let encoder = try open(!proven)
    if !proven {
      _ = try encoder.selfTest()
      try Data().write(to: mark)
    }
    return encoder
  }
}

extension SentenceEncoder {
  /// The folder of the bundle at the web address `base`, whose bundle.json has the hash `sha256` (64 hexadecimal digits,
  /// kept in the app). The first call downloads the files that the program needs, with the sizes and hashes of bundle.json,
  /// into the app's support folder; later ones compare the hashes and need no network. What was lost or damaged is
  /// downloaded again, with `anew` all of it, and an interrupted download continues with the next call. Calls wait for each
  /// other, also those of other processes with the same folder.
  /// `progress` is called with the bytes received so far and those of all files. Open it with `SentenceEncoder.open(bundle:)`.
  public static func download(
    from base: URL, sha256 digits: String, anew: Bool = false, progress: (@Sendable (Int64, Int64) -> Void)? = nil
  ) async throws -> URL {
    guard digits.count == 64 else {
      throw EncoderError.badArgument("sha256 has 64 hexadecimal digits, not \(digits.count)")
    }
    let folder = try support("downloads").appendingPathComponent(String(digits.lowercased().prefix(32)))
    let lock = try await FileLock(folder.appendingPathExtension("lock"))
    defer { lock.unlock() }
    let files = FileManager.default
    let stage = folder.appendingPathExtension("partial")
    if anew {
      for old in [folder, stage] where files.fileExists(atPath: old.path) { try files.removeItem(at: old) }
    }
    if files.fileExists(atPath: folder.path) {
      if isIntact(folder, digits) { return folder }
      if files.fileExists(atPath: stage.path) { try files.removeItem(at: stage) }
      try files.moveItem(at: folder, to: stage)
    }
    try files.createDirectory(at: stage, withIntermediateDirectories: true)
    let manifest = stage.appendingPathComponent("bundle.json")
    try await fetch(base.appendingPathComponent("bundle.json"), to: manifest, most: 1 << 20) { _ in }
    let actual = try sha256(manifest)
    guard actual == digits.lowercased() else {
      throw EncoderError.damaged("bundle.json has the sha256 \(actual), not \(digits)")
    }
    let listed = try bundleFiles(stage)
    let total: Int64 = listed.map(\.bytes).reduce(0, +)
    var done: Int64 = 0
    for file in listed {
      let target = stage.appendingPathComponent(file.name)
      if (try? sha256(target)) != file.sha256 {
        let before = done
        try await fetch(base.appendingPathComponent(file.name), to: target, most: file.bytes) { progress?(before + $0, total) }
        guard try sha256(target) == file.sha256 else {
          try files.removeItem(at: target)
          throw EncoderError.damaged("\(file.name) differs from the one that bundle.json lists")
        }
      }
      done += file.bytes
      progress?(done, total)
    }
    try files.moveItem(at: stage, to: folder)
    return folder
  }
}

/// Whether a downloaded folder has what its bundle.json lists. Hashes and not only sizes: after a crash a file may have
/// its length and zeros.
private func isIntact(_ folder: URL, _ digits: String) -> Bool {
  guard (try? sha256(folder.appendingPathComponent("bundle.json"))) == digits.lowercased(),
    let listed = try? bundleFiles(folder)
  else { return false }
  return listed.allSatisfy { (try? sha256(folder.appendingPathComponent($0.name))) == $0.sha256 }
}

/// A lock between tasks and processes. A process that dies gives it back.
private final class FileLock {
  private let descriptor: Int32

  /// Waits for the lock; a cancelled task stops to wait.
  init(_ file: URL) async throws {
    descriptor = open(file.path, O_CREAT | O_RDWR, 0o600)
    guard descriptor >= 0 else { throw EncoderError.io("\(file.path): \(String(cString: strerror(errno)))") }
    do {
      while flock(descriptor, LOCK_EX | LOCK_NB) != 0 { try await Task.sleep(nanoseconds: 50_000_000) }
    } catch {
      close(descriptor)
      throw error
    }
  }

  func unlock() { close(descriptor) }
}

/// A folder of the app's support files, outside the backup: the app can install it again.
private func support(_ name: String) throws -> URL {
  let root = try FileManager.default.url(
    for: .applicationSupportDirectory, in: .userDomainMask, appropriateFor: nil, create: true)
  var folder = root.appendingPathComponent("msdc").appendingPathComponent(name)
  try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
  #if canImport(Darwin)
    var values = URLResourceValues()
    values.isExcludedFromBackup = true
    try folder.setResourceValues(values)
  #endif
  return folder
}

private func sha256(_ file: URL) throws -> String {
  var digits = [CChar](repeating: 0, count: 65)
  var line = [CChar](repeating: 0, count: 1024)
  let status = msdc_file_sha256(file.path, &digits, &line, line.count)
  guard status == MSDC_OK else { throw EncoderError(status: status, line: text(of: line)) }
  return text(of: digits)
}

private func bundleFiles(_ folder: URL) throws -> [(name: String, bytes: Int64, sha256: String)] {
  var lines = [CChar](repeating: 0, count: 1 << 14)
  var line = [CChar](repeating: 0, count: 1024)
  var size = 0
  let status = msdc_bundle_files(folder.path, "executorch", &lines, lines.count, &size, &line, line.count)
  guard status == MSDC_OK else { throw EncoderError(status: status, line: text(of: line)) }
  var listed: [(name: String, bytes: Int64, sha256: String)] = []
  for one in text(of: lines).split(separator: "\n") {
    let cells: [Substring] = one.split(separator: "\t")
    listed.append((name: String(cells[0]), bytes: Int64(cells[1]) ?? 0, sha256: String(cells[2])))
  }
  return listed
}

/// Writes what `address` sends to `target`, at most so many bytes.
private func fetch(
  _ address: URL, to target: URL, most: Int64, progress: @escaping @Sendable (Int64) -> Void
) async throws {
  let transfer = try Transfer(target, most, progress)
  let session = URLSession(configuration: .ephemeral, delegate: transfer, delegateQueue: nil)
  defer { session.invalidateAndCancel() }
  let task = session.dataTask(with: address)
  try await withTaskCancellationHandler {
    try await withCheckedThrowingContinuation { continuation in
      transfer.start(continuation)
      task.resume()
    }
  } onCancel: {
    task.cancel()
  }
}

/// One download; the session calls it on a queue of its own, one call at a time.
private final class Transfer: NSObject, URLSessionDataDelegate, @unchecked Sendable {
  private let file: FileHandle
  private let most: Int64
  private let progress: @Sendable (Int64) -> Void
  private var done: Int64 = 0
  private var failure: Error?
  private var continuation: CheckedContinuation<Void, Error>?

  init(_ target: URL, _ most: Int64, _ progress: @escaping @Sendable (Int64) -> Void) throws {
    // A new file: a damaged one may be mapped by another process.
    try? FileManager.default.removeItem(at: target)
    try Data().write(to: target)
    file = try FileHandle(forWritingTo: target)
    self.most = most
    self.progress = progress
  }

  func start(_ continuation: CheckedContinuation<Void, Error>) { self.continuation = continuation }

  func urlSession(
    _ session: URLSession, dataTask: URLSessionDataTask, didReceive response: URLResponse,
    completionHandler: @escaping (URLSession.ResponseDisposition) -> Void
  ) {
    let code = (response as? HTTPURLResponse)?.statusCode ?? 200
    if code != 200 { failure = EncoderError.io("\(response.url?.absoluteString ?? ""): HTTP \(code)") }
    completionHandler(code == 200 ? .allow : .cancel)
  }

  func urlSession(_ session: URLSession, dataTask: URLSessionDataTask, didReceive data: Data) {
    done += Int64(data.count)
    do {
      guard done <= most else { throw EncoderError.damaged("\(dataTask.originalRequest?.url?.lastPathComponent ?? "") is longer than \(most) bytes") }
      try file.write(contentsOf: data)
      progress(done)
    } catch {
      failure = failure ?? error
      dataTask.cancel()
    }
  }

  func urlSession(_ session: URLSession, task: URLSessionTask, didCompleteWithError error: Error?) {
    try? file.close()
    if let failure {
      continuation?.resume(throwing: failure)
    } else if let error {
      let cancelled = (error as? URLError)?.code == .cancelled
      continuation?.resume(throwing: cancelled ? CancellationError() : EncoderError.io(error.localizedDescription))
    } else {
      continuation?.resume()
    }
  }
}
