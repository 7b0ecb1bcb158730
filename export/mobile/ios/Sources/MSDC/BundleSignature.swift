import Foundation

#if canImport(CryptoKit)
  import CryptoKit
#endif

/// Who made a bundle. The seal in bundle.json shows damage alone: whoever changes a bundle can seal it again. A signature can
/// only be made by the holder of a secret key, whose public key the app carries.
///
/// Signed with `minisign -S -l -m bundle.json`: without `-l` minisign signs a hash that CryptoKit has no function for.
public enum BundleSignature {
  public static let file = "bundle.json.minisig"
  private static let trusted = "trusted comment: "

  /// The trusted comment of the signature in `bundle`, made with the key whose public half is `publicKey` (`RW...`). Open
  /// the bundle with `checkFiles: true` afterwards: the signature covers bundle.json, and its hashes the rest.
  public static func verify(bundle folder: URL, publicKey: String) throws -> String {
    guard let signed = try? Data(contentsOf: folder.appendingPathComponent("bundle.json")),
      let text = try? String(contentsOf: folder.appendingPathComponent(file), encoding: .utf8)
    else { throw EncoderError.damaged("\(file) or bundle.json is missing: the bundle is not signed") }
    return try verify(signed: signed, signature: text, publicKey: publicKey)
  }

  /// As above, of the bytes of a bundle.json and the text of its signature.
  public static func verify(signed: Data, signature: String, publicKey: String) throws -> String {
    let lines = signature.split(separator: "\n", omittingEmptySubsequences: false).map(String.init)
    guard lines.count >= 4, lines[2].hasPrefix(trusted) else {
      throw EncoderError.damaged("\(file): not of minisign's format")
    }
    let key = try decoded(publicKey, 42, "the public key")
    let own = try decoded(lines[1], 74, file)
    let whole = try decoded(lines[3], 64, file)
    guard own[1] != UInt8(ascii: "D") else { throw EncoderError.damaged("\(file): signed without minisign's option -l") }
    guard own.prefix(10) == key.prefix(10) else { throw EncoderError.damaged("\(file): signed with another key") }
    let made = Data(own.suffix(64))
    let comment = String(lines[2].dropFirst(trusted.count))
    guard try holds(key, made, signed) else {
      throw EncoderError.damaged("\(file): the signature is not one of this bundle.json")
    }
    guard try holds(key, whole, made + Data(comment.utf8)) else {
      throw EncoderError.damaged("\(file): its trusted comment was changed")
    }
    return comment
  }

  private static func holds(_ key: Data, _ signature: Data, _ message: Data) throws -> Bool {
    #if canImport(CryptoKit)
      let key = try Curve25519.Signing.PublicKey(rawRepresentation: Data(key.suffix(32)))
      return key.isValidSignature(signature, for: message)
    #else
      throw EncoderError.unsupported("signatures need CryptoKit")
    #endif
  }

  private static func decoded(_ text: String, _ size: Int, _ what: String) throws -> Data {
    let trimmed = text.trimmingCharacters(in: .whitespacesAndNewlines)
    guard let raw = Data(base64Encoded: trimmed), raw.count == size else {
      throw EncoderError.damaged("\(what): not of minisign's format")
    }
    return raw
  }
}
