import CMLXB
import Foundation

/// Why a call failed.
///
/// ```swift
/// do {
///     model = try await Model.load(from: folder)
/// } catch let error as MLXBError where error.status == .notFound {
///     // Offer to download it.
/// }
/// ```
public struct MLXBError: Error, Hashable, Sendable {
    /// What kind of failure it is.
    public let status: Status

    /// One line in lower case that names the offending thing and holds no prompt text.
    public let message: String

    /// What does not fit into one line, such as the candidates of an ambiguous query.
    public let detail: String?

    init(_ status: Status, _ message: String, detail: String? = nil) {
        self.status = status
        self.message = message
        self.detail = detail
    }

    /// Takes over the error object that a C call left.
    init(_ status: MLXBStatus, taking error: OpaquePointer?) {
        self.init(
            Status(status),
            String(cString: mlxbErrorMessage(error)),
            detail: mlxbErrorDetail(error).map { String(cString: $0) }
        )
        mlxbErrorFree(error)
    }
}

extension MLXBError {
    /// The library's `mlxb_status`. Later versions may have new values: a `switch` over it needs
    /// a `default`.
    public struct Status: RawRepresentable, Hashable, Sendable {
        /// The number that C has for it.
        public let rawValue: Int32

        /// A status by its number, also one that this version does not know.
        public init(rawValue: Int32) {
            self.rawValue = rawValue
        }

        init(_ status: MLXBStatus) {
            self.init(rawValue: Int32(bitPattern: status.rawValue))
        }

        /// An argument is missing, out of range, or contradicts another one.
        public static let invalidArgument = Status(.invalidArgument)
        /// A text argument is not valid UTF-8.
        public static let invalidUTF8 = Status(.invalidUTF8)
        /// The named thing does not exist.
        public static let notFound = Status(.notFound)
        /// A query matches several things; ``MLXBError/detail`` lists them.
        public static let ambiguous = Status(.ambiguous)
        /// The object is in use by another call, or the call would wait for itself.
        public static let busy = Status(.busy)
        /// The caller asked to stop.
        public static let cancelled = Status(.cancelled)
        /// The caller's buffer cannot hold the answer.
        public static let bufferTooSmall = Status(.bufferTooSmall)
        /// Understood, but not something that this library or platform does.
        public static let unsupported = Status(.unsupported)
        /// This package was made for a newer library than the one that is running.
        public static let versionMismatch = Status(.versionMismatch)
        /// The operating system refused a file operation.
        public static let io = Status(.io)
        /// A file's content contradicts itself.
        public static let corrupt = Status(.corrupt)
        /// The disk is full.
        public static let noSpace = Status(.noSpace)
        /// Another process holds the lock.
        public static let locked = Status(.locked)
        /// Memory could not be allocated.
        public static let outOfMemory = Status(.outOfMemory)
        /// The request would exceed the memory budget.
        public static let overBudget = Status(.overBudget)
        /// The model folder is incomplete or inconsistent.
        public static let modelFormat = Status(.modelFormat)
        /// The chat template does not compile or render.
        public static let template = Status(.template)
        /// The grammar is malformed.
        public static let grammar = Status(.grammar)
        /// The tokens do not fit the model's context.
        public static let contextFull = Status(.contextFull)
        /// The protocol request is malformed.
        public static let `protocol` = Status(.protocol)
        /// MLX reported an error.
        public static let backend = Status(.backend)
        /// A bug in the library: please report it.
        public static let panic = Status(.panic)
        /// An earlier ``panic`` left this object unusable.
        public static let poisoned = Status(.poisoned)
    }
}

extension MLXBError.Status: CustomStringConvertible {
    /// The name that C has for it, such as "MLXB_NOT_FOUND".
    public var description: String {
        String(cString: mlxbStatusName(rawValue))
    }
}

extension MLXBError: CustomStringConvertible {
    /// The status and the message.
    public var description: String {
        "\(status): \(message)"
    }
}

extension MLXBError: LocalizedError {
    /// The message.
    public var errorDescription: String? {
        message
    }
}

/// Makes a C call, which leaves an error object when it fails.
func call(_ body: (UnsafeMutablePointer<OpaquePointer?>) throws -> MLXBStatus) throws {
    var error: OpaquePointer?
    let status = try body(&error)
    guard status == .ok else {
        throw MLXBError(status, taking: error)
    }
}
