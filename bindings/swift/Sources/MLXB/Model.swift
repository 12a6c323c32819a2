import CMLXB
import Foundation

/// A language model in memory.
///
/// All of it may be used from several tasks at once; generations take turns, a token each. Its
/// memory is freed when the last reference to it is gone, those of running generations included.
public final class Model: Sendable {
    /// Any thread may use it until it is released, which `deinit` does.
    nonisolated(unsafe) let handle: OpaquePointer

    /// What the model is.
    public let info: ModelInfo

    private init(_ handle: OpaquePointer, _ info: ModelInfo) {
        self.handle = handle
        self.info = info
    }

    deinit {
        mlxbModelRelease(handle)
    }

    /// Loads the model in a folder: a snapshot of the Hugging Face hub, or any folder with
    /// config.json, safetensors files and tokenizer.json. Nothing in the folder is executed.
    ///
    /// It reads on a thread of its own. Cancelling the task ends it between two tensors.
    ///
    /// - Parameters:
    ///   - folder: A file URL.
    ///   - options: Where it computes, and how much it may be given.
    ///   - progress: Told before each tensor, on the thread that reads.
    /// - Throws: ``MLXBError``: `notFound` without such a folder; `modelFormat` or `corrupt` for
    ///   one that is incomplete or contradicts itself; `unsupported` for an architecture or a
    ///   setting that the library does not have; `cancelled`; `io`, `outOfMemory`, `overBudget`,
    ///   `invalidArgument`, `backend`.
    public static func load(
        from folder: URL,
        options: LoadOptions = LoadOptions(),
        progress: (@Sendable (LoadProgress) -> Void)? = nil
    ) async throws -> Model {
        let cancellation = Cancellation()
        return try await withTaskCancellationHandler {
            try await onThread(named: "mlxb.load") {
                try load(folder, options, progress, cancellation: cancellation)
            }
        } onCancel: {
            cancellation.request()
        }
    }

    /// The C call, on the thread that calls.
    private static func load(
        _ folder: URL,
        _ options: LoadOptions,
        _ progress: (@Sendable (LoadProgress) -> Void)?,
        cancellation: Cancellation
    ) throws -> Model {
        var cOptions = try options.forC()
        cOptions.cancel = cancellation.handle
        let receiver = progress.map(ProgressReceiver.init)
        if let receiver {
            cOptions.on_progress = tell
            cOptions.user_data = Unmanaged.passUnretained(receiver).toOpaque()
        }
        var loaded: OpaquePointer?
        try withExtendedLifetime(receiver) {
            try withPath(folder, named: "folder") { path in
                try call { mlxbModelLoad(path, options: &cOptions, out: &loaded, error: $0) }
            }
        }
        guard let handle = loaded else {
            throw MLXBError(.panic, "a bug in the library: no model and no error")
        }
        do {
            return Model(handle, try ModelInfo(of: handle))
        } catch {
            mlxbModelRelease(handle)
            throw error
        }
    }

    /// The ids that end an answer, ascending.
    public func endTokens() throws -> [UInt32] {
        try takeTokens(expected: 8) { tokens, count, error in
            mlxbModelEOSTokens(
                handle, tokens: tokens.baseAddress, capacity: tokens.count, count: count,
                error: error)
        }
    }

    /// Turns text into token ids. Special tokens written out in the text become their ids.
    ///
    /// - Parameter addSpecial: Whether to add what the tokenizer adds by itself, such as a begin
    ///   token.
    public func tokenize(_ text: String, addSpecial: Bool = true) throws -> [UInt32] {
        try withUTF8(text) { bytes, length in
            try takeTokens(expected: length + 8) { tokens, count, error in
                mlxbModelTokenize(
                    handle, text: bytes, length: length, addSpecial: addSpecial,
                    tokens: tokens.baseAddress, capacity: tokens.count, count: count,
                    error: error)
            }
        }
    }

    /// Turns token ids into text.
    ///
    /// - Parameter skipSpecial: Whether to leave special tokens out.
    /// - Throws: ``MLXBError``: `invalidArgument` for an id that the model does not have.
    public func detokenize(_ tokens: [UInt32], skipSpecial: Bool = true) throws -> String {
        try takeString { text, error in
            mlxbModelDetokenize(
                handle, tokens: tokens, count: tokens.count, skipSpecial: skipSpecial, text: text,
                error: error)
        }
    }
}

/// How to load a model. What is nil is left to the library.
public struct LoadOptions: Hashable, Sendable {
    /// Where it computes.
    public var device: ModelInfo.Device

    /// Tokens of prompt and answer together to allow; nil: as many as the model was made for.
    public var contextLength: Int?

    /// On the GPU where there is one, with all of its context, unless told otherwise.
    public init(device: ModelInfo.Device = .default, contextLength: Int? = nil) {
        self.device = device
        self.contextLength = contextLength
    }

    fileprivate func forC() throws -> MLXBModelOptions {
        var options = MLXBModelOptions()
        mlxbModelOptionsInit(&options, size: MemoryLayout<MLXBModelOptions>.size)
        options.device = device.rawValue
        try set(&options.context_length, to: contextLength, named: "contextLength")
        return options
    }
}

/// How far loading a model has come.
public struct LoadProgress: Hashable, Sendable {
    /// Bytes of weights that have been read.
    public let bytesRead: UInt64

    /// Bytes of all weights.
    public let byteCount: UInt64
}

/// What the `user_data` of a load points to.
private final class ProgressReceiver: Sendable {
    let progress: @Sendable (LoadProgress) -> Void

    init(_ progress: @escaping @Sendable (LoadProgress) -> Void) {
        self.progress = progress
    }
}

/// Tells the receiver that `userData` points to of an event of the C call.
private func tell(
    userData: UnsafeMutableRawPointer?, event: UnsafePointer<MLXBEvent>?
) -> Int32 {
    if let userData, let event, event.pointee.kind == .load {
        Unmanaged<ProgressReceiver>.fromOpaque(userData).takeUnretainedValue().progress(
            LoadProgress(bytesRead: event.pointee.done, byteCount: event.pointee.total))
    }
    return Int32(MLXBFlow.continue.rawValue)
}
