import CMLXB
import Foundation

/// The library's `mlxb_protocol`: the JSON in which hosted models are talked to. Later versions may
/// have new values: a `switch` over it needs a `default`.
public struct WireProtocol: RawRepresentable, Hashable, Sendable {
    /// The number that C has for it.
    public let rawValue: Int32

    /// A protocol by its number, also one that this version does not know.
    public init(rawValue: Int32) {
        self.rawValue = rawValue
    }

    private init(_ wireProtocol: MLXBProtocol) {
        self.init(rawValue: Int32(bitPattern: wireProtocol.rawValue))
    }

    /// OpenAI's Responses.
    public static let responses = WireProtocol(.responses)
    /// OpenAI's Chat Completions.
    public static let chatCompletions = WireProtocol(.chatCompletions)
    /// Anthropic's Messages.
    public static let messages = WireProtocol(.messages)
}

/// What an answer in a protocol tells while it is made. Later versions may have new events: a
/// `switch` over it needs a `default`.
public enum ResponseEvent: Hashable, Sendable {
    /// What a client that streams is told: the event's name, such as "response.created", and its
    /// JSON. A server writes "event: ", the name, "data: " and the JSON, each on a line; in Chat
    /// Completions only the data, and `data: [DONE]` at the end.
    case event(name: String, json: Data)

    /// The last event: the whole answer as one JSON object.
    case finished(json: Data)
}

extension Model {
    /// Answers a request in the JSON of a protocol, as a hosted model would: with the model's own
    /// template, reasoning and tool calls told from the text.
    ///
    /// ```swift
    /// let request = Data(#"{"input": "Why is the sky blue?"}"#.utf8)
    /// for try await event in model.respond(to: request, as: .responses) {
    ///     if case .event(let name, let json) = event {
    ///         connection.send("event: \(name)\ndata: ", json, "\n\n")
    ///     }
    /// }
    /// ```
    ///
    /// It starts, ends and waits for a slow consumer as ``generate(_:options:)`` does. Whether the
    /// request asks for a stream changes nothing.
    ///
    /// - Parameters:
    ///   - request: The request's body. Its name of a model is repeated in the answer.
    ///   - wireProtocol: The protocol of the request and of the answer.
    ///   - cache: Where states are looked for and kept, and conversations, so that
    ///     `previous_response_id` continues one.
    ///   - cacheNamespace: What is kept is shared among those who say the same here.
    /// - Returns: The events. It fails with an ``MLXBError``, whose `detail` is what a hosted model
    ///   would answer instead, as JSON: `protocol` naming the field that is malformed or not
    ///   supported, `template`, `contextFull`, `unsupported`; also after events `overBudget`,
    ///   `backend`, and `protocol` when the model does not call the tool that it must.
    public func respond(
        to request: Data,
        as wireProtocol: WireProtocol,
        cache: PromptCache? = nil,
        cacheNamespace: String = ""
    ) -> AsyncThrowingStream<ResponseEvent, any Error> {
        EventSource(named: "mlxb.respond") { cancellation, events in
            let response = try self.respond(
                request, wireProtocol, cache, cacheNamespace, cancellation, telling: events)
            _ = events.put(.finished(json: response))
        }.stream
    }

    /// Answers a request in the JSON of a protocol with one JSON object, as
    /// ``respond(to:as:cache:cacheNamespace:)`` does with events.
    ///
    /// - Throws: `CancellationError` when the task is cancelled; else ``MLXBError``.
    public func response(
        to request: Data,
        as wireProtocol: WireProtocol,
        cache: PromptCache? = nil,
        cacheNamespace: String = ""
    ) async throws -> Data {
        let events = EventSource<ResponseEvent>(named: "mlxb.respond") { cancellation, events in
            let response = try self.respond(
                request, wireProtocol, cache, cacheNamespace, cancellation, telling: nil)
            _ = events.put(.finished(json: response))
        }
        for try await case .finished(let json) in events.stream {
            return json
        }
        throw CancellationError()
    }

    /// The C call, on the thread that calls.
    private func respond(
        _ request: Data,
        _ wireProtocol: WireProtocol,
        _ cache: PromptCache?,
        _ cacheNamespace: String,
        _ cancellation: Cancellation,
        telling events: EventBuffer<ResponseEvent>?
    ) throws -> Data {
        // `events` outlives the call, which is all that the pointer to it is used in.
        let userData = events.map { Unmanaged.passUnretained($0).toOpaque() }
        return try withExtendedLifetime((cache, events)) {
            try withCString(cacheNamespace, named: "cacheNamespace") { namespace in
                try request.withUnsafeBytes { request in
                    let json = try takeString { response, error in
                        mlxbRespond(
                            handle, cache: cache?.handle, namespace: namespace,
                            protocol: wireProtocol.rawValue,
                            request: request.baseAddress?.assumingMemoryBound(to: CChar.self),
                            length: request.count, cancel: cancellation.handle,
                            onEvent: userData == nil ? nil : tell, userData: userData,
                            response: response, error: error)
                    }
                    return Data(json.utf8)
                }
            }
        }
    }
}

/// Puts an event of the C call into the buffer that `userData` points to.
private func tell(
    userData: UnsafeMutableRawPointer?, name: MLXBString, json: MLXBString
) -> Int32 {
    guard let userData else {
        return Int32(MLXBFlow.continue.rawValue)
    }
    let events = Unmanaged<EventBuffer<ResponseEvent>>.fromOpaque(userData).takeUnretainedValue()
    let name = String(
        decoding: UnsafeRawBufferPointer(start: name.ptr, count: name.len), as: UTF8.self)
    let json = Data(UnsafeRawBufferPointer(start: json.ptr, count: json.len))
    let flow: MLXBFlow = events.put(.event(name: name, json: json)) ? .continue : .stop
    return Int32(flow.rawValue)
}
