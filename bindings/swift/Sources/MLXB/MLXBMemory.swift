import CMLXB

/// The memory that the library uses in this process.
///
/// ```swift
/// let source = DispatchSource.makeMemoryPressureSource(eventMask: .warning)
/// source.setEventHandler {
///     Task { try await MLXBMemory.trim() }
/// }
/// ```
public enum MLXBMemory {
    /// Bytes in use.
    public struct Statistics: Hashable, Sendable {
        /// Weights, KV states and intermediate results.
        public let activeBytes: Int

        /// The most that was active since the start; memory for weights and for other work counts
        /// with the most of each.
        public let peakBytes: Int

        /// Freed, but kept by MLX's allocator for reuse.
        public let cachedBytes: Int
    }

    /// How much memory the library uses. Waits for the running step of the engine.
    public static func statistics() async throws -> Statistics {
        try await onThread(named: "mlxb.memory") {
            var stats = MLXBMemoryStats()
            stats.struct_size = MemoryLayout<MLXBMemoryStats>.size
            try call { mlxbMemory(out: &stats, error: $0) }
            return Statistics(
                activeBytes: Int(clamping: stats.active_bytes),
                peakBytes: Int(clamping: stats.peak_bytes),
                cachedBytes: Int(clamping: stats.cached_bytes))
        }
    }

    /// Gives memory back that MLX's allocator keeps for reuse, when it keeps more than so many
    /// bytes; returns how much. ``PromptCache/trim(toMemoryBytes:)`` does the same for states.
    @discardableResult
    public static func trim(toBytes bytes: Int = 0) async throws -> Int {
        let target: UInt64 = try count(bytes, named: "bytes")
        return try await onThread(named: "mlxb.memory") {
            var freed: UInt64 = 0
            try call { mlxbMemoryTrim(target: target, freed: &freed, error: $0) }
            return Int(clamping: freed)
        }
    }

    /// Sets what the library may use, for the whole process.
    ///
    /// - Parameters:
    ///   - budgetBytes: Weights, KV states and intermediate results together; work that would need
    ///     more fails with `overBudget` before it starts. Nil: the machine's memory, which is the
    ///     default.
    ///   - allocatorCacheBytes: What MLX's allocator may keep of freed memory for reuse; 256 MiB by
    ///     default.
    public static func setLimits(
        budgetBytes: Int?, allocatorCacheBytes: Int = 256 << 20
    ) async throws {
        let budget: UInt64 = try count(budgetBytes ?? 0, named: "budgetBytes")
        guard budgetBytes != 0 else {
            throw MLXBError(.invalidArgument, "budgetBytes must be positive: 0")
        }
        let cache: UInt64 = try count(allocatorCacheBytes, named: "allocatorCacheBytes")
        try await onThread(named: "mlxb.memory") {
            try call {
                mlxbMemoryLimitsSet(budget: budget, allocatorCache: cache, error: $0)
            }
        }
    }
}
