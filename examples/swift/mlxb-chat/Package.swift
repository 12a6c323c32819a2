// swift-tools-version: 6.0

import PackageDescription

let package = Package(
    name: "mlxb-chat",
    platforms: [.macOS(.v14)],
    dependencies: [.package(name: "MLXB", path: "../../../bindings/swift")],
    targets: [
        .executableTarget(name: "mlxb-chat", dependencies: ["MLXB"])
    ],
    swiftLanguageModes: [.v6]
)
