import Foundation
import Testing

@testable import MLXB

@Suite(.timeLimit(.minutes(5)))
struct EventBufferTests {
    struct Failure: Error {}

    @Test func everythingArrivesInOrder() async throws {
        let buffer = EventBuffer<Int>(capacity: 3)
        startThread(named: "test") {
            for number in 0..<1_000 {
                #expect(buffer.put(number))
            }
            buffer.finish()
        }
        for number in 0..<1_000 {
            #expect(try await buffer.next() == number)
        }
        #expect(try await buffer.next() == nil)
        #expect(try await buffer.next() == nil)
    }

    @Test func fullBufferMakesTheProducerWait() async throws {
        let buffer = EventBuffer<Int>(capacity: 2)
        let counter = Counter()
        startThread(named: "test") {
            for number in 0..<5 {
                _ = buffer.put(number)
                Task { await counter.add(1) }
            }
        }
        await counter.wait(for: 2)
        try await Task.sleep(for: .milliseconds(50))
        #expect(await counter.count == 2)
        #expect(try await buffer.next() == 0)
        await counter.wait(for: 3)
        try await Task.sleep(for: .milliseconds(50))
        #expect(await counter.count == 3)
        buffer.close()
    }

    @Test func closingWakesAProducerThatWaits() async throws {
        let buffer = EventBuffer<Int>(capacity: 1)
        let wasTaken = await withCheckedContinuation { continuation in
            startThread(named: "test") {
                #expect(buffer.put(1))
                startThread(named: "closer") {
                    Thread.sleep(forTimeInterval: 0.02)
                    buffer.close()
                }
                continuation.resume(returning: buffer.put(2))
            }
        }
        #expect(!wasTaken)
        buffer.finish(throwing: Failure())
        #expect(try await buffer.next() == nil)
    }

    @Test func closingWakesConsumersThatWait() async throws {
        let buffer = EventBuffer<Int>(capacity: 1)
        async let first = buffer.next()
        async let second = buffer.next()
        try await Task.sleep(for: .milliseconds(20))
        buffer.close()
        #expect(try await (first, second) == (nil, nil))
    }

    @Test(arguments: [false, true])
    func failureComesAfterTheElementsAndOnce(consumerWaits: Bool) async throws {
        let buffer = EventBuffer<Int>(capacity: 4)
        #expect(buffer.put(1))
        #expect(try await buffer.next() == 1)
        if consumerWaits {
            let next = Task { try await buffer.next() }
            try await Task.sleep(for: .milliseconds(20))
            buffer.finish(throwing: Failure())
            await #expect(throws: Failure.self) { _ = try await next.value }
        } else {
            #expect(buffer.put(2))
            buffer.finish(throwing: Failure())
            #expect(try await buffer.next() == 2)
            await #expect(throws: Failure.self) { _ = try await buffer.next() }
        }
        #expect(try await buffer.next() == nil)
    }
}
