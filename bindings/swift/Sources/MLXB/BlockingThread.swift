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
