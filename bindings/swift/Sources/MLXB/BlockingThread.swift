import Foundation

/// Runs `work`, which blocks, on a thread of its own: the few threads of Swift's cooperative pool
/// must always make progress.
///
/// The stack is as large as a main thread's: templates nest as deep as their authors like, and
/// the default of 512 KiB on Apple's systems is little.
func startThread(named name: String, _ work: @escaping @Sendable () -> Void) {
    let thread = Thread(block: work)
    thread.name = name
    thread.stackSize = 8 << 20
    thread.qualityOfService = .userInitiated
    thread.start()
}

/// What `work` returns, which waits for the engine or the disk on a thread of its own.
func onThread<Value: Sendable>(
    named name: String, _ work: @escaping @Sendable () throws -> Value
) async throws -> Value {
    try await withCheckedThrowingContinuation { continuation in
        startThread(named: name) {
            continuation.resume(with: Result { try work() })
        }
    }
}
