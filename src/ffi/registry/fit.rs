//! Whether a model fits into memory.

use std::ffi::c_char;

use crate::{
    error::{Error, Kind, Result},
    ffi::{
        SizedStruct, guard, init_struct, mlxb_error, mlxb_status, path, read_struct, required,
        write_struct,
    },
    registry::{FitOptions, fit},
};

/// What mlxb_registry_fit estimates. Make it with mlxb_fit_options_init.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct mlxb_fit_options {
    /// sizeof(mlxb_fit_options).
    pub struct_size: usize,
    /// The memory that there is; UINT64_MAX: no limit.
    pub budget_bytes: u64,
    /// Tokens of prompt and answer together; -1: none.
    pub context_tokens: i64,
    /// Prompt tokens that are run at once; -1: as mlxb_generate does by default.
    pub prefill_chunk: i32,
    /// Bits of a quantized KV state: 2, 3, 4, 5, 6 or 8; 0 or -1: a plain one.
    pub kv_bits: i32,
    /// Numbers of the KV state that share a scale: 32, 64 or 128; -1: 64.
    pub kv_group_size: i32,
}

// SAFETY: repr(C), struct_size first, numbers only.
unsafe impl SizedStruct for mlxb_fit_options {
    fn unset() -> Self {
        Self {
            struct_size: size_of::<Self>(),
            budget_bytes: u64::MAX,
            context_tokens: -1,
            prefill_chunk: -1,
            kv_bits: -1,
            kv_group_size: -1,
        }
    }
}

/// An estimate of what a model takes. Set struct_size, the library fills in the rest.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct mlxb_fit {
    /// sizeof(mlxb_fit).
    pub struct_size: usize,
    /// Whether total_bytes is within the budget, and the context within the model's.
    pub fits: bool,
    /// Bytes of the weights.
    pub weight_bytes: u64,
    /// Bytes of the KV state of context_tokens.
    pub kv_bytes: u64,
    /// Bytes that a prefill chunk takes on top.
    pub transient_bytes: u64,
    /// All of these.
    pub total_bytes: u64,
    /// The largest context that fits the budget and the model; 0 when none does.
    pub max_context_tokens: u64,
    /// The largest context that the model is made for; 0 when its config does not say.
    pub model_context_tokens: u64,
    /// Bytes of weights that one decoded token reads: of experts, only those in use.
    pub active_bytes_per_token: u64,
}

// SAFETY: repr(C), struct_size first. It has a bool, so it is only ever written to C, never read
// from there.
unsafe impl SizedStruct for mlxb_fit {
    fn unset() -> Self {
        Self {
            struct_size: size_of::<Self>(),
            fits: false,
            weight_bytes: 0,
            kv_bytes: 0,
            transient_bytes: 0,
            total_bytes: 0,
            max_context_tokens: 0,
            model_context_tokens: 0,
            active_bytes_per_token: 0,
        }
    }
}

/// Makes all options unset.
///
/// @param struct_size    sizeof(mlxb_fit_options).
///
/// Thread: any. Since 0.1.0.
///
/// # Safety
/// `options` is NULL or points to `struct_size` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_fit_options_init(options: *mut mlxb_fit_options, struct_size: usize) {
    // SAFETY: the caller's promise.
    unsafe { init_struct(options, struct_size) };
}

/// Estimates whether a model with a context fits into memory, from its config and the headers
/// of its weight files: weights, KV state by the kinds of its layers, and what a prefill chunk
/// takes.
///
/// @param snapshot_dir   The model's folder.
/// @param options        NULL: no context and no limit.
/// @param out            Filled in; its struct_size says how much of it.
/// @return MLXB_OK, whether it fits or not; MLXB_INVALID_ARGUMENT; MLXB_INVALID_UTF8;
///         MLXB_VERSION_MISMATCH; MLXB_NOT_FOUND; MLXB_IO; MLXB_MODEL_FORMAT when the folder is
///         incomplete or its config does not tell the sizes that are needed; MLXB_CORRUPT. On a
///         failure `out` is unchanged.
///
/// Thread: any. Since 0.1.0.
///
/// # Safety
/// `snapshot_dir` is NULL or NUL-terminated; `options` and `out` are NULL or point to structs of
/// their struct_size; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_registry_fit(
    snapshot_dir: *const c_char,
    options: *const mlxb_fit_options,
    out: *mut mlxb_fit,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise, for all pointers.
    unsafe {
        guard(error, || {
            required(out, "out")?;
            let folder = path(snapshot_dir, "snapshot_dir")?;
            let options = if options.is_null() {
                mlxb_fit_options::unset()
            } else {
                read_struct(options, "options")?
            };
            let fit = fit(folder, &fit_options(&options)?)?;
            let filled = mlxb_fit {
                fits: fit.fits,
                weight_bytes: fit.weight_bytes,
                kv_bytes: fit.kv_bytes,
                transient_bytes: fit.transient_bytes,
                total_bytes: fit.total_bytes,
                max_context_tokens: fit.max_context_tokens,
                model_context_tokens: fit.model_context_tokens.unwrap_or(0),
                active_bytes_per_token: fit.active_bytes_per_token,
                ..SizedStruct::unset()
            };
            write_struct(out, filled, "out")
        })
    }
}

fn fit_options(options: &mlxb_fit_options) -> Result<FitOptions> {
    let unset = FitOptions::default();
    let number = |value: i64, unset: u64, name: &str| match value {
        -1 => Ok(unset),
        value => u64::try_from(value).map_err(|_| {
            Error::new(
                Kind::InvalidArgument,
                format!("options.{name} is negative: {value}"),
            )
        }),
    };
    let small = |value: i32, unset: u64, name: &str| {
        number(value.into(), unset, name).map(|value| u32::try_from(value).unwrap_or(u32::MAX))
    };
    let bits = small(options.kv_bits, 0, "kv_bits")?;
    let group_size = small(options.kv_group_size, 64, "kv_group_size")?;
    Ok(FitOptions {
        budget_bytes: options.budget_bytes,
        context_tokens: number(
            options.context_tokens,
            unset.context_tokens,
            "context_tokens",
        )?,
        prefill_chunk: number(
            options.prefill_chunk.into(),
            unset.prefill_chunk,
            "prefill_chunk",
        )?,
        kv_quantization: (bits > 0).then_some((bits, group_size)),
    })
}
