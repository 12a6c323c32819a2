import CMLXB

/// How to generate. Numbers for sampling that are nil are the model's own, out of its
/// generation_config.json; where that says nothing, the most likely token is taken.
public struct GenerateOptions: Hashable, Sendable {
    /// The most tokens to generate; nil: as many as fit into the context; 0: none, and of the
    /// prompt all is run but the last token. A number set here must fit into the memory budget
    /// beforehand.
    public var maxTokens: Int?

    /// Divides the log-probabilities before a token is drawn; 0 takes the most likely one.
    public var temperature: Float?

    /// Keeps the smallest set of most likely tokens whose probabilities sum to this, from 0 to 1;
    /// 1 keeps all.
    public var topP: Float?

    /// Keeps this many of the most likely tokens; 0 keeps all.
    public var topK: Int?

    /// Drops tokens less likely than this times the most likely one, from 0 to 1; 0 keeps all.
    public var minP: Float?

    /// Tokens that ``minP`` never drops, at least 1.
    public var minTokensToKeep: Int?

    /// How often XTC drops the most likely tokens, from 0 to 1; 0 is never.
    public var xtcProbability: Float?

    /// XTC drops all tokens more likely than this but for the least likely of them, and never an
    /// end token or the newline. From 0 to 0.5; 0 drops nothing.
    public var xtcThreshold: Float?

    /// Divides the positive logits and multiplies the negative ones of tokens in the prompt and
    /// the answer. Above 0; 1 does nothing.
    public var repetitionPenalty: Penalty?

    /// Subtracted from the logits of tokens in the answer, once.
    public var presencePenalty: Penalty?

    /// Subtracted from the logits of tokens in the answer, for each time they are there.
    public var frequencyPenalty: Penalty?

    /// What is added to the logits of these token ids; `-.infinity` forbids a token.
    public var logitBias: [UInt32: Float] = [:]

    /// Makes the draws repeatable; nil: each generation draws differently.
    public var seed: UInt64?

    /// Ends the answer where one of these appears in its text; no part of it is told.
    public var stop: [String]

    /// Token ids that end the answer like an end token of the model.
    public var stopTokens: [UInt32] = []

    /// Whether ``GenerationEvent/token(_:)`` tells log-probabilities, and of how many of the
    /// most likely tokens besides that of the token itself; nil: none at all.
    public var logprobs: Int?

    /// Prompt tokens that are run at once: the grain of progress, fairness and cancelling.
    public var prefillChunk: Int?

    /// Where the state of the prompt's beginning is looked for, and the state at the end is kept.
    public var cache: PromptCache?

    /// States are shared among generations that say the same here: a user, a document.
    public var cacheNamespace = ""

    /// Leaves everything to the model that is not given here or set afterwards.
    public init(
        maxTokens: Int? = nil,
        temperature: Float? = nil,
        topP: Float? = nil,
        topK: Int? = nil,
        seed: UInt64? = nil,
        stop: [String] = []
    ) {
        self.maxTokens = maxTokens
        self.temperature = temperature
        self.topP = topP
        self.topK = topK
        self.seed = seed
        self.stop = stop
    }
}

extension GenerateOptions {
    /// A penalty on tokens that were there already.
    public struct Penalty: Hashable, Sendable {
        /// How much of it.
        public var strength: Float

        /// Tokens that it looks back on; 0 is all of them; nil is left to the library.
        public var contextSize: Int?

        /// A penalty that looks back on as many tokens as the library finds right.
        public init(_ strength: Float, contextSize: Int? = nil) {
            self.strength = strength
            self.contextSize = contextSize
        }

        fileprivate func set(
            _ strength: inout Float, _ contextSize: inout Int32, named name: String
        ) throws {
            strength = try number(self.strength, named: name)
            if let size = self.contextSize {
                contextSize = try count(size, named: "\(name).contextSize")
            }
        }
    }
}

extension GenerateOptions {
    /// Calls `body` with the options as C takes them, but for the prompt.
    func withC<Result>(_ body: (inout MLXBGenerateOptions) throws -> Result) throws -> Result {
        var options = try numbersForC()
        options.cache = cache?.handle
        return try withExtendedLifetime(cache) {
            try withCString(cacheNamespace, named: "cacheNamespace") { namespace in
                options.cache_namespace = namespace
                return try withArrays(&options, body)
            }
        }
    }

    private func withArrays<Result>(
        _ options: inout MLXBGenerateOptions,
        _ body: (inout MLXBGenerateOptions) throws -> Result
    ) throws -> Result {
        let biases = Array(logitBias)
        return try withCStrings(stop, named: "stop") { stop in
            options.stop = stop.baseAddress
            options.stop_count = stop.count
            return try stopTokens.withUnsafeBufferPointer { stopTokens in
                options.stop_tokens = stopTokens.baseAddress
                options.stop_token_count = stopTokens.count
                return try biases.map(\.key).withUnsafeBufferPointer { tokens in
                    options.logit_bias_tokens = tokens.baseAddress
                    options.logit_bias_count = tokens.count
                    return try biases.map(\.value).withUnsafeBufferPointer { values in
                        options.logit_bias_values = values.baseAddress
                        return try body(&options)
                    }
                }
            }
        }
    }

    private func numbersForC() throws -> MLXBGenerateOptions {
        var options = MLXBGenerateOptions()
        mlxbGenerateOptionsInit(&options, size: MemoryLayout<MLXBGenerateOptions>.size)
        try set(&options.max_tokens, to: maxTokens, named: "maxTokens")
        try set(&options.temperature, to: temperature, named: "temperature")
        try set(&options.top_p, to: topP, named: "topP")
        try set(&options.top_k, to: topK, named: "topK")
        try set(&options.min_p, to: minP, named: "minP")
        try set(&options.min_tokens_to_keep, to: minTokensToKeep, named: "minTokensToKeep")
        try set(&options.xtc_probability, to: xtcProbability, named: "xtcProbability")
        try set(&options.xtc_threshold, to: xtcThreshold, named: "xtcThreshold")
        try repetitionPenalty?.set(
            &options.repetition_penalty, &options.repetition_context_size,
            named: "repetitionPenalty")
        try presencePenalty?.set(
            &options.presence_penalty, &options.presence_context_size, named: "presencePenalty")
        try frequencyPenalty?.set(
            &options.frequency_penalty, &options.frequency_context_size,
            named: "frequencyPenalty")
        if let seed {
            options.has_seed = true
            options.seed = seed
        }
        if let logprobs {
            // In C, 0 is none, 1 is the token's own.
            options.logprobs = 1 + min(try count(logprobs, named: "logprobs"), Int32.max - 1)
        }
        try set(&options.prefill_chunk, to: prefillChunk, named: "prefillChunk")
        return options
    }
}
