import Foundation
import MLXB
import Testing

/// The programs that a user would copy: what they say is what the library says.
@Suite(.timeLimit(.minutes(5)))
struct ExampleTests {
    @Test func streamedAnswerEqualsTheCExamples() async throws {
        let question = "Say hello."
        let program = Program(
            try Environment.value("MLXB_TEST_C_EXAMPLE"),
            try Environment.value("MLXB_TEST_MODEL"), question)
        let outcome = try await program.run()
        #expect(outcome.status == 0)

        let model = try await TestModels.real.value
        let answer = try await Answer(model.generate(.chat([.user(question)])))
        #expect(answer.text.count > 20)
        #expect(outcome.output.hasPrefix(answer.text + "\nprompt: "))
    }

    @Test func chatAnswersTwoTurns() async throws {
        let questions = ["What is the capital of Japan?", "And of France?"]
        let outcome = try await chat.run(input: questions.joined(separator: "\n") + "\n")
        #expect(outcome.status == 0)

        let model = try await TestModels.real.value
        var messages: [ChatMessage] = []
        var expected = ""
        for question in questions {
            messages.append(.user(question))
            let answer = try await Answer(model.generate(.chat(messages))).text
            messages.append(.assistant(answer))
            expected += answer + "\n"
        }
        #expect(outcome.output == expected)
        // The second answer knows of the first turn.
        let alone = try await Answer(model.generate(.chat([.user(questions[1])])))
        #expect(messages[3].content != alone.text)
    }

    @Test func interruptStopsTheAnswerNotTheChat() async throws {
        let input = "Tell me a very long story about a whale.\nWhat is the capital of Japan?\n"
        let start = ContinuousClock.now
        let outcome = try await chat.run(input: input, interruptAfter: 40)
        #expect(outcome.status == 0)
        #expect(ContinuousClock.now - start < .seconds(45))
        let answers = outcome.output.split(separator: "\n")
        #expect(answers.count >= 2)
        #expect(answers[0].utf8.count >= 40)
        #expect(answers.last?.contains("Tokyo") == true)
    }

    @Test func chatSaysWhatIsWrong() async throws {
        let program = Program(try Environment.value("MLXB_TEST_CHAT"), "/no/such/folder")
        let outcome = try await program.run()
        #expect(outcome.status == 1)
        #expect(outcome.output == "")
    }

    var chat: Program {
        get throws {
            Program(
                try Environment.value("MLXB_TEST_CHAT"), try Environment.value("MLXB_TEST_MODEL"))
        }
    }
}
