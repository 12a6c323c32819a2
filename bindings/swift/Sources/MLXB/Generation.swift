import CMLXB

/// What to answer to.
public enum Prompt: Hashable, Sendable {
    /// Text. A begin token that the model's tokenizer adds by itself is not added twice.
    case text(String)

    /// Token ids, each below the model's vocabulary size.
    case tokens([UInt32])

    /// A conversation, written with the model's own chat template. Messages cannot make control
    /// tokens.
    case chat([ChatMessage])
}

/// What a generation tells while it runs. Later versions may have new events: a `switch` over it
/// needs a `default`.
public enum GenerationEvent: Hashable, Sendable {
    /// So many of the prompt's tokens have been run, or found in the cache. Comes first with none
    /// done, then after each chunk, last with all.
    case prefill(done: Int, total: Int)

    /// A token was sampled, the end token included.
    case token(GeneratedToken)

    /// More of the answer: whole characters, and no part of a stop string.
    case text(String)

    /// The last event, when the answer has ended by itself.
    case finished(GenerationResult)

    /// Nil for a kind of event that is not known here.
    init?(_ event: UnsafePointer<MLXBEvent>) {
        // Field by field: an older library's struct may be shorter.
        switch event.pointee.kind {
        case .prefill:
            self = .prefill(
                done: Int(clamping: event.pointee.done), total: Int(clamping: event.pointee.total))
        case .token:
            self = .token(GeneratedToken(event))
        case .text:
            let text = event.pointee.text
            let bytes = UnsafeRawBufferPointer(start: text.ptr, count: text.len)
            self = .text(String(decoding: bytes, as: UTF8.self))
        default:
            return nil
        }
    }
}

/// A sampled token.
public struct GeneratedToken: Hashable, Sendable {
    /// Its id.
    public let id: UInt32

    /// Its log-probability, where ``GenerateOptions/logprobs`` asks for it; -9999 for a token
    /// that is impossible or whose logits are no numbers.
    public let logprob: Float?

    /// The most likely tokens, best first, as many as ``GenerateOptions/logprobs`` asks for;
    /// impossible ones are left out.
    public let candidates: [Candidate]

    /// A token that could have been sampled.
    public struct Candidate: Hashable, Sendable {
        /// Its id.
        public let id: UInt32

        /// Its log-probability.
        public let logprob: Float
    }

    init(_ event: UnsafePointer<MLXBEvent>) {
        id = event.pointee.token
        logprob = event.pointee.logprob.isNaN ? nil : event.pointee.logprob
        let count = event.pointee.top_count
        candidates = zip(
            UnsafeBufferPointer(start: event.pointee.top_tokens, count: count),
            UnsafeBufferPointer(start: event.pointee.top_logprobs, count: count)
        ).map(Candidate.init)
    }
}

/// How a generation went.
public struct GenerationResult: Hashable, Sendable {
    /// Why it ended.
    public let finish: Finish

    /// With ``Finish/stopString``, which of ``GenerateOptions/stop`` it was.
    public let stopIndex: Int?

    /// Tokens of the prompt.
    public let promptTokenCount: Int

    /// How many of these needed not be run: ``GenerateOptions/cache`` held their state.
    public let reusedTokenCount: Int

    /// How many of the reused ones were read from the cache's disk.
    public let restoredTokenCount: Int

    /// Tokens generated, the end token included.
    public let generatedTokenCount: Int

    /// From the start to the first token.
    public let prefillDuration: Duration

    /// From the first token to the end, waiting for a slow consumer included.
    public let decodeDuration: Duration

    init(_ result: MLXBGenerateResult) {
        finish = Finish(rawValue: result.finish)
        stopIndex = result.stop_index < 0 ? nil : Int(result.stop_index)
        promptTokenCount = Int(clamping: result.prompt_tokens)
        reusedTokenCount = Int(clamping: result.reused_tokens)
        restoredTokenCount = Int(clamping: result.restored_tokens)
        generatedTokenCount = Int(clamping: result.generated_tokens)
        prefillDuration = .seconds(result.prefill_seconds)
        decodeDuration = .seconds(result.decode_seconds)
    }
}

extension GenerationResult {
    /// The library's `mlxb_finish`: why a generation ended. Later versions may have new values: a
    /// `switch` over it needs a `default`.
    public struct Finish: RawRepresentable, Hashable, Sendable {
        /// The number that C has for it.
        public let rawValue: Int32

        /// A reason by its number, also one that this version does not know.
        public init(rawValue: Int32) {
            self.rawValue = rawValue
        }

        private init(_ finish: MLXBFinish) {
            self.init(rawValue: Int32(bitPattern: finish.rawValue))
        }

        /// The model ended its answer.
        public static let endOfAnswer = Finish(.endOfAnswer)
        /// ``GenerateOptions/maxTokens`` or the context is used up.
        public static let length = Finish(.length)
        /// A stop string appeared.
        public static let stopString = Finish(.stopString)
    }
}
