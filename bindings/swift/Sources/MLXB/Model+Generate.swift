import CMLXB
import Foundation

extension Model {
    /// Generates an answer.
    ///
    /// ```swift
    /// for try await event in model.generate(.chat([.user("Why is the sky blue?")])) {
    ///     if case .text(let text) = event {
    ///         print(text, terminator: "")
    ///     }
    /// }
    /// ```
    ///
    /// It starts when the first event is asked for, and ends when the task that asks is
    /// cancelled or the stream and its iterators are gone, within one step: a chunk of the
    /// prompt, or a token. A stream that was ended this way just ends, without
    /// ``GenerationEvent/finished(_:)``.
    ///
    /// A consumer that is slow pauses the generation, which is never more than a few tokens
    /// ahead. Several generations, also of several models, take turns.
    ///
    /// - Returns: The events. It fails with an ``MLXBError``, before anything is run where it
    ///   can: `invalidArgument` for options out of range and token ids that the model does not
    ///   have, `contextFull` for a prompt that does not fit, `overBudget`; for a chat
    ///   `notFound` without a chat template, and `template` when that fails.
    public func generate(
        _ prompt: Prompt, options: GenerateOptions = GenerateOptions()
    ) -> AsyncThrowingStream<GenerationEvent, any Error> {
        let generation = Generation(model: self, prompt: prompt, options: options)
        return AsyncThrowingStream { try await generation.next() }
    }
}

/// The consumer's end of a generation, which ends with it. The producer's end is a thread of its
/// own, which is in the C call.
private final class Generation: Sendable {
    /// The library itself may be some tokens ahead, so a few are enough to keep it going while
    /// the threads switch.
    private static let eventsAhead = 16

    private let events: EventBuffer<GenerationEvent>
    private let cancellation: Cancellation
    private let start: Once

    init(model: Model, prompt: Prompt, options: GenerateOptions) {
        let events = EventBuffer<GenerationEvent>(capacity: Self.eventsAhead)
        let cancellation = Cancellation()
        self.events = events
        self.cancellation = cancellation
        start = Once {
            startThread(named: "mlxb.generate") {
                do {
                    let result = try model.generate(
                        prompt, options, cancellation: cancellation, telling: events)
                    _ = events.put(.finished(GenerationResult(result)))
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

    func next() async throws -> GenerationEvent? {
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

extension Model {
    /// The C call, on the thread that calls.
    fileprivate func generate(
        _ prompt: Prompt,
        _ options: GenerateOptions,
        cancellation: Cancellation,
        telling events: EventBuffer<GenerationEvent>
    ) throws -> MLXBGenerateResult {
        try options.withC { options in
            options.cancel = cancellation.handle
            switch prompt {
            case .text(let text):
                return try generate(text, &options, telling: events)
            case .chat(let messages):
                return try generate(render(messages), &options, telling: events)
            case .tokens(let tokens):
                return try tokens.withUnsafeBufferPointer { tokens in
                    options.tokens = tokens.baseAddress
                    options.token_count = tokens.count
                    return try generate(&options, telling: events)
                }
            }
        }
    }

    private func generate(
        _ text: String,
        _ options: inout MLXBGenerateOptions,
        telling events: EventBuffer<GenerationEvent>
    ) throws -> MLXBGenerateResult {
        try withUTF8(text) { bytes, length in
            options.prompt = bytes
            options.prompt_len = length
            return try generate(&options, telling: events)
        }
    }

    private func generate(
        _ options: inout MLXBGenerateOptions, telling events: EventBuffer<GenerationEvent>
    ) throws -> MLXBGenerateResult {
        var result = MLXBGenerateResult()
        result.struct_size = MemoryLayout<MLXBGenerateResult>.size
        // `events` outlives the call, which is all that the pointer to it is used in.
        let userData = Unmanaged.passUnretained(events).toOpaque()
        try call { error in
            mlxbGenerate(
                model: handle, kv: nil, options: &options, onEvent: tell, userData: userData,
                out: &result, error: error)
        }
        return result
    }
}

/// Puts an event of the C call into the buffer that `userData` points to.
private func tell(
    userData: UnsafeMutableRawPointer?, event: UnsafePointer<MLXBEvent>?
) -> Int32 {
    let goOn = Int32(MLXBFlow.continue.rawValue)
    guard let userData, let event, let event = GenerationEvent(event) else {
        return goOn
    }
    let events = Unmanaged<EventBuffer<GenerationEvent>>.fromOpaque(userData)
        .takeUnretainedValue()
    return events.put(event) ? goOn : Int32(MLXBFlow.stop.rawValue)
}
