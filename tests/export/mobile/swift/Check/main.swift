// Runs the package's classes over the real program, which another copy of the core runs. Prints one line for each check.
import Foundation
import MSDCCore

@testable import MSDC

func passed(_ name: String, _ ok: Bool) { print(ok ? "ok \(name)" : "FAILED \(name)") }

func fails(_ name: String, _ words: String, _ work: () async throws -> Void) async {
  do {
    try await work()
    print("FAILED \(name)")
  } catch {
    if !"\(error)".contains(words) { print("  \(error)") }
    passed(name, "\(error)".contains(words))
  }
}

/// A program that a second core runs, loaded from a library: as in an app with a runtime of its own.
final class Borrowed: Program, @unchecked Sendable {
  typealias Open = @convention(c) (
    UnsafePointer<CChar>?, UnsafeRawPointer?, UnsafeMutablePointer<OpaquePointer?>?, UnsafeMutablePointer<CChar>?, Int
  ) -> UInt32
  typealias Encode = @convention(c) (
    OpaquePointer?, UnsafePointer<Int32>?, Int, UnsafeMutablePointer<Float>?, Int, UnsafeMutablePointer<CChar>?, Int
  ) -> UInt32
  private let lock = NSLock()
  private var count = 0
  private let handle: OpaquePointer
  private let encode: Encode
  private let width: Int
  var pause = 0.0

  var calls: Int {
    lock.lock()
    defer { lock.unlock() }
    return count
  }

  init(library: String, bundle: String, width: Int) throws {
    guard let loaded = dlopen(library, RTLD_NOW | RTLD_LOCAL) else { throw EncoderError.runtime(String(cString: dlerror())) }
    let open = unsafeBitCast(dlsym(loaded, "msdc_open"), to: Open.self)
    encode = unsafeBitCast(dlsym(loaded, "msdc_encode_ids"), to: Encode.self)
    var opened: OpaquePointer?
    var line = [CChar](repeating: 0, count: 1024)
    guard open(bundle, nil, &opened, &line, line.count) == 0, let opened else { throw EncoderError.runtime(text(of: line)) }
    handle = opened
    self.width = width
  }

  func run(_ ids: [Int32], promptTokens: Int) throws -> [Float] {
    lock.lock()
    count += 1
    lock.unlock()
    Thread.sleep(forTimeInterval: pause)
    var vector = [Float](repeating: 0, count: width)
    var line = [CChar](repeating: 0, count: 1024)
    guard encode(handle, ids, ids.count, &vector, width, &line, line.count) == 0 else {
      throw EncoderError.runtime(text(of: line))
    }
    return vector
  }
}

func lines(_ file: URL) throws -> [[String]] {
  try String(contentsOf: file, encoding: .utf8).split(separator: "\n", omittingEmptySubsequences: true)
    .map { $0.split(separator: "\t", omittingEmptySubsequences: false).map(String.init) }
}

/// The filters of phone_search.py.
func filter(_ text: String) -> [String: Filter] {
  guard let at = text.firstIndex(where: { "=!<>+-".contains($0) }) else { return [:] }
  let name = String(text[..<at])
  let value = String(text[text.index(after: at)...])
  let texts = value.split(separator: "|").map(String.init)
  switch text[at] {
  case ">": return [name: Double(value).map { .between($0, nil) } ?? .range(value, nil)]
  case "<": return [name: Double(value).map { .between(nil, $0) } ?? .range(nil, value)]
  case "!": return [name: .noneOf(texts)]
  case "-": return [name: .missing]
  case "+": return [name: .present]
  default: return [name: .oneOf(texts)]
  }
}

/// The value of an option of phone_search.py; nil without it.
func option(_ options: String, _ name: String) -> String? {
  options.split(separator: " ").first { $0.hasPrefix("\(name)=") }.map { String($0.dropFirst(name.count + 1)) }
}

func same(_ wanted: [String], _ hit: SearchHit) -> Bool {
  let bytes = Array(hit.passage.utf8)
  let spans = hit.matches.map { "\($0.lowerBound)-\($0.upperBound)" }.joined(separator: ",")
  return wanted[0] == hit.document.id && abs(Double(wanted[1])! - hit.score) < 1e-2
    && abs(Double(wanted[2])! - hit.cosine) < 2e-4
    && Array(wanted[3...]) == ["\(msdc_crc32(0, bytes, bytes.count))", spans, "\(hit.count)"]
}

