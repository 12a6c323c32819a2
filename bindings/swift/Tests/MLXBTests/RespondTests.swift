import Foundation
import Testing

@testable import MLXB

@Suite(.timeLimit(.minutes(5)))
struct RespondTests {
    @Test func eventsAndTheAnswerAreThoseOfTheProtocol() async throws {
        let model = try await TestModels.real.value
        let request = try Self.body([
            "input": "What is the capital of Japan?", "max_output_tokens": 12, "temperature": 0,
        ])
        var names: [String] = []
        var text = ""
        var finished: Data?
        for try await event in model.respond(to: request, as: .responses) {
            switch event {
            case .event(let name, let json):
                #expect(finished == nil)
                names.append(name)
                let object = try Self.object(json)
                #expect(object["type"] as? String == name)
                if name == "response.output_text.delta" {
                    text += try #require(object["delta"] as? String)
                }
            case .finished(let json):
                finished = json
            }
        }
        #expect(names.first == "response.created")
        #expect(names.last == "response.completed")
        #expect(text.contains("Tokyo"))
        let answer = try Self.object(#require(finished))
        #expect(answer["status"] as? String == "completed")
        // The same at once, in another protocol.
        let question: [String: any Sendable] = [
            "messages": [["role": "user", "content": "What is the capital of Japan?"]],
            "max_tokens": 12, "temperature": 0, "model": "mine",
        ]
        let message = try await Self.object(
            model.response(to: Self.body(question), as: .messages))
        #expect(message["model"] as? String == "mine")
        let content = try #require(message["content"] as? [[String: Any]])
        #expect(content.first?["text"] as? String == text)
    }

    @Test func conversationGoesOnByItsId() async throws {
        let model = try await TestModels.tiny.value
        let cache = try PromptCache()
        let first = try await Self.object(
            model.response(
                to: Self.body(["input": "One", "max_output_tokens": 4]), as: .responses,
                cache: cache, cacheNamespace: "a"))
        let id = try #require(first["id"] as? String)
        let next = try Self.body([
            "input": "Two", "max_output_tokens": 4, "previous_response_id": id,
        ])
        let second = try await Self.object(
            model.response(to: next, as: .responses, cache: cache, cacheNamespace: "a"))
        #expect(second["previous_response_id"] as? String == id)
        #expect(try cache.statistics().reusedTokenCount > 0)
        await #expect(throws: MLXBError.self) {
            try await model.response(to: next, as: .responses, cache: cache, cacheNamespace: "b")
        }
    }

    @Test func whatIsNotSupportedIsNamed() async throws {
        let model = try await TestModels.tiny.value
        for (request, status) in [
            (#"{"messages": [], "n": 2}"#, MLXBError.Status.protocol), ("{", .protocol),
            ("", .protocol),
        ] {
            do {
                for try await event in model.respond(to: Data(request.utf8), as: .chatCompletions) {
                    Issue.record("\(event)")
                }
                Issue.record("no error")
            } catch let error as MLXBError {
                #expect(error.status == status)
                let detail = try Self.object(Data(try #require(error.detail).utf8))
                #expect(detail["error"] != nil)
            }
        }
        let error = try await failure {
            _ = try await model.response(to: Data("{}".utf8), as: WireProtocol(rawValue: 99))
        }
        #expect(error.status == .invalidArgument)
    }

    @Test func cancellingEndsIt() async throws {
        let model = try await TestModels.real.value
        let request = try Self.body(["input": "Tell me a very long story.", "temperature": 0])
        let taken = Counter()
        let streamed = Task {
            var sawTheEnd = false
            for try await event in model.respond(to: request, as: .responses) {
                if case .finished = event {
                    sawTheEnd = true
                }
                await taken.add(1)
            }
            return sawTheEnd
        }
        await taken.wait(for: 3)
        streamed.cancel()
        #expect(try await streamed.value == false)

        let whole = Task { try await model.response(to: request, as: .responses) }
        try await Task.sleep(for: .milliseconds(50))
        whole.cancel()
        await #expect(throws: CancellationError.self) { try await whole.value }
    }

    static func body(_ fields: [String: any Sendable]) throws -> Data {
        try JSONSerialization.data(withJSONObject: fields)
    }

    static func object(_ json: Data) throws -> [String: Any] {
        try #require(try JSONSerialization.jsonObject(with: json) as? [String: Any])
    }
}
