import CMLXB
import Foundation
import Testing

@testable import MLXB

@Suite(.timeLimit(.minutes(5)))
struct PromptCacheTests {
    static let prompt = "Once upon a time there was a library that remembered what it had read."

    private func folder() -> URL {
        FileManager.default.temporaryDirectory.appending(path: "mlxb-\(UUID().uuidString)")
    }

    @Test func aStateIsFoundAgainInMemoryAndAfterClosing() async throws {
        let model = try await TestModels.tiny.value
        let folder = folder()
        defer { try? FileManager.default.removeItem(at: folder) }
        let tokens = try model.tokenize(Self.prompt)
        var options = GenerateOptions(maxTokens: 5, temperature: 0)
        let cold = try await Answer(model.generate(.tokens(tokens), options: options))

        var cache: PromptCache? = try PromptCache(.init(folder: folder))
        for reused in [0, tokens.count - 1] {
            options.cache = cache
            options.cacheNamespace = "story"
            let answer = try await Answer(model.generate(.tokens(tokens), options: options))
            #expect(answer.tokens == cold.tokens)
            let result = try #require(answer.result)
            #expect(result.reusedTokenCount == reused)
            #expect(result.restoredTokenCount == 0)
        }
        try await cache?.flush()
        let statistics = try #require(try cache?.statistics())
        #expect(statistics.entryCount == 1)
        #expect(statistics.hitCount == 1)
        #expect(statistics.missCount == 1)
        #expect(statistics.writtenBytes > 0)
        #expect(statistics.lostWriteCount == 0)
        options.cache = nil
        cache = nil

        let reopened = try PromptCache(.init(folder: folder))
        options.cache = reopened
        let restored = try await Answer(model.generate(.tokens(tokens), options: options))
        #expect(restored.tokens == cold.tokens)
        #expect(restored.result?.restoredTokenCount == tokens.count - 1)
        #expect(try await reopened.trim(toMemoryBytes: 0) > 0)
        #expect(try await reopened.clearDisk() > 0)
        try reopened.clear()
        let empty = try reopened.statistics()
        #expect(empty.entryCount == 0)
        #expect(empty.diskBytes == 0)
    }

    @Test func whatMakesNoSenseIsRefused() throws {
        for options in [
            PromptCache.Options(memoryBytes: -1),
            PromptCache.Options(folder: URL(string: "https://example.org/")),
            PromptCache.Options(folder: URL(filePath: "/dev/null/nowhere")),
        ] {
            #expect(throws: MLXBError.self) { try PromptCache(options) }
        }
    }
}
