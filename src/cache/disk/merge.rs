//! Keeping chains short.
//!
//! Each turn of a conversation adds a file, and a restore opens them all. When a chain has
//! become long, the next file does not continue its end but an earlier place, and holds again
//! what the files behind that place held; those go. What others continue stays where it is.

use std::sync::Arc;

use super::segment::Segment;

/// As many files as a process may well have open at once beside everything else.
pub(super) const LONGEST_CHAIN: usize = 64;
/// With fewer, one merge would follow the other.
const FEWEST_MERGED: usize = 16;

/// The first of the files of a chain that the next one, which ends at `end`, is to hold again: of
/// all tails of the chain that with the fewest tokens to write for each file less. The chain's
/// length for none.
pub(super) fn first_replaced(chain: &[Arc<Segment>], end: usize) -> usize {
    let length = chain.len();
    if length < LONGEST_CHAIN {
        return length;
    }
    let cost = |first: usize| (end - chain[first].start) as f64 / (length - first) as f64;
    (0..=length - FEWEST_MERGED)
        .min_by(|&a, &b| cost(a).total_cmp(&cost(b)))
        .unwrap_or(length)
}
