//! What a cache has done.

use std::time::Duration;

/// The numbers of an app's settings page. Counts are since the cache was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStatistics {
    /// Entries in memory.
    pub entries: u64,
    /// Bytes of their states. What entries share counts once.
    pub memory_bytes: u64,
    /// Bytes that finding them takes.
    pub index_bytes: u64,
    /// Bytes of the states on disk, those of other models included.
    pub disk_bytes: u64,
    /// Files that they are in.
    pub disk_files: u64,
    /// States that wait to be written.
    pub pending_writes: u64,
    /// Look-ups that found something: takes, and generations.
    pub hits: u64,
    /// Look-ups that found nothing.
    pub misses: u64,
    /// Tokens that need not be run thanks to the hits.
    pub reused_tokens: u64,
    /// States read from disk.
    pub restores: u64,
    /// How long the last of these took.
    pub last_restore: Duration,
    /// States that left memory for others.
    pub evictions: u64,
    /// Larger states than the cache may hold, which went to disk at once, or nowhere.
    pub oversized: u64,
    /// States written to disk, in whole or the part that was new.
    pub writes: u64,
    /// Bytes of these.
    pub written_bytes: u64,
    /// Writes that were given up since too many waited.
    pub dropped_writes: u64,
    /// Writes that failed.
    pub failed_writes: u64,
}

/// The counts among them.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) evictions: u64,
    pub(super) oversized: u64,
    pub(super) writes: u64,
    pub(super) written_bytes: u64,
    pub(super) dropped_writes: u64,
    pub(super) failed_writes: u64,
    hits: u64,
    misses: u64,
    reused_tokens: u64,
    restores: u64,
    last_restore: Duration,
}

impl Counters {
    /// A look-up that found so many tokens.
    pub(super) fn found(&mut self, token_count: usize) {
        match token_count {
            0 => self.misses += 1,
            _ => self.hits += 1,
        }
        self.reused_tokens += token_count as u64;
    }

    pub(super) fn restored(&mut self, time: Duration) {
        self.restores += 1;
        self.last_restore = time;
    }

    pub(super) fn snapshot(&self) -> CacheStatistics {
        CacheStatistics {
            hits: self.hits,
            misses: self.misses,
            reused_tokens: self.reused_tokens,
            restores: self.restores,
            last_restore: self.last_restore,
            evictions: self.evictions,
            oversized: self.oversized,
            writes: self.writes,
            written_bytes: self.written_bytes,
            dropped_writes: self.dropped_writes,
            failed_writes: self.failed_writes,
            ..CacheStatistics::default()
        }
    }
}
