// swift-tools-version: 6.0

import PackageDescription

let package = Package(
    name: "MLXB",
    platforms: [.macOS(.v14), .iOS(.v17)],
    products: [
        .library(name: "MLXB", targets: ["MLXB"])
    ],
    targets: [
        // A link to the folder of mlxb.h, where the module map and the API notes are.
        .systemLibrary(name: "CMLXB", pkgConfig: "mlxb"),
        .target(name: "MLXB", dependencies: ["CMLXB"]),
        .testTarget(name: "MLXBTests", dependencies: ["MLXB", "CMLXB"]),
    ],
    swiftLanguageModes: [.v6]
)
