//! Memory: what MLX uses, the budget, and what a piece of work would need.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{
    engine::{adopted_bytes, engine},
    error::{Error, Kind, Result},
};

/// Bytes in use, as MLX and the library count them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStatistics {
    /// Weights, KV states and intermediate results.
    pub active_bytes: u64,
    /// The most that was active since the start.
    pub peak_bytes: u64,
    /// Freed, but kept by MLX's allocator for reuse.
    pub cached_bytes: u64,
}

/// 0: the machine's memory.
static BUDGET: AtomicU64 = AtomicU64::new(0);

/// What is in use now. Starts the engine where it has not run yet.
///
/// # Errors
/// Those of starting the engine.
pub fn statistics() -> Result<MemoryStatistics> {
    engine()?.run(|_| {
        Ok(MemoryStatistics {
            active_bytes: mlx_rs::memory::active_memory()? as u64 + adopted_bytes(),
            peak_bytes: mlx_rs::memory::peak_memory()? as u64 + adopted_bytes(),
            cached_bytes: mlx_rs::memory::cache_memory()? as u64,
        })
    })?
}

/// Gives back what MLX's allocator keeps when that is more than `target_bytes`; returns how
/// much was freed.
///
/// # Errors
/// Those of starting the engine.
pub fn trim(target_bytes: u64) -> Result<u64> {
    engine()?.run(move |_| {
        let before = mlx_rs::memory::cache_memory()? as u64;
        if before > target_bytes {
            mlx_rs::memory::clear_cache()?;
        }
        let after = mlx_rs::memory::cache_memory()? as u64;
        Ok(before.saturating_sub(after))
    })?
}

/// Sets how many bytes may be in use at all (0: the machine's memory), and how many MLX's
/// allocator may keep for reuse. For the whole process, from the next piece of work on.
///
/// # Errors
/// Those of starting the engine.
pub fn set_limits(budget_bytes: u64, allocator_cache_bytes: u64) -> Result<()> {
    let cache = usize::try_from(allocator_cache_bytes).unwrap_or(usize::MAX);
    engine()?.run(move |_| mlx_rs::memory::set_cache_limit(cache))??;
    BUDGET.store(budget_bytes, Ordering::Relaxed);
    Ok(())
}

/// Refuses work that would take more than the budget, before anything runs: MLX itself fails
/// by crashing.
///
/// # Errors
/// [`Kind::OverBudget`] naming the need and the budget.
pub(crate) fn admit(what: &str, need_bytes: u64) -> Result<()> {
    let budget = match BUDGET.load(Ordering::Relaxed) {
        0 => physical_bytes(),
        budget => budget,
    };
    let active = mlx_rs::memory::active_memory()? as u64 + adopted_bytes();
    let need = active.saturating_add(need_bytes);
    if need <= budget {
        return Ok(());
    }
    Err(Error::new(
        Kind::OverBudget,
        format!(
            "{what} needs {need_bytes} bytes beside the {active} in use, over the budget of {budget}"
        ),
    ))
}

fn physical_bytes() -> u64 {
    // SAFETY: sysconf takes a constant and touches no memory of ours.
    let (pages, page) = unsafe {
        (
            libc::sysconf(libc::_SC_PHYS_PAGES),
            libc::sysconf(libc::_SC_PAGESIZE),
        )
    };
    match (u64::try_from(pages), u64::try_from(page)) {
        (Ok(pages), Ok(page)) => pages.saturating_mul(page),
        // Unknown: nothing is refused.
        _ => u64::MAX,
    }
}
