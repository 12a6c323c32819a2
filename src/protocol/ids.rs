//! Names for what an answer is made of.

use std::hash::{BuildHasher as _, RandomState};

/// Makes names that no other answer uses.
#[derive(Clone, Debug)]
pub(crate) struct Ids {
    answer: u128,
    next: u32,
}

impl Ids {
    /// For a new answer.
    pub(crate) fn new() -> Self {
        // The standard library's hasher has random keys; the time sets processes apart that
        // were copied from one another.
        let half = |salt: u64| {
            let now = std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(0, |now| now.as_nanos());
            u128::from(RandomState::new().hash_one((salt, now)))
        };
        Self {
            answer: half(0) << 64 | half(1),
            next: 0,
        }
    }

    /// The same each time.
    #[cfg(test)]
    pub(crate) fn fixed() -> Self {
        Self { answer: 1, next: 0 }
    }

    /// The next name, which begins with `prefix`.
    pub(crate) fn next(&mut self, prefix: &str) -> String {
        let id = format!("{prefix}{:032x}{:04x}", self.answer, self.next);
        self.next = self.next.wrapping_add(1);
        id
    }
}
