// The signatures that the package calls.
public protocol ValueConvertible {}

public enum ModuleLoadMode { case mmap }

public struct NotHere: Error {}

public struct Tensor<T>: ValueConvertible {
  public let shape: [Int]
  public init(_ numbers: [T], shape: [Int]) { self.shape = shape }
  public func scalars() -> [T] { [] }
}

public final class Module {
  public init(filePath: String, loadMode: ModuleLoadMode) {}
  public func load(_ method: String) throws { throw NotHere() }
  public func execute<T>(_ method: String, _ inputs: [ValueConvertible]) throws -> Tensor<T> { throw NotHere() }
  public func execute<T>(_ method: String, _ input: ValueConvertible) throws -> Tensor<T> { throw NotHere() }
}
