//! Memory statistics and limits.

use super::{SizedStruct, guard, mlxb_error, mlxb_status, out, write_struct};
use crate::memory;

/// Bytes in use. Set struct_size, the library fills in the rest.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct mlxb_memory_stats {
    /// sizeof(mlxb_memory_stats).
    pub struct_size: usize,
    /// Weights, KV states and intermediate results.
    pub active_bytes: u64,
    /// The most that was active since the start; memory for weights and for other work counts
    /// with the most of each.
    pub peak_bytes: u64,
    /// Freed, but kept by MLX's allocator for reuse.
    pub cached_bytes: u64,
}

// SAFETY: repr(C), struct_size first, numbers only.
unsafe impl SizedStruct for mlxb_memory_stats {
    fn unset() -> Self {
        Self {
            struct_size: size_of::<Self>(),
            active_bytes: 0,
            peak_bytes: 0,
            cached_bytes: 0,
        }
    }
}

/// Tells how much memory the library uses in this process.
///
/// @param out    Filled in; its struct_size says how much of it.
/// @return MLXB_OK; MLXB_INVALID_ARGUMENT for NULL or a wrong struct_size; MLXB_UNSUPPORTED in
///         a forked process; MLXB_BACKEND. On a failure `out` is unchanged.
///
/// Thread: any; waits for the running step of the engine. Since 0.1.0.
///
/// # Safety
/// `out` is NULL or points to a struct of `struct_size` bytes; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_memory(
    out: *mut mlxb_memory_stats,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise.
    unsafe {
        guard(error, || {
            super::required(out, "out")?;
            let statistics = memory::statistics()?;
            let filled = mlxb_memory_stats {
                active_bytes: statistics.active_bytes,
                peak_bytes: statistics.peak_bytes,
                cached_bytes: statistics.cached_bytes,
                ..SizedStruct::unset()
            };
            write_struct(out, filled, "out")
        })
    }
}

/// Gives memory back that MLX's allocator keeps for reuse, when it keeps more than
/// `target_bytes`. Call it when the system warns of memory pressure.
///
/// @param freed_bytes    How much was given back; may be NULL.
/// @return MLXB_OK; MLXB_UNSUPPORTED in a forked process; MLXB_BACKEND.
///
/// Thread: any; waits for the running step of the engine. Since 0.1.0.
///
/// # Safety
/// `freed_bytes` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_memory_trim(
    target_bytes: u64,
    freed_bytes: *mut u64,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise.
    unsafe {
        guard(error, || {
            if freed_bytes.is_null() {
                memory::trim(target_bytes)?;
            } else {
                *out(freed_bytes, 0, "freed_bytes")? = memory::trim(target_bytes)?;
            }
            Ok(())
        })
    }
}

/// Sets what the library may use, for the whole process.
///
/// @param budget_bytes             Weights, KV states and intermediate results together; work
///                                 that would need more is refused with MLXB_OVER_BUDGET before
///                                 it starts. 0: the machine's memory, which is the default.
/// @param allocator_cache_bytes    What MLX's allocator may keep of freed memory for reuse;
///                                 268435456 by default.
/// @return MLXB_OK; MLXB_UNSUPPORTED in a forked process; MLXB_BACKEND. On a failure the limits
///         are as before.
///
/// Thread: any; waits for the running step of the engine. Since 0.1.0.
///
/// # Safety
/// `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_memory_limits_set(
    budget_bytes: u64,
    allocator_cache_bytes: u64,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise.
    unsafe {
        guard(error, || {
            memory::set_limits(budget_bytes, allocator_cache_bytes)
        })
    }
}
