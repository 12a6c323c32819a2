import CMLXB

/// What a model is.
public struct ModelInfo: Hashable, Sendable {
    /// The architecture's name, such as "llama".
    public let modelType: String

    /// Tokens of prompt and answer together that fit.
    public let contextLength: Int

    /// Every token id is below.
    public let vocabularySize: Int

    /// Blocks.
    public let layerCount: Int

    /// Width of the hidden states.
    public let hiddenSize: Int

    /// Where it computes.
    public let device: Device

    /// Bytes of all weights.
    public let weightBytes: UInt64

    /// Bytes of KV state that one token takes, over all layers.
    public let kvBytesPerToken: UInt64

    init(of model: OpaquePointer) throws {
        var info = MLXBModelInfo()
        info.struct_size = MemoryLayout<MLXBModelInfo>.size
        try call { mlxbModelInfoGet(model, out: &info, error: $0) }
        modelType = info.model_type.map { String(cString: $0) } ?? ""
        contextLength = Int(clamping: info.context_length)
        vocabularySize = Int(info.vocab_size)
        layerCount = Int(info.layer_count)
        hiddenSize = Int(info.hidden_size)
        device = Device(rawValue: info.device)
        weightBytes = info.weight_bytes
        kvBytesPerToken = info.kv_bytes_per_token
    }
}

extension ModelInfo {
    /// The library's `mlxb_device`: where a model computes. Later versions may have new values: a
    /// `switch` over it needs a `default`.
    public struct Device: RawRepresentable, Hashable, Sendable {
        /// The number that C has for it.
        public let rawValue: Int32

        /// A device by its number, also one that this version does not know.
        public init(rawValue: Int32) {
            self.rawValue = rawValue
        }

        private init(_ device: MLXBDevice) {
            self.init(rawValue: Int32(bitPattern: device.rawValue))
        }

        /// The GPU where there is one that MLX can use, else the CPU.
        public static let `default` = Device(.default)
        /// The CPU.
        public static let cpu = Device(.cpu)
    }
}