func checkAnswers(_ index: SearchIndex, _ answers: [[String]]) async throws {
  for line in answers {
    let offset = option(line[4], "offset").flatMap { Int($0) } ?? 0
    let group = option(line[4], "group")?.components(separatedBy: "@")
    let boost = option(line[4], "boost")?.components(separatedBy: "@")
    let boosts = boost.map { [(where: filter($0[0]), bonus: Double($0[1])!)] } ?? []
    let order = option(line[4], "order")?.components(separatedBy: ",") ?? []
    let (isDistinct, size) = (!line[4].contains("each"), group.flatMap { Int($0[1]) } ?? 1)
    let hits = line[0] == "like"
      ? try await index.similar(
        line[3], top: Int(line[1])!, where: filter(line[2]), offset: offset, distinct: isDistinct, order: order,
        boost: boosts, group: group?[0], groupSize: size)
      : try await index.search(
        line[3], top: Int(line[1])!, mode: Mode(rawValue: line[0])!, where: filter(line[2]), offset: offset,
        distinct: isDistinct, operators: !line[4].contains("plain"), order: order, boost: boosts, group: group?[0],
        groupSize: size)
    let wanted = line[5].split(separator: " ").map { $0.split(separator: ":", omittingEmptySubsequences: false).map(String.init) }
    let agrees = wanted.count == hits.count && zip(wanted, hits).allSatisfy(same)
    if !agrees { print("  \(hits) where \(line[5])") }
    passed("\(line[0]) \(line[2]) \(line[3])", agrees)
  }
}

/// The size of a file; 0 where there is none.
func bytes(of path: String) -> Int {
  ((try? FileManager.default.attributesOfItem(atPath: path))?[.size] as? NSNumber)?.intValue ?? 0
}

/// What a file of the index has where: a copy, a smaller one; and filters that are none.
func checkFile(_ index: SearchIndex, _ encoder: SentenceEncoder, _ files: URL) async throws {
  let file = files.appendingPathComponent("desktop.sqlite")
  passed("nothing in the log", bytes(of: file.path + "-wal") == 0)
  let copy = files.appendingPathComponent("copy.sqlite")
  try await index.backup(to: copy)
  await fails("a file that exists", "exists already") { try await index.backup(to: copy) }
  let (copied, count) = (try await SearchIndex(file: copy, encoder: encoder).count(), try await index.count())
  passed("copy", copied == count)
  let long = String(repeating: "a text that is removed again ", count: 50)
  let rows = (0..<300).map { Document(id: "x\($0)", text: "\($0) \(long)") }
  try await index.add(rows)
  try await index.remove(rows.map(\.id))
  let before = bytes(of: file.path)
  try await index.compact()
  let hits = try await index.search("Verspätung", mode: .words)
  passed("smaller", bytes(of: file.path) < before / 2 && hits.count == 1)
  for (words, filter) in [
    ("double quote", ["a\"b": .present]), ("empty list", ["year": .noneOf([])]), ("expected a text", ["year": .between(nil, nil)]),
    ("JSON cannot hold", ["year": .between(.nan, nil)]),
  ] as [(String, [String: Filter])] {
    await fails("filter, \(words)", words) { _ = try await index.search("x", where: filter) }
  }
  await fails("offset", "at least 0") { _ = try await index.search("x", offset: -1) }
  try Data("log".utf8).write(to: files.appendingPathComponent("gone.sqlite-wal"))
  await fails("log without a file", "empty next to its write-ahead log gone.sqlite-wal") {
    _ = try SearchIndex(file: files.appendingPathComponent("gone.sqlite"), encoder: encoder)
  }
}

