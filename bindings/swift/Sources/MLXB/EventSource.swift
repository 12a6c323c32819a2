import Foundation

/// The consumer's end of a C call that tells events. The producer's end is a thread of its own,
/// which is in the call.
///
/// The call starts when the first event is asked for, and ends when the task that asks is
/// cancelled or nobody can ask any more.
final class EventSource<Element: Sendable>: Sendable {
    /// The library itself may be some tokens ahead, so a few are enough to keep it going while
    /// the threads switch.
    private static var eventsAhead: Int { 16 }

    private let events: EventBuffer<Element>
    private let cancellation: Cancellation
    private let start: Once

    /// `call` makes the C call with the cancellation, and puts what it is told into the buffer.
    init(
        named name: String,
        _ call: @escaping @Sendable (Cancellation, EventBuffer<Element>) throws -> Void
    ) {
        let events = EventBuffer<Element>(capacity: Self.eventsAhead)
        let cancellation = Cancellation()
        self.events = events
        self.cancellation = cancellation
        start = Once {
            startThread(named: name) {
                do {
                    try call(cancellation, events)
                    events.finish()
                } catch {
                    events.finish(throwing: error)
                }
            }
        }
    }

    deinit {
        stop()
    }

    /// The events, as what a caller is given.
    var stream: AsyncThrowingStream<Element, any Error> {
        AsyncThrowingStream { try await self.next() }
    }

    private func next() async throws -> Element? {
        try await withTaskCancellationHandler {
            start.run()
            return try await events.next()
        } onCancel: {
            stop()
        }
    }

    /// Ends the C call, whether it computes or waits for room in the buffer.
    private func stop() {
        cancellation.request()
        events.close()
    }
}

/// Work that is done by whoever asks first.
private final class Once: @unchecked Sendable {
    private let lock = NSLock()
    private var work: (@Sendable () -> Void)?

    init(_ work: @escaping @Sendable () -> Void) {
        self.work = work
    }

    func run() {
        let work = lock.withLock {
            defer { self.work = nil }
            return self.work
        }
        work?()
    }
}
