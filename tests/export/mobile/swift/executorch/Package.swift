// swift-tools-version:5.9
// In place of ExecuTorch's package, which is for Apple's systems.
import PackageDescription

let package = Package(
  name: "executorch",
  products: ["executorch", "backend_xnnpack", "kernels_optimized", "kernels_quantized"].map {
    .library(name: $0, targets: ["ExecuTorch"])
  },
  targets: [.target(name: "ExecuTorch")]
)
