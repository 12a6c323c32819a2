import CMLXB
import Foundation
import Testing

@testable import MLXB

@Suite(.timeLimit(.minutes(5)))
struct ErrorTests {
    @Test func badPath() async throws {
        let missing = URL(filePath: "/no/such/folder")
        let error = try await failure { _ = try await Model.load(from: missing) }
        #expect(error.status == .notFound)
        #expect(error.message.contains("/no/such/folder"))
        #expect(error.errorDescription == error.message)
        #expect(String(describing: error) == "MLXB_NOT_FOUND: \(error.message)")

        let web = try #require(URL(string: "https://example.invalid/model"))
        #expect(
            try await failure { _ = try await Model.load(from: web) }.status == .invalidArgument)
        let empty = FileManager.default.temporaryDirectory.appending(path: UUID().uuidString)
        try FileManager.default.createDirectory(at: empty, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: empty) }
        #expect(
            try await failure { _ = try await Model.load(from: empty) }.status == .modelFormat)
    }

    @Test func badLoadOption() async throws {
        let folder = try TestModels.folder("MLXB_TEST_TINY_MODEL")
        for options in [
            LoadOptions(contextLength: 0), LoadOptions(contextLength: -1),
            LoadOptions(device: .init(rawValue: 99)),
        ] {
            let error = try await failure {
                _ = try await Model.load(from: folder, options: options)
            }
            #expect(error.status == .invalidArgument)
        }
    }

    @Test(arguments: [
        ("temperature", GenerateOptions(temperature: -1)),
        ("temperature", GenerateOptions(temperature: .nan)),
        ("top_p", GenerateOptions(topP: 1.5)),
        ("topK", GenerateOptions(topK: -1)),
        ("maxTokens", GenerateOptions(maxTokens: -1)),
        ("stop", GenerateOptions(stop: ["fine", "a\0b"])),
    ])
    func badOption(named name: String, options: GenerateOptions) async throws {
        let model = try await TestModels.tiny.value
        let error = try await failure {
            _ = try await Answer(model.generate(.text("x"), options: options))
        }
        #expect(error.status == .invalidArgument)
        #expect(error.message.contains(name))
    }

    @Test func badPrompt() async throws {
        let model = try await TestModels.tiny.value
        let size = UInt32(model.info.vocabularySize)
        for prompt in [Prompt.tokens([]), .tokens([size])] {
            let error = try await failure { _ = try await Answer(model.generate(prompt)) }
            #expect(error.status == .invalidArgument)
        }
        let long = Prompt.tokens(Array(repeating: 1, count: model.info.contextLength))
        let error = try await failure { _ = try await Answer(model.generate(long)) }
        #expect(error.status == .contextFull)
        #expect(throws: MLXBError.self) { try model.detokenize([size]) }
    }

    @Test func streamThatFailedJustEnds() async throws {
        let model = try await TestModels.tiny.value
        var iterator = model.generate(.tokens([])).makeAsyncIterator()
        await #expect(throws: MLXBError.self) { _ = try await iterator.next() }
        #expect(try await iterator.next() == nil)
    }

    @Test func cancelledLoad() async throws {
        let folder = try TestModels.folder("MLXB_TEST_MODEL")
        let started = Counter()
        let task = Task {
            try await Model.load(from: folder) { _ in
                // Slow enough for the cancellation to come in between.
                Task { await started.add(1) }
                Thread.sleep(forTimeInterval: 0.02)
            }
        }
        await started.wait(for: 1)
        task.cancel()
        #expect(try await failure { _ = try await task.value }.status == .cancelled)
    }

    @Test func everyStatusOfTheLibraryHasAName() {
        let known: [MLXBError.Status: String] = [
            .invalidArgument: "MLXB_INVALID_ARGUMENT", .invalidUTF8: "MLXB_INVALID_UTF8",
            .notFound: "MLXB_NOT_FOUND", .ambiguous: "MLXB_AMBIGUOUS", .busy: "MLXB_BUSY",
            .cancelled: "MLXB_CANCELLED", .bufferTooSmall: "MLXB_BUFFER_TOO_SMALL",
            .unsupported: "MLXB_UNSUPPORTED", .versionMismatch: "MLXB_VERSION_MISMATCH",
            .io: "MLXB_IO", .corrupt: "MLXB_CORRUPT", .noSpace: "MLXB_NO_SPACE",
            .locked: "MLXB_LOCKED", .outOfMemory: "MLXB_OUT_OF_MEMORY",
            .overBudget: "MLXB_OVER_BUDGET", .modelFormat: "MLXB_MODEL_FORMAT",
            .template: "MLXB_TEMPLATE", .grammar: "MLXB_GRAMMAR",
            .contextFull: "MLXB_CONTEXT_FULL", .protocol: "MLXB_PROTOCOL",
            .backend: "MLXB_BACKEND", .panic: "MLXB_PANIC", .poisoned: "MLXB_POISONED",
        ]
        for (status, name) in known {
            #expect(status.description == name)
        }
        for number in Int32(1)..<1_000 {
            let status = MLXBError.Status(rawValue: number)
            #expect((status.description == "MLXB_UNKNOWN") == (known[status] == nil))
        }
    }
}
