// swift-tools-version:5.9
// The encoder as a Swift package: the C++ core behind its C interface, and a Swift class over it. The bundle's own
// files are not in it: add the bundle folder to the app as a folder reference and open it with SentenceEncoder.open(bundle:).
// The app sets -all_load in "Other Linker Flags": ExecuTorch's backends and kernels register themselves, and the linker
// drops what nothing names. A package cannot set it: packages with unsafe flags are refused as dependencies.
import PackageDescription

let package = Package(
  name: "MSDC",
  platforms: [.iOS(.v17), .macOS(.v14)],
  products: [.library(name: "MSDC", targets: ["MSDC"])],
  dependencies: [
    // ExecuTorch publishes its Swift package on branches, which can move, and under no version tag: this is the head of
    // swiftpm-1.5.0 of November 2026, for programs of ExecuTorch {{executorch}}. Not built by us: it needs a Mac.
    .package(url: "https://github.com/pytorch/executorch.git", revision: "56cc93a96d5fb8d21554ec5f00fbad5a5b228bc4")
  ],
  targets: [
    // Sources of the core, copied here by `msdc export`, without a runtime of its own.
    .target(
      name: "MSDCCore",
      exclude: [
        "CMakeLists.txt", "src/engine_executorch.cpp", "src/engine_onnx.cpp", "src/index/search.sql",
        "src/index/sqlite_flags.txt",
      ],
      sources: ["src"],
      publicHeadersPath: "include",
      cxxSettings: [.headerSearchPath("src")],
      linkerSettings: [.linkedLibrary("sqlite3")]  // the system's, which has FTS5
    ),
    .target(
      name: "MSDC",
      dependencies: [
        "MSDCCore",
        .product(name: "executorch", package: "executorch"),
        .product(name: "backend_xnnpack", package: "executorch"),
        .product(name: "kernels_optimized", package: "executorch"),
        .product(name: "kernels_quantized", package: "executorch"),
      ]
    ),
    .testTarget(name: "MSDCTests", dependencies: ["MSDC"], resources: [.process("search.tsv")]),
  ],
  cxxLanguageStandard: .cxx17
)
