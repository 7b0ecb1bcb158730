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
    // The release that wrote the program. ExecuTorch publishes its Swift package on one branch per release and under no
    // version tag; Package.resolved of the app holds the commit, so that every machine builds with the same one.
    .package(url: "https://github.com/pytorch/executorch.git", branch: "swiftpm-{{executorch}}")
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