func checkEncoding(_ encoder: SentenceEncoder, _ program: Borrowed) async throws {
  let found = try encoder.selfTest()
  passed("self-test", found.texts >= 60 && found.idsDiffer == 0 && found.minCosine > 0.999)
  let notes = ["Buy milk", "", "Der Zug fährt um acht"]
  var vectors = try await encoder.encode(notes)
  passed("rows", vectors.count == 3 && vectors.width == encoder.width)
  passed("blocking", try vectors[2] == encoder.encodeBlocking(notes[2]) && encoder.encodeBlocking(notes)[0] == vectors[0])
  passed("one text", try await encoder.encode(notes[0]) == vectors[0])
  passed("prompt", try await encoder.encode("b", prompt: "a ") == encoder.encode("a b", prompt: ""))
  passed("nearest", try vectors.nearest(to: vectors[2], k: 1).first?.row == 2)
  vectors.append(vectors[0])
  vectors.append(contentsOf: vectors)
  vectors.remove(at: 1)
  passed("rows added and removed", vectors.count == 7 && vectors[1] == vectors[4 + 1])
  let long = Array(repeating: "a", count: encoder.maxLength - 2).joined(separator: " ")
  let counts = [try encoder.countTruncated(["b", long, long + " a"], prompt: ""), try encoder.countTruncated(["b", long], prompt: "a ")]
  passed("truncated", try counts == [1, 1] && encoder.countTruncated([]) == 0)
  passed("no texts", try await encoder.encode([String]()).count == 0)
  await fails("unknown prompt", "is unknown; known: none") { _ = try encoder.prompt(named: "no such prompt") }

  program.pause = 0.005
  let before = program.calls
  let list = Task { try await encoder.encode((0..<400).map { "text \($0)" }) }
  while program.calls < before + 3 { try await Task.sleep(nanoseconds: 1_000_000) }
  _ = try await encoder.encode("a query while a list is being encoded")
  passed("query before the rest of a list", program.calls - before < 100)
  list.cancel()
  await fails("cancelled", "CancellationError") { _ = try await list.value }
  program.pause = 0
}

func checkDownload(_ base: String, _ digits: String, _ program: Borrowed) async throws {
  final class Told: @unchecked Sendable { var all: [(Int64, Int64)] = [] }
  let told = Told()
  let address = URL(string: base)!
  await fails("another manifest", "has the sha256 \(digits), not ") {
    _ = try await SentenceEncoder.download(from: address, sha256: String(repeating: "0", count: 64))
  }
  await fails("not found", "HTTP 404") {
    _ = try await SentenceEncoder.download(from: address.appendingPathComponent("no"), sha256: String(repeating: "1", count: 64))
  }
  let folder = try await SentenceEncoder.download(from: address, sha256: digits) { told.all.append(($0, $1)) }
  passed("progress", told.all.last.map { $0.0 == $0.1 } ?? false && told.all.map(\.0) == told.all.map(\.0).sorted())
  let before = program.calls
  _ = try await SentenceEncoder.open(bundle: folder, program: program)
  let tested = program.calls - before
  _ = try await SentenceEncoder.open(bundle: folder, program: program)
  passed("self-test at the first start alone", tested >= 60 && program.calls - before == tested)
  let again = try await SentenceEncoder.download(from: URL(string: "http://127.0.0.1:9/none")!, sha256: digits)
  passed("no network", again.path == folder.path)
  let names = try FileManager.default.contentsOfDirectory(atPath: folder.path).filter { $0 != "bundle.json" }
  let changes: [(String, (URL) throws -> Void)] = [
    ("gone", { try FileManager.default.removeItem(at: $0) }),
    ("cut", { try Data(contentsOf: $0).dropLast().write(to: $0) }),
    ("zeros", { try Data(count: Data(contentsOf: $0).count).write(to: $0) }),
  ]
  for (name, change) in changes {
    for file in [names[0], names[names.count - 1], "bundle.json"] { try change(folder.appendingPathComponent(file)) }
    await fails("\(name), no network", "io(") {
      _ = try await SentenceEncoder.download(from: URL(string: "http://127.0.0.1:9/none")!, sha256: digits)
    }
    let healed = try await SentenceEncoder.download(from: address, sha256: digits)
    let encoder = try SentenceEncoder(bundle: healed, checkFiles: true, program: program)
    passed("\(name), downloaded again", try encoder.selfTest().idsDiffer == 0)
  }
  let anew = try await SentenceEncoder.download(from: address, sha256: digits, anew: true)
  passed("all of it again", try SentenceEncoder(bundle: anew, checkFiles: true, program: program).width > 0)
  try FileManager.default.removeItem(at: folder)
  let all = try await withThrowingTaskGroup(of: URL.self) { group in
    for _ in 0..<4 { group.addTask { try await SentenceEncoder.download(from: address, sha256: digits) } }
    return try await group.reduce(into: []) { $0.append($1) }
  }
  passed("four at once", all.count == 4 && Set(all).count == 1)
}

