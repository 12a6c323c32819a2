import Foundation
import MLXB
import Testing

/// What `tools/test-swift` tells the tests.
enum Environment {
    static func value(_ name: String) throws -> String {
        guard let value = ProcessInfo.processInfo.environment[name] else {
            throw Missing(name: name)
        }
        return value
    }

    struct Missing: Error, CustomStringConvertible {
        let name: String
        var description: String { "run the tests with tools/test-swift, which sets \(name)" }
    }
}

/// The test models, each loaded once.
enum TestModels {
    /// SmolLM2-135M-Instruct in float32.
    static let real = Task { try await Model.load(from: folder("MLXB_TEST_MODEL")) }
    /// Random weights and a vocabulary of bytes: quick, says nothing.
    static let tiny = Task { try await Model.load(from: folder("MLXB_TEST_TINY_MODEL")) }

    static func folder(_ name: String) throws -> URL {
        URL(filePath: try Environment.value(name))
    }
}

/// A generation that was consumed to its end.
struct Answer: Equatable {
    var text = ""
    var tokens: [UInt32] = []
    var events: [GenerationEvent] = []
    var result: GenerationResult?
}

extension Answer {
    init(_ stream: AsyncThrowingStream<GenerationEvent, any Error>) async throws {
        for try await event in stream {
            events.append(event)
            switch event {
            case .token(let token): tokens.append(token.id)
            case .text(let more): text += more
            case .finished(let result): self.result = result
            default: break
            }
        }
    }
}

/// Waits until `condition` holds, at most so long.
func eventually(
    within limit: Duration = .seconds(5), _ condition: () throws -> Bool
) async throws -> Bool {
    let end = ContinuousClock.now + limit
    while try !condition() {
        if ContinuousClock.now > end {
            return false
        }
        try await Task.sleep(for: .milliseconds(2))
    }
    return true
}

/// The library's error that `body` fails with.
func failure(_ body: () async throws -> Void) async throws -> MLXBError {
    do {
        try await body()
    } catch {
        return try #require(error as? MLXBError)
    }
    Issue.record("no error")
    throw CancellationError()
}
