import CMLXB
import Foundation

/// States of conversations, in memory and on disk, so that what a model has read once need not be
/// read again: not in the next turn, and with a folder not after the app was restarted.
///
/// Set it in ``GenerateOptions/cache``. One cache and one folder serve any number of models, whose
/// states never mix. All of it may be used from several tasks at once.
///
/// What is not on disk yet is written when the last reference to the cache is gone, which may
/// take a while: call ``flush()`` before the app ends.
public final class PromptCache: Sendable {
    /// Any thread may use it until it is closed, which `deinit` does.
    nonisolated(unsafe) let handle: OpaquePointer

    /// Opens a cache, and its folder.
    ///
    /// - Throws: ``MLXBError``: `invalidArgument` for options that make no sense, `io` and the
    ///   like for a folder that cannot be used.
    public init(_ options: Options = Options()) throws {
        var opened: OpaquePointer?
        try options.withC { options in
            try call { mlxbCacheOpen(&options, out: &opened, error: $0) }
        }
        guard let opened else {
            throw MLXBError(.panic, "the cache was not opened")
        }
        handle = opened
    }

    deinit {
        mlxbCacheClose(handle)
    }

    /// Returns when everything that is to be on disk is there.
    ///
    /// - Throws: ``MLXBError`` for what could not be written: `noSpace`, `io`. Everything else is.
    public func flush() async throws {
        try await onThread(named: "mlxb.cache") {
            try call { mlxbCacheFlush(self.handle, error: $0) }
        }
    }

    /// Brings the states in memory down to so many bytes, and returns when what left memory is on
    /// disk: how many bytes they were. For when the system warns of memory pressure.
    ///
    /// - Throws: As ``flush()``; the memory is free nevertheless.
    @discardableResult
    public func trim(toMemoryBytes bytes: Int) async throws -> Int {
        let bytes: UInt64 = try count(bytes, named: "bytes")
        return try await onThread(named: "mlxb.cache") {
            var freed: UInt64 = 0
            try call {
                mlxbCacheTrim(self.handle, memoryBytes: bytes, freed: &freed, error: $0)
            }
            return Int(clamping: freed)
        }
    }

    /// Forgets all states in memory, and the conversations of
    /// ``Model/respond(to:as:cache:cacheNamespace:)``. What is on disk stays.
    public func clear() throws {
        try call { mlxbCacheClear(handle, error: $0) }
    }

    /// Removes all states on disk, those of other models too; returns how many bytes they were.
    @discardableResult
    public func clearDisk() async throws -> Int {
        try await onThread(named: "mlxb.cache") {
            var freed: UInt64 = 0
            try call { mlxbCacheClearDisk(self.handle, freed: &freed, error: $0) }
            return Int(clamping: freed)
        }
    }

    /// What the cache holds and has done: the numbers of a settings page.
    public func statistics() throws -> Statistics {
        var stats = MLXBCacheStats()
        stats.struct_size = MemoryLayout<MLXBCacheStats>.size
        try call { mlxbCacheStatsGet(handle, out: &stats, error: $0) }
        return Statistics(stats)
    }
}

extension PromptCache: Hashable {
    /// Whether they are one cache.
    public static func == (one: PromptCache, other: PromptCache) -> Bool {
        one === other
    }

    public func hash(into hasher: inout Hasher) {
        hasher.combine(ObjectIdentifier(self))
    }
}

extension PromptCache {
    /// How to open a cache. What is nil is left to the library.
    public struct Options: Hashable, Sendable {
        /// Bytes of states to keep in memory; nil: 2 GiB. A larger state goes to disk at once.
        public var memoryBytes: Int?

        /// The folder for states on disk, which is made where there is none; nil: none is kept.
        /// An app's caches folder is a good place for one.
        public var folder: URL?

        /// Bytes that everything in the folder may take; nil: 16 GiB. The least recently used
        /// states go first.
        public var diskBytes: Int?

        /// Whether what is read from disk is checked against its checksums.
        public var verifies = true

        /// Without use for so long, a state goes from memory to disk; nil: ten minutes.
        public var idleAfter: Duration?

        /// Leaves everything to the library that is not given here or set afterwards.
        public init(memoryBytes: Int? = nil, folder: URL? = nil, diskBytes: Int? = nil) {
            self.memoryBytes = memoryBytes
            self.folder = folder
            self.diskBytes = diskBytes
        }

        fileprivate func withC<Result>(
            _ body: (inout MLXBCacheOptions) throws -> Result
        ) throws -> Result {
            var options = MLXBCacheOptions()
            mlxbCacheOptionsInit(&options, size: MemoryLayout<MLXBCacheOptions>.size)
            try set(&options.memory_bytes, to: memoryBytes, named: "memoryBytes")
            try set(&options.disk_bytes, to: diskBytes, named: "diskBytes")
            options.verify = verifies ? 1 : 0
            if let idleAfter {
                let (seconds, attoseconds) = idleAfter.components
                options.idle_seconds = Double(seconds) + Double(attoseconds) * 1e-18
            }
            return try withOptionalPath(folder, named: "folder") { path in
                options.disk_dir = path
                return try body(&options)
            }
        }
    }

    /// What a cache holds and has done. Counts are since it was opened.
    public struct Statistics: Hashable, Sendable {
        /// States in memory.
        public let entryCount: Int

        /// Their bytes. What states share counts once.
        public let memoryBytes: Int

        /// Bytes of the states on disk, those of other models included.
        public let diskBytes: Int

        /// Generations that found something.
        public let hitCount: Int

        /// Generations that found nothing.
        public let missCount: Int

        /// Tokens that needed not be run thanks to the hits.
        public let reusedTokenCount: Int

        /// States read from disk.
        public let restoreCount: Int

        /// How long the last of these took.
        public let lastRestoreDuration: Duration

        /// Bytes written to disk.
        public let writtenBytes: Int

        /// Writes that failed or were given up.
        public let lostWriteCount: Int

        init(_ stats: MLXBCacheStats) {
            entryCount = Int(clamping: stats.entries)
            memoryBytes = Int(clamping: stats.memory_bytes)
            diskBytes = Int(clamping: stats.disk_bytes)
            hitCount = Int(clamping: stats.hits)
            missCount = Int(clamping: stats.misses)
            reusedTokenCount = Int(clamping: stats.reused_tokens)
            restoreCount = Int(clamping: stats.restores)
            lastRestoreDuration = .seconds(stats.last_restore_seconds)
            writtenBytes = Int(clamping: stats.written_bytes)
            lostWriteCount = Int(clamping: stats.failed_writes) + Int(clamping: stats.dropped_writes)
        }
    }
}
