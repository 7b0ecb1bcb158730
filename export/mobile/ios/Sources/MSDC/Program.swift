import ExecuTorch
import Foundation

/// Runs a bundle's program. The encoder never calls it twice at a time.
public protocol Program: AnyObject {
  /// The vector of token ids that already carry the special ids. The first `promptTokens` are not pooled: the second
  /// input of a program that takes a prompt (`include_prompt: false`), 0 for others.
  func run(_ ids: [Int32], promptTokens: Int) throws -> [Float]
}

/// The program through ExecuTorch's published Swift package. The recurring unit is one method, called `repeats` times,
/// so its weights are packed once.
final class ExecuTorchProgram: Program {
  private let module: Module
  private let multiMethod: Bool
  private let repeats: Int
  private let takesPrompt: Bool

  init(file: URL, multiMethod: Bool, repeats: Int, takesPrompt: Bool) throws {
    // Memory-mapped: pages of the token table are loaded when a token needs them.
    module = Module(filePath: file.path, loadMode: .mmap)
    self.multiMethod = multiMethod
    self.repeats = repeats
    self.takesPrompt = takesPrompt
    for method in multiMethod ? ["embed", "unit", "pool"] : ["forward"] {
      do {
        try module.load(method)
      } catch {
        throw EncoderError.unsupported(
          "ExecuTorch cannot load method \(method) (\(error)); set -all_load in Other Linker Flags of the app's target")
      }
    }
  }

  func run(_ ids: [Int32], promptTokens: Int) throws -> [Float] {
    let input = Tensor<Int64>(ids.map(Int64.init), shape: [1, ids.count])
    guard multiMethod else {
      let inputs: [ValueConvertible] =
        takesPrompt ? [input, Tensor<Int64>([Int64(promptTokens)], shape: [1])] : [input]
      let vector: Tensor<Float> = try module.execute("forward", inputs)
      return vector.scalars()
    }
    var hidden: Tensor<Float> = try module.execute("embed", input)
    for _ in 0..<repeats {
      // A copy: the next call may overwrite this output.
      let copy = Tensor<Float>(hidden.scalars(), shape: hidden.shape)
      hidden = try module.execute("unit", copy)
    }
    let last = Tensor<Float>(hidden.scalars(), shape: hidden.shape)
    let vector: Tensor<Float> = try module.execute("pool", last)
    return vector.scalars()
  }
}
