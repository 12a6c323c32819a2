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
    ///   `template` without a chat template, or when that fails.
    public func generate(
        _ prompt: Prompt, options: GenerateOptions = GenerateOptions()
    ) -> AsyncThrowingStream<GenerationEvent, any Error> {
        EventSource(named: "mlxb.generate") { cancellation, events in
            let result = try self.generate(
                prompt, options, cancellation: cancellation, telling: events)
            _ = events.put(.finished(GenerationResult(result)))
        }.stream
    }
}

extension Model {
    /// The C call, on the thread that calls.
    private func generate(
        _ prompt: Prompt,
        _ options: GenerateOptions,
        cancellation: Cancellation,
        telling events: EventBuffer<GenerationEvent>
    ) throws -> MLXBGenerateResult {
        try options.withC { options in
            options.cancel = cancellation.handle
            switch prompt {
            case .text(let text):
                return try withUTF8(text) { bytes, length in
                    options.prompt = bytes
                    options.prompt_len = length
                    return try generate(&options, telling: events)
                }
            case .chat(let messages):
                return try generate(tokenize(messages), &options, telling: events)
            case .tokens(let tokens):
                return try generate(tokens, &options, telling: events)
            }
        }
    }

    private func generate(
        _ tokens: [UInt32],
        _ options: inout MLXBGenerateOptions,
        telling events: EventBuffer<GenerationEvent>
    ) throws -> MLXBGenerateResult {
        try tokens.withUnsafeBufferPointer { tokens in
            options.tokens = tokens.baseAddress
            options.token_count = tokens.count
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
