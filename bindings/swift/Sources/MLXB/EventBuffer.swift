import Foundation

/// Elements on their way from a thread that blocks to tasks that suspend.
///
/// It is bounded: while it is full, ``put(_:)`` waits, and with it whatever makes the elements.
/// Both ends can leave: the producer with ``finish(throwing:)``, the consumer with ``close()``,
/// which wakes a producer that waits.
///
/// `@unchecked`: all its state is read and written under the lock of `condition`.
final class EventBuffer<Element: Sendable>: @unchecked Sendable {
    private let condition = NSCondition()
    private let capacity: Int
    private var elements: [Element] = []
    private var consumers: [CheckedContinuation<Element?, any Error>] = []
    private var isFinished = false
    private var isClosed = false
    private var failure: (any Error)?

    init(capacity: Int) {
        self.capacity = capacity
    }

    /// Appends an element, when there is room for it.
    ///
    /// - Returns: Whether anyone will take it.
    func put(_ element: Element) -> Bool {
        condition.lock()
        while elements.count >= capacity && !isClosed {
            condition.wait()
        }
        guard !isClosed else {
            condition.unlock()
            return false
        }
        guard !consumers.isEmpty else {
            elements.append(element)
            condition.unlock()
            return true
        }
        let consumer = consumers.removeFirst()
        condition.unlock()
        consumer.resume(returning: element)
        return true
    }

    /// No more elements will come. Those that are there can still be taken; then comes the
    /// failure, once.
    func finish(throwing failure: (any Error)? = nil) {
        condition.lock()
        isFinished = true
        // Whoever waits finds the buffer empty.
        let waiting = takeConsumers()
        if waiting.isEmpty && !isClosed {
            self.failure = failure
        }
        condition.unlock()
        for (index, consumer) in waiting.enumerated() {
            if index == 0, let failure {
                consumer.resume(throwing: failure)
            } else {
                consumer.resume(returning: nil)
            }
        }
    }

    /// No more elements will be taken.
    func close() {
        condition.lock()
        isClosed = true
        elements = []
        failure = nil
        let waiting = takeConsumers()
        condition.broadcast()
        condition.unlock()
        for consumer in waiting {
            consumer.resume(returning: nil)
        }
    }

    /// The next element, when it is there; nil after the last one, and once closed.
    func next() async throws -> Element? {
        try await withCheckedThrowingContinuation { take(for: $0) }
    }

    private func take(for consumer: CheckedContinuation<Element?, any Error>) {
        condition.lock()
        if !elements.isEmpty {
            let element = elements.removeFirst()
            condition.signal()
            condition.unlock()
            consumer.resume(returning: element)
        } else if let failure {
            self.failure = nil
            condition.unlock()
            consumer.resume(throwing: failure)
        } else if isFinished || isClosed {
            condition.unlock()
            consumer.resume(returning: nil)
        } else {
            consumers.append(consumer)
            condition.unlock()
        }
    }

    private func takeConsumers() -> [CheckedContinuation<Element?, any Error>] {
        defer { consumers = [] }
        return consumers
    }
}
