import CMLXB
import Foundation

/// What is known about a model on this machine without loading it.
public struct ModelRecord: Hashable, Sendable, Identifiable {
    /// The snapshot's folder, without links: what ``Model/load(from:options:progress:)`` takes.
    public let folder: URL

    /// Such as "org/name".
    public let repoID: String

    /// The architecture, as the config names it; nil when it names none.
    public let modelType: String?

    /// Bytes of the weight files that are loaded for text.
    public let sizeBytes: Int

    /// Bytes of a vision tower that lies beside the language model; not in ``sizeBytes``.
    public let sidecarBytes: Int

    /// Bytes of the experts' tensors, a part of ``sizeBytes``.
    public let expertsBytes: Int

    /// Bytes of all files of the snapshot, those shared with other snapshots included.
    public let diskBytes: Int

    /// Parameters, quantized ones counted as the weights that they stand for; nil: unknown.
    public let parameterCount: Int?

    /// How the weights are quantized; nil: they are not.
    public let quantization: Quantization?

    /// The type of the vision tower that the config names; nil: none.
    public let visionConfigType: String?

    /// The license that the model card names; nil: none.
    public let license: String?

    /// Whether a vision tower lies beside the language model.
    public let hasVisionSidecar: Bool

    /// Whether the model takes pictures: by the sidecar, or by itself.
    public let isVisionCapable: Bool

    /// Whether the folder has settings for the KV cache (kv_config.json).
    public let hasKVConfig: Bool

    /// Whether the chat template knows about tools.
    public let hasToolTemplate: Bool

    /// Whether this snapshot stands for its repository: refs/main names it, or, without that, it
    /// is the newest complete one.
    public let isCanonical: Bool

    /// Whether everything that loading needs is there.
    public let isComplete: Bool

    /// Whether the model only proposes tokens for another one.
    public let isDrafter: Bool

    /// Whether the library can load the architecture.
    public let isSupported: Bool

    /// Transformer layers; nil: unknown.
    public let layerCount: Int?

    /// The width of the hidden states; nil: unknown.
    public let hiddenSize: Int?

    /// Tokens in the vocabulary; nil: unknown.
    public let vocabularySize: Int?

    /// When the files were read.
    public let scannedAt: Date

    /// The folder, of which there is one record.
    public var id: URL { folder }

    init(_ record: MLXBModelRecord) {
        let text = { (text: UnsafePointer<CChar>?) in text.map { String(cString: $0) } }
        let known = { (number: Int32) in number < 0 ? nil : Int(number) }
        folder = URL(filePath: text(record.path) ?? "", directoryHint: .isDirectory)
        repoID = text(record.repo_id) ?? ""
        modelType = text(record.model_type)
        sizeBytes = Int(clamping: record.size_bytes)
        sidecarBytes = Int(clamping: record.sidecar_bytes)
        expertsBytes = Int(clamping: record.experts_bytes)
        diskBytes = Int(clamping: record.disk_bytes)
        parameterCount = record.parameter_count < 0 ? nil : Int(clamping: record.parameter_count)
        quantization = text(record.quant_mode).map { mode in
            Quantization(
                mode: mode, bits: known(record.quant_bits),
                groupSize: known(record.quant_group_size))
        }
        visionConfigType = text(record.vision_config_type)
        license = text(record.license)
        hasVisionSidecar = record.has_vision_sidecar
        isVisionCapable = record.vision_capable
        hasKVConfig = record.has_kv_config
        hasToolTemplate = record.has_tool_template
        isCanonical = record.is_canonical
        isComplete = record.is_complete
        isDrafter = record.is_drafter
        isSupported = record.is_supported
        layerCount = known(record.layer_count)
        hiddenSize = known(record.hidden_size)
        vocabularySize = known(record.vocab_size)
        scannedAt = Date(timeIntervalSince1970: Double(record.scanned_at_ms) / 1000)
    }
}

extension ModelRecord {
    /// How weights are quantized.
    public struct Quantization: Hashable, Sendable {
        /// Such as "affine" or "mxfp4".
        public let mode: String

        /// Bits of a quantized weight; nil: unknown.
        public let bits: Int?

        /// Weights that share a scale; nil: unknown.
        public let groupSize: Int?
    }
}
