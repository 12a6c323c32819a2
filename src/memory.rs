//! Memory: what MLX uses, the budget, and what a piece of work would need.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{
    engine::{Mlx, adopted_bytes, adopted_peak_bytes, engine},
    error::{Error, Kind, Result},
    footprint::Need,
};

/// Bytes in use, as MLX and the library count them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStatistics {
    /// Weights, KV states and intermediate results.
    pub active_bytes: u64,
    /// The most that was active since the start; memory for weights and for other work counts
    /// with the most of each.
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
            peak_bytes: mlx_rs::memory::peak_memory()? as u64 + adopted_peak_bytes(),
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

/// What admitted work will still take, by the number of its admission.
static EXPECTED: Mutex<BTreeMap<u64, Need>> = Mutex::new(BTreeMap::new());

fn expected() -> MutexGuard<'static, BTreeMap<u64, Need>> {
    EXPECTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Room in the budget for a piece of work, until it is dropped.
#[derive(Debug)]
pub(crate) struct Admission {
    number: u64,
    lasting_bytes: u64,
}

impl Admission {
    /// Says how much of the lasting bytes is in use by now, so that it is not counted twice.
    pub(crate) fn has_grown_to(&self, bytes: u64) {
        if let Some(need) = expected().get_mut(&self.number) {
            need.lasting_bytes = self.lasting_bytes.saturating_sub(bytes);
        }
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        expected().remove(&self.number);
    }
}

/// Refuses work that would take more than the budget, before anything of it runs: MLX itself
/// fails by crashing. Between two steps what is in use holds no intermediate results.
///
/// # Errors
/// [`Kind::OverBudget`] naming the need and the budget.
pub(crate) fn admit(what: &str, need: Need, _: &Mlx) -> Result<Admission> {
    static NUMBERS: AtomicU64 = AtomicU64::new(0);
    let active = mlx_rs::memory::active_memory()? as u64 + adopted_bytes();
    let budget = match BUDGET.load(Ordering::Relaxed) {
        0 => physical_bytes(),
        budget => budget,
    };
    let mut expected = expected();
    check(what, need, active, expected.values().copied(), budget)?;
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    expected.insert(number, need);
    Ok(Admission {
        number,
        lasting_bytes: need.lasting_bytes,
    })
}

/// Whether `need` fits beside what is active and what others were promised.
fn check(
    what: &str,
    need: Need,
    active: u64,
    others: impl Iterator<Item = Need>,
    budget: u64,
) -> Result<()> {
    let promised = others.fold(Need::default(), Need::beside);
    let taken = active.saturating_add(promised.lasting_bytes);
    if taken.saturating_add(promised.beside(need).total() - promised.lasting_bytes) <= budget {
        return Ok(());
    }
    Err(Error::new(
        Kind::OverBudget,
        format!(
            "{what} needs {} bytes beside the {taken} in use or promised to others, over the budget of {budget}",
            need.total(),
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

#[cfg(test)]
mod tests {
    use super::*;

    const fn need(lasting_bytes: u64, step_bytes: u64) -> Need {
        Need {
            lasting_bytes,
            step_bytes,
        }
    }

    #[test]
    fn work_fits_when_all_lasting_needs_and_the_largest_step_do() {
        for (mine, active, others, budget, fits) in [
            (need(0, 0), 100, &[][..], 100, true),
            (need(60, 40), 0, &[], 100, true),
            (need(60, 41), 0, &[], 100, false),
            (need(10, 0), 91, &[], 100, false),
            // Others' lasting needs add up, of the steps the largest counts.
            (need(10, 20), 40, &[need(20, 30)], 100, true),
            (need(10, 20), 40, &[need(20, 31)], 100, false),
            (need(10, 40), 30, &[need(10, 30), need(10, 5)], 100, true),
            (need(10, 41), 30, &[need(10, 30), need(10, 5)], 100, false),
            (
                need(u64::MAX, u64::MAX),
                u64::MAX,
                &[need(1, 1)],
                100,
                false,
            ),
            (need(u64::MAX, 7), 7, &[need(1, 1)], u64::MAX, true),
        ] {
            let outcome = check("it", mine, active, others.iter().copied(), budget);
            assert_eq!(
                outcome.is_ok(),
                fits,
                "{mine:?} {active} {others:?} {budget}"
            );
        }
        assert_eq!(
            check(
                "the request",
                need(60, 7),
                40,
                [need(5, 9)].into_iter(),
                100
            )
            .unwrap_err()
            .message(),
            "the request needs 67 bytes beside the 45 in use or promised to others, over the budget of 100"
        );
    }
}
