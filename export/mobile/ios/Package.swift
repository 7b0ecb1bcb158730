// swift-tools-version:5.9
// The encoder as a Swift package: the C++ core behind its C interface, and a Swift class over it. The bundle's own
// files are not in it: add the bundle folder to the app as a folder reference and open it with SentenceEncoder(bundle:).
import PackageDescription

let package = Package(
  name: "MSDC",
  platforms: [.iOS(.v17), .macOS(.v14)],
  products: [.library(name: "MSDC", targets: ["MSDC"])],
  dependencies: [
    .package(url: "https://github.com/pytorch/executorch.git", branch: "swiftpm-{{executorch}}")
  ],
  targets: [
    // Sources of the core, copied here by `msdc export`, without a runtime of its own.
    .target(
      name: "MSDCCore",
      exclude: ["CMakeLists.txt", "src/engine_executorch.cpp", "src/engine_onnx.cpp"],
      sources: ["src"],
      publicHeadersPath: "include"
    ),
    .target(
      name: "MSDC",
      dependencies: [
        "MSDCCore",
        .product(name: "executorch", package: "executorch"),
        .product(name: "backend_xnnpack", package: "executorch"),
        .product(name: "kernels_optimized", package: "executorch"),
        .product(name: "kernels_quantized", package: "executorch"),
      ],
      // Backends and kernels register themselves; the linker would drop what nothing names.
      linkerSettings: [.unsafeFlags(["-Xlinker", "-all_load"])]
    ),
    .testTarget(name: "MSDCTests", dependencies: ["MSDC"]),
  ],
  cxxLanguageStandard: .cxx17
)
