import Foundation
import MLXB

/// Another program, run to its end.
struct Program {
    let path: String
    let arguments: [String]

    init(_ path: String, _ arguments: String...) {
        self.path = path
        self.arguments = arguments
    }

    struct Outcome {
        var output: String
        var status: Int32
    }

    /// Runs it with `input`; `interruptAfter` bytes of output it gets what Ctrl-C sends.
    func run(input: String = "", interruptAfter byteCount: Int = .max) async throws -> Outcome {
        try await withCheckedThrowingContinuation { continuation in
            Thread.detachNewThread {
                continuation.resume(
                    with: Result { try wait(input: input, interruptAfter: byteCount) })
            }
        }
    }

    private func wait(input: String, interruptAfter byteCount: Int) throws -> Outcome {
        let process = Process()
        process.executableURL = URL(filePath: path)
        process.arguments = arguments
        let stdin = Pipe()
        let stdout = Pipe()
        process.standardInput = stdin
        process.standardOutput = stdout
        try process.run()
        try stdin.fileHandleForWriting.write(contentsOf: Data(input.utf8))
        try stdin.fileHandleForWriting.close()
        var output = Data()
        var wasInterrupted = false
        while let more = try stdout.fileHandleForReading.read(upToCount: 1), !more.isEmpty {
            output += more
            if output.count >= byteCount, !wasInterrupted {
                wasInterrupted = true
                process.interrupt()
            }
        }
        process.waitUntilExit()
        return Outcome(
            output: String(decoding: output, as: UTF8.self), status: process.terminationStatus)
    }
}
