import CMLXB
import Foundation

/// An estimate of the memory that a model takes.
public struct ModelFit: Hashable, Sendable {
    /// Whether ``totalBytes`` is within the budget, and the context within the model's.
    public let fits: Bool

    /// Bytes of the weights.
    public let weightBytes: Int

    /// Bytes of the KV state of the context.
    public let kvBytes: Int

    /// Bytes that a prefill chunk takes on top.
    public let transientBytes: Int

    /// All of these.
    public let totalBytes: Int

    /// The largest context in tokens that fits the budget and the model; 0 when none does.
    public let maxContextLength: Int

    /// The largest context in tokens that the model is made for; nil when its config does not say.
    public let modelContextLength: Int?

    init(_ fit: MLXBFit) {
        fits = fit.fits
        weightBytes = Int(clamping: fit.weight_bytes)
        kvBytes = Int(clamping: fit.kv_bytes)
        transientBytes = Int(clamping: fit.transient_bytes)
        totalBytes = Int(clamping: fit.total_bytes)
        maxContextLength = Int(clamping: fit.max_context_tokens)
        modelContextLength =
            fit.model_context_tokens == 0 ? nil : Int(clamping: fit.model_context_tokens)
    }
}

extension ModelRegistry {
    /// Estimates whether a model with a context fits into memory, from its config and the headers
    /// of its weight files.
    ///
    /// - Parameters:
    ///   - folder: The model's folder, such as ``ModelRecord/folder``.
    ///   - contextLength: Tokens of prompt and answer together.
    ///   - budgetBytes: The memory that there is; nil: no limit.
    /// - Throws: ``MLXBError``: `notFound` without such a folder; `modelFormat` or `corrupt` for
    ///   one that is incomplete, or whose config does not tell the sizes that are needed.
    public static func fit(
        of folder: URL, contextLength: Int = 0, budgetBytes: Int? = nil
    ) async throws -> ModelFit {
        try await onThread(named: "mlxb.registry") {
            var options = MLXBFitOptions()
            mlxbFitOptionsInit(&options, size: MemoryLayout<MLXBFitOptions>.size)
            try set(&options.context_tokens, to: contextLength, named: "contextLength")
            try set(&options.budget_bytes, to: budgetBytes, named: "budgetBytes")
            var fit = MLXBFit()
            fit.struct_size = MemoryLayout<MLXBFit>.size
            try withPath(folder, named: "folder") { path in
                try call { mlxbRegistryFit(path, options: &options, out: &fit, error: $0) }
            }
            return ModelFit(fit)
        }
    }
}
