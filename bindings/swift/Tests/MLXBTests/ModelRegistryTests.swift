import Foundation
import Testing

@testable import MLXB

@Suite(.timeLimit(.minutes(5)))
struct ModelRegistryTests {
    static let commit = String(repeating: "0123456789", count: 4)

    /// A hub with the tiny model under these names.
    private func hub(_ repositories: [String]) throws -> URL {
        let files = FileManager.default
        let hub = files.temporaryDirectory.appending(path: "mlxb-hub-\(UUID().uuidString)")
        for name in repositories {
            let folder = hub.appending(
                path: "models--" + name.replacingOccurrences(of: "/", with: "--"))
            let snapshots = folder.appending(path: "snapshots")
            let refs = folder.appending(path: "refs")
            for folder in [snapshots, refs] {
                try files.createDirectory(at: folder, withIntermediateDirectories: true)
            }
            try files.copyItem(
                at: TestModels.folder("MLXB_TEST_TINY_MODEL"),
                to: snapshots.appending(path: Self.commit))
            try Data(Self.commit.utf8).write(to: refs.appending(path: "main"))
        }
        return hub
    }

    @Test func modelsAreFoundAndLoad() async throws {
        let hub = try hub(["org/Small-4bit", "org/Small-8bit", "other/Large"])
        defer { try? FileManager.default.removeItem(at: hub) }
        let registry = try await ModelRegistry.open(hub.appending(path: "registry.sqlite"))
        #expect(try await registry.models() == [])
        #expect(try await registry.scan(hub) == 3)

        let names = Set(try await registry.models(canonicalOnly: true).map(\.repoID))
        #expect(names == ["org/Small-4bit", "org/Small-8bit", "other/Large"])
        #expect(try await registry.models(matching: "small").count == 2)
        #expect(try await registry.models(maxBytes: 1).isEmpty)
        #expect(try await registry.models(takesPictures: true).isEmpty)
        #expect(try await registry.models(takesPictures: false).count == 3)

        let large = try await registry.resolve("large")
        #expect(large.repoID == "other/Large")
        #expect(large.modelType == "llama")
        #expect(large.isCanonical && large.isComplete && large.isSupported)
        #expect(large.quantization == nil)
        #expect(large.scannedAt.timeIntervalSinceNow > -600)
        let model = try await Model.load(from: large.folder)
        // The headers of the files count too.
        #expect(UInt64(large.sizeBytes) > model.info.weightBytes)
        #expect(UInt64(large.sizeBytes) < model.info.weightBytes + 10_000)
        #expect(large.layerCount == model.info.layerCount)
        #expect(large.vocabularySize == model.info.vocabularySize)

        let alone = try await ModelRegistry.inspect(large.folder, repoID: "some/name")
        #expect(alone.repoID == "some/name")
        #expect(alone.sizeBytes == large.sizeBytes)
    }

    @Test func whatFitsIsEstimated() async throws {
        let model = try await TestModels.tiny.value
        let folder = try TestModels.folder("MLXB_TEST_TINY_MODEL")
        let fit = try await ModelRegistry.fit(of: folder, contextLength: 100)
        #expect(fit.fits)
        #expect(fit.weightBytes > 0)
        #expect(fit.kvBytes >= 100 * Int(model.info.kvBytesPerToken))
        #expect(fit.totalBytes == fit.weightBytes + fit.kvBytes + fit.transientBytes)
        #expect(fit.modelContextLength == model.info.contextLength)
        let tight = try await ModelRegistry.fit(
            of: folder, contextLength: 100, budgetBytes: fit.totalBytes - 1)
        #expect(!tight.fits)
        #expect(tight.maxContextLength < 100)
        let nowhere = try await failure {
            _ = try await ModelRegistry.fit(of: URL(filePath: "/no/such/folder"))
        }
        #expect(nowhere.status == .notFound)
    }

    @Test func aQueryThatMeansSeveralOrNoneSaysSo() async throws {
        let hub = try hub(["org/Small-4bit", "org/Small-8bit"])
        defer { try? FileManager.default.removeItem(at: hub) }
        let registry = try await ModelRegistry.open(hub.appending(path: "registry.sqlite"))
        try await registry.scan(hub)
        let several = try await failure { _ = try await registry.resolve("small") }
        #expect(several.status == .ambiguous)
        #expect(several.detail == "org/Small-4bit\norg/Small-8bit")
        let none = try await failure { _ = try await registry.resolve("medium") }
        #expect(none.status == .notFound)
        let nowhere = try await failure {
            _ = try await registry.scan(URL(filePath: "/no/such/hub"))
        }
        #expect(nowhere.status == .notFound)
        let negative = try await failure {
            _ = try await registry.models(maxBytes: -1)
        }
        #expect(negative.status == .invalidArgument)
    }
}
