import CMLXB
import Foundation

/// An index of the models on this machine, those in the Hugging Face cache.
///
/// ```swift
/// let registry = try await ModelRegistry.open()
/// try await registry.scan()
/// let model = try await Model.load(from: registry.resolve("Llama-3.2-1B-Instruct-4bit").folder)
/// ```
///
/// Its database may be used by several tasks and processes at once.
public final class ModelRegistry: Sendable {
    /// Any thread may use it until it is closed, which `deinit` does.
    nonisolated(unsafe) private let handle: OpaquePointer

    private init(_ handle: OpaquePointer) {
        self.handle = handle
    }

    deinit {
        mlxbRegistryClose(handle)
    }

    /// Opens the registry's database, which is made where there is none.
    ///
    /// - Parameter database: The file; nil: mlxb/registry.sqlite in the user's cache folder.
    /// - Throws: ``MLXBError``: `locked` when another process keeps the database busy; `io`,
    ///   `noSpace`; `notFound` when there is no home folder for the default.
    public static func open(_ database: URL? = nil) async throws -> ModelRegistry {
        try await onThread(named: "mlxb.registry") {
            var opened: OpaquePointer?
            try withOptionalPath(database, named: "database") { path in
                try call { mlxbRegistryOpen(path, out: &opened, error: $0) }
            }
            guard let opened else {
                throw MLXBError(.panic, "the registry was not opened")
            }
            return ModelRegistry(opened)
        }
    }

    /// Looks through a hub folder and brings the database up to date; returns how many models the
    /// hub holds. Snapshots whose files have not changed are not read again.
    ///
    /// - Parameter hub: The folder; nil: where huggingface_hub has it, by its environment
    ///   variables, else ~/.cache/huggingface/hub.
    /// - Throws: ``MLXBError``: `notFound` when there is no such hub; `io`, `locked`, `noSpace`.
    @discardableResult
    public func scan(_ hub: URL? = nil) async throws -> Int {
        try await onThread(named: "mlxb.registry") {
            var count = 0
            try withOptionalPath(hub, named: "hub") { path in
                try call {
                    mlxbRegistryScan(self.handle, hub: path, count: &count, report: nil, error: $0)
                }
            }
            return count
        }
    }

    /// The models that the last scans found and that are still there, the smallest first.
    ///
    /// - Parameters:
    ///   - query: Part of the repository's id or of the model type, in any letter case; nil: all.
    ///   - maxBytes: The most bytes of weights; nil: any.
    ///   - takesPictures: Only models that do, or only those that do not; nil: both.
    ///   - canonicalOnly: Only the snapshot that stands for its repository.
    public func models(
        matching query: String? = nil,
        maxBytes: Int? = nil,
        takesPictures: Bool? = nil,
        canonicalOnly: Bool = false
    ) async throws -> [ModelRecord] {
        try await onThread(named: "mlxb.registry") {
            var options = MLXBListOptions()
            mlxbListOptionsInit(&options, size: MemoryLayout<MLXBListOptions>.size)
            try set(&options.max_bytes, to: maxBytes, named: "maxBytes")
            if let takesPictures {
                let vision: MLXBVision = takesPictures ? .yes : .no
                options.vision = Int32(bitPattern: vision.rawValue)
            }
            options.canonical_only = canonicalOnly ? 1 : 0
            return try withOptionalCString(query, named: "query") { query in
                options.query = query
                return try takeRecords {
                    mlxbRegistryList(self.handle, options: &options, out: $0, error: $1)
                }
            }
        }
    }

    /// The one model that a query means: the exact id of a repository, else an id, a part of one or
    /// a part of a model type in any letter case; the first of these that matches decides. Drafters
    /// are never meant.
    ///
    /// - Throws: ``MLXBError``: `notFound` when nothing that can be loaded matches; `ambiguous`
    ///   when several models do, whose ids `detail` holds, one a line.
    public func resolve(_ query: String) async throws -> ModelRecord {
        try await onThread(named: "mlxb.registry") {
            try withCString(query, named: "query") { query in
                try takeRecord {
                    mlxbRegistryResolve(self.handle, query: query, out: $0, error: $1)
                }
            }
        }
    }

    /// What there is to know about one model folder, without a database.
    ///
    /// - Parameters:
    ///   - folder: A file URL, in a hub or not.
    ///   - repoID: What the record shall say; nil: from the path.
    public static func inspect(_ folder: URL, repoID: String? = nil) async throws -> ModelRecord {
        try await onThread(named: "mlxb.registry") {
            try withPath(folder, named: "folder") { path in
                try withOptionalCString(repoID, named: "repoID") { repoID in
                    try takeRecord {
                        mlxbRegistryInspect(path, repo: repoID, out: $0, error: $1)
                    }
                }
            }
        }
    }
}

/// The records of the list that a C call makes, which is freed.
private func takeRecords(
    _ body: (UnsafeMutablePointer<OpaquePointer?>, UnsafeMutablePointer<OpaquePointer?>)
        -> MLXBStatus
) throws -> [ModelRecord] {
    var list: OpaquePointer?
    try call { body(&list, $0) }
    guard let list else {
        return []
    }
    defer { mlxbModelListFree(list) }
    return try (0..<mlxbModelListCount(list)).map { index in
        var record = MLXBModelRecord()
        record.struct_size = MemoryLayout<MLXBModelRecord>.size
        try call { mlxbModelListGet(list, index: index, out: &record, error: $0) }
        return ModelRecord(record)
    }
}

/// The record of a list of one.
private func takeRecord(
    _ body: (UnsafeMutablePointer<OpaquePointer?>, UnsafeMutablePointer<OpaquePointer?>)
        -> MLXBStatus
) throws -> ModelRecord {
    guard let record = try takeRecords(body).first else {
        throw MLXBError(.panic, "a bug in the library: no model and no error")
    }
    return record
}
