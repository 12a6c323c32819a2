// A chat with a model on this machine.
//
//   mlxb-chat MODEL_FOLDER
//
// Every line is a message. Ctrl-C stops the answer, Ctrl-D ends the chat.

import Foundation
import MLXB

@main
struct Chat {
    static func main() async {
        guard CommandLine.arguments.count == 2 else {
            report("usage: mlxb-chat MODEL_FOLDER\n")
            exit(2)
        }
        signal(SIGINT, SIG_IGN)  // Only an answer can be interrupted.
        do {
            try await chat(withModelIn: URL(filePath: CommandLine.arguments[1]))
        } catch {
            report("mlxb-chat: \(error.localizedDescription)\n")
            exit(1)
        }
    }

    static func chat(withModelIn folder: URL) async throws {
        let isInteractive = isatty(STDIN_FILENO) != 0
        let model = try await Model.load(from: folder) { progress in
            if isInteractive {
                report("loading: \(progress.bytesRead >> 20) of \(progress.byteCount >> 20) MB\r")
            }
        }
        var messages: [ChatMessage] = []
        while let line = nextLine(promptedBy: isInteractive ? "\n> " : "") {
            messages.append(.user(line))
            let answer = Task { [messages] in try await printAnswer(of: model, to: messages) }
            messages.append(.assistant(try await stoppedByInterrupt(answer)))
        }
    }

    static func nextLine(promptedBy prompt: String) -> String? {
        write(prompt)
        return readLine()
    }

    /// Prints the answer as it comes. When its task is cancelled, the stream just ends: what has
    /// come by then is the answer.
    static func printAnswer(of model: Model, to messages: [ChatMessage]) async throws -> String {
        var answer = ""
        for try await event in model.generate(.chat(messages)) {
            if case .text(let text) = event {
                write(text)
                answer += text
            }
        }
        write("\n")
        return answer
    }

    /// What the task returns; Ctrl-C cancels it.
    static func stoppedByInterrupt(_ task: Task<String, any Error>) async throws -> String {
        let interrupt = DispatchSource.makeSignalSource(signal: SIGINT, queue: .global())
        interrupt.setEventHandler { task.cancel() }
        interrupt.resume()
        defer { interrupt.cancel() }
        return try await task.value
    }

    static func write(_ text: String) {
        FileHandle.standardOutput.write(Data(text.utf8))
    }

    static func report(_ text: String) {
        FileHandle.standardError.write(Data(text.utf8))
    }
}