/// A cancelled task ends the statement that it runs: a copy that has begun is not there.
func checkCancellation(_ file: URL, _ encoder: SentenceEncoder) async throws {
  let index = try SearchIndex(file: file, encoder: encoder)
  let note = String(repeating: "0123456789 ", count: 20_000)
  try await index.add((0..<300).map { Document(id: "x\($0)", text: "a short text", metadata: #"{"note": "\#($0) \#(note)"}"#) })
  let asked = Task {
    withUnsafeCurrentTask { $0?.cancel() }
    return try await index.search("short")
  }
  await fails("a cancelled search", "CancellationError") { _ = try await asked.value }
  // The copy may be faster than its end is asked for.
  var isCancelled = false
  for attempt in 0..<30 where !isCancelled {
    let copy = file.deletingLastPathComponent().appendingPathComponent("cancelled-\(attempt).sqlite")
    let partial = copy.path + ".partial"
    let backup = Task { try await index.backup(to: copy) }
    while !FileManager.default.fileExists(atPath: partial), !FileManager.default.fileExists(atPath: copy.path) { await Task.yield() }
    backup.cancel()
    do { try await backup.value } catch is CancellationError { isCancelled = true }
    let remains = [copy.path, partial].filter(FileManager.default.fileExists(atPath:))
    if isCancelled != remains.isEmpty { break }
  }
  let count = try await index.count()
  passed("a cancelled copy", isCancelled && count == 300)
}

/// An index after an update of the app's model: its words at once, its vectors after `rebuild`.
func checkRebuild(_ file: URL, _ encoder: SentenceEncoder, _ next: SentenceEncoder, _ answers: [[String]]) async throws {
  await fails("a kind of its own", "otherModel") { _ = try SearchIndex(file: file, encoder: next) }
  let former = try SearchIndex(file: file, encoder: encoder)
  let index = try SearchIndex(file: file, encoder: nil)
  let (ids, number) = (try await index.ids(), try await index.count())
  passed("ids", ids.count == number && ids[0] == "d1")
  let (first, none) = (try await index.get("d1"), try await index.get("none"))
  passed("document", first?.title == "Parking" && none == nil)
  let (words, both) = (try await index.search("level", mode: .words), try await index.search("level"))
  passed("words meanwhile", words == both && !words.isEmpty)
  await fails("no vectors", "opened without a model") { _ = try await index.search("level", mode: .vectors) }
  await fails("no new text", "opened without an encoder") { try await index.add([Document(id: "new", text: "text")]) }
  try await former.add((0..<300).map { Document(id: "x\($0)", text: "another text: \($0)") })
  let task = Task { try await index.rebuild(next) { _, _ in withUnsafeCurrentTask { $0?.cancel() } } }
  task.cancel()
  await fails("cancelled", "CancellationError") { _ = try await task.value }
  passed("the former model's vectors", try await !former.search("level", mode: .vectors).isEmpty)
  final class Told: @unchecked Sendable { var last = (0, 0) }
  let told = Told()
  let count = try await index.rebuild(next) { told.last = ($0, $1) }
  let total = try await index.count()
  passed("continued", count > 0 && count <= total && told.last == (total, total))
  passed("rebuilt once", try await index.rebuild(next) == 0)
  try await index.remove((0..<300).map { "x\($0)" })
  try await checkAnswers(index, answers)
  await fails("the former model", "made with another tiny") { _ = try await former.search("level", mode: .vectors) }
  passed("the former model's words", try await !former.search("level", mode: .words).isEmpty)
  passed("of the next model", try await !SearchIndex(file: file, encoder: next).search("level").isEmpty)
}

func checkSearch(_ encoder: SentenceEncoder, _ data: URL, _ files: URL) async throws {
  let answers = try lines(data.appendingPathComponent("answers.tsv"))
  func documents(_ name: String) throws -> [Document] {
    try lines(data.appendingPathComponent(name)).map {
      Document(id: $0[0], text: $0[2].replacingOccurrences(of: "\\n", with: "\n"), title: $0[1], metadata: $0[3])
    }
  }
  let index = try SearchIndex(file: files.appendingPathComponent("desktop.sqlite"), encoder: encoder)
  try await checkAnswers(index, answers)
  let before = try await index.count()
  await fails("id that is there", "use update") { try await index.add([Document(id: "d1", text: "again")]) }
  let more = try documents("more.tsv")
  let added = try await index.add(more)
  let after = try await index.count()
  passed("added", added == more.count && after == before + more.count)
  passed("removed", try await index.remove(["d2", "d3", "not there"]) == 2)
  try await index.update([Document(id: "d1", text: "Der Zug nach Bonn hat Verspätung.", metadata: #"{"year": 2030}"#)])
  passed("updated", try await index.search("Verspätung", mode: .words).map(\.document.id) == ["d1"])
  passed("filter after update", try await index.search("train", where: ["year": 2030]).map(\.document.id) == ["d1"])
  await fails("no text", "has no text") { try await index.add([Document(id: "e", text: " ")]) }
  let own = try SearchIndex(file: files.appendingPathComponent("phone.sqlite"), encoder: encoder)
  let nothing = try await own.search("anything")
  let none = try await own.count()
  passed("empty", nothing.isEmpty && none == 0)
  try await own.add(try documents("documents.tsv"))
  try await checkAnswers(own, answers)
  await fails("no column", "(columns: author, day, done, lang,") { _ = try await index.search("x", where: ["lnag": "de"]) }
  await fails("no JSON", "not a JSON object") { try await index.add([Document(id: "e", text: "x", metadata: #"{"x": NaN}"#)]) }
  try await index.update([Document(id: "twice", text: "first"), Document(id: "twice", text: "second")])
  passed("the last stays", try await index.search("first second", mode: .words).map(\.document.text) == ["second"])
  try await checkFile(index, encoder, files)
  let copy = data.appendingPathComponent("rebuilt.sqlite")
  try await own.backup(to: copy)
  let next = try SentenceEncoder(bundle: data.appendingPathComponent("other"), program: program)
  try await checkRebuild(copy, encoder, next, answers)
  for name in ["broken", "scaled"] {
    let words = try String(contentsOf: data.appendingPathComponent("\(name).txt"), encoding: .utf8)
    let index = try SearchIndex(file: data.appendingPathComponent("\(name).sqlite"), encoder: encoder, check: false)
    passed("\(name), unchecked words", try await !index.search("level", mode: .words).isEmpty)
    await fails("\(name), a search", words) { _ = try await index.search("level") }
    await fails("\(name), checked later", words) { try await index.check() }
  }
  for name in ["other-model", "broken", "scaled", "lost", "changed", "no-words", "words-gone"] {
    let words = try String(contentsOf: data.appendingPathComponent("\(name).txt"), encoding: .utf8)
    await fails(name, words) {
      let index = try SearchIndex(file: data.appendingPathComponent("\(name).sqlite"), encoder: encoder)
      _ = try await index.search("level")
    }
  }
}

let arguments = CommandLine.arguments
let bundle = URL(fileURLWithPath: arguments[1])
let (data, files) = (URL(fileURLWithPath: arguments[3]), URL(fileURLWithPath: arguments[4]))
let program = try Borrowed(library: arguments[2], bundle: bundle.path, width: Int(arguments[7])!)
await fails("no ExecuTorch here", "cannot load method") { _ = try SentenceEncoder(bundle: bundle) }
let encoder = try SentenceEncoder(bundle: bundle, checkFiles: true, program: program)
try await checkEncoding(encoder, program)
try await checkSearch(encoder, data, files)
try await checkCancellation(files.appendingPathComponent("cancelled.sqlite"), encoder)
try await checkNotes(encoder, files, bundle: data.appendingPathComponent("other"), program)
try await checkDownload(arguments[5], arguments[6], program)
try await checkHostile(encoder, URL(fileURLWithPath: arguments[8]), program)
print("done")
