//! Making models smaller.

use std::{
    ffi::{c_char, c_void},
    ptr,
};

use super::{
    CBool, Callback, SizedStruct, array, guard, init_struct, mlxb_cancel, mlxb_error, mlxb_event,
    mlxb_event_fn, mlxb_event_kind, mlxb_status, optional_string, owned_string, path, read_struct,
    string, text, write_struct,
};
use crate::{
    cancel::Flow,
    error::{Error, Kind, Result},
    escape::Escaped,
    quantize::{
        FloatType, Matrices, Packings, QuantizationMode, QuantizationParameters, QuantizeOptions,
        Quantized, Recipe, quantize, report,
    },
};

/// What becomes of the matrices of a model.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum mlxb_quantize_mode {
    /// They stay as they are, plain or packed.
    MLXB_QUANTIZE_NONE = 0,
    /// Integers of 2, 3, 4, 5, 6 or 8 bits, with a scale and a bias for each 32, 64 or 128.
    MLXB_QUANTIZE_AFFINE = 1,
    /// 4-bit floats, with a power of two for each 32.
    MLXB_QUANTIZE_MXFP4 = 2,
    /// 8-bit floats, with a power of two for each 32.
    MLXB_QUANTIZE_MXFP8 = 3,
    /// 4-bit floats, with an 8-bit float for each 16.
    MLXB_QUANTIZE_NVFP4 = 4,
    /// Those that are packed become plain.
    MLXB_QUANTIZE_REVERSE = 5,
}

/// The type of numbers that are not packed.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum mlxb_dtype {
    /// What the model's configuration says, or else what each tensor has.
    MLXB_DTYPE_DEFAULT = 0,
    /// 32 bits.
    MLXB_DTYPE_FLOAT32 = 1,
    /// 16 bits, IEEE's.
    MLXB_DTYPE_FLOAT16 = 2,
    /// 16 bits, the upper half of 32.
    MLXB_DTYPE_BFLOAT16 = 3,
}

/// How to convert a model. Prepare it with mlxb_quantize_options_init, then set what you need.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct mlxb_quantize_options {
    /// sizeof(mlxb_quantize_options).
    pub struct_size: usize,
    /// One of mlxb_quantize_mode; MLXB_QUANTIZE_AFFINE unless set. Matrices that are packed
    /// already stay as they are, and so do those whose rows are no multiple of the group size.
    pub mode: i32,
    /// Bits of a weight; -1: the mode's own, 4 for MLXB_QUANTIZE_AFFINE.
    pub bits: i32,
    /// Weights that share a scale; -1: the mode's own, 64 for MLXB_QUANTIZE_AFFINE.
    pub group_size: i32,
    /// One of mlxb_dtype. Scales and biases have it too.
    pub dtype: i32,
    /// "mixed_2_6", "mixed_3_4", "mixed_3_6" or "mixed_4_6", with MLXB_QUANTIZE_AFFINE: few bits,
    /// and many for the head and for the value and down projections of some layers, as in
    /// mlx-lm. NULL: all alike.
    pub recipe: *const c_char,
    /// Single modules, NUL-terminated, such as "model.layers.0.mlp.down_proj": they come before
    /// the recipe. NULL with module_count 0.
    pub module_paths: *const *const c_char,
    /// For each, the bits; 0: it stays plain. NULL with module_count 0.
    pub module_bits: *const i32,
    /// For each, one of the modes with bits; NULL: as `mode`.
    pub module_modes: *const i32,
    /// For each, the group size; NULL or -1: as the others of its mode.
    pub module_group_sizes: *const i32,
    /// Modules at module_paths.
    pub module_count: usize,
    /// Bytes of weights in a file at most; -1: 5 GiB.
    pub max_shard_bytes: i64,
    /// Whether a model in the target's place is replaced, once the new one is complete.
    pub overwrite: CBool,
    /// Told MLXB_EVENT_QUANTIZE before each piece of work; MLXB_STOP ends with MLXB_CANCELLED. May
    /// be NULL.
    pub on_progress: mlxb_event_fn,
    /// Passed to on_progress.
    pub user_data: *mut c_void,
    /// Looked at before each piece of work. May be NULL.
    pub cancel: *const mlxb_cancel,
}

// SAFETY: repr(C), struct_size first, numbers, pointers, a CBool and a nullable function pointer.
unsafe impl SizedStruct for mlxb_quantize_options {
    fn unset() -> Self {
        Self {
            struct_size: size_of::<Self>(),
            mode: mlxb_quantize_mode::MLXB_QUANTIZE_AFFINE as i32,
            bits: -1,
            group_size: -1,
            dtype: mlxb_dtype::MLXB_DTYPE_DEFAULT as i32,
            recipe: ptr::null(),
            module_paths: ptr::null(),
            module_bits: ptr::null(),
            module_modes: ptr::null(),
            module_group_sizes: ptr::null(),
            module_count: 0,
            max_shard_bytes: -1,
            overwrite: CBool::FALSE,
            on_progress: None,
            user_data: ptr::null_mut(),
            cancel: ptr::null(),
        }
    }
}

/// What a conversion came to. Set struct_size, the library fills in the rest.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct mlxb_quantize_result {
    /// sizeof(mlxb_quantize_result).
    pub struct_size: usize,
    /// Bytes of all tensors.
    pub tensor_bytes: u64,
    /// The model's parameters; scales and biases of groups are none.
    pub parameter_count: u64,
    /// Matrices that are packed.
    pub packed_count: u64,
    /// Matrices that are plain.
    pub plain_count: u64,
    /// Bits that a parameter takes on average, scales and biases included.
    pub bits_per_weight: f64,
}

// SAFETY: repr(C), struct_size first, numbers only.
unsafe impl SizedStruct for mlxb_quantize_result {
    fn unset() -> Self {
        Self {
            struct_size: size_of::<Self>(),
            tensor_bytes: 0,
            parameter_count: 0,
            packed_count: 0,
            plain_count: 0,
            bits_per_weight: 0.0,
        }
    }
}

impl From<Quantized> for mlxb_quantize_result {
    fn from(quantized: Quantized) -> Self {
        Self {
            tensor_bytes: quantized.tensor_bytes,
            parameter_count: quantized.parameter_count,
            packed_count: quantized.packed_count as u64,
            plain_count: quantized.plain_count as u64,
            bits_per_weight: quantized.bits_per_weight(),
            ..SizedStruct::unset()
        }
    }
}

/// Sets all fields to "unset".
///
/// @param struct_size    sizeof(mlxb_quantize_options).
///
/// Thread: any. Since 0.1.0.
///
/// # Safety
/// `options` is NULL or writable for `struct_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_quantize_options_init(
    options: *mut mlxb_quantize_options,
    struct_size: usize,
) {
    // SAFETY: the caller's promise.
    unsafe { init_struct(options, struct_size) };
}

/// Makes a model smaller: from a folder of the Hugging Face hub, one for MLX, or a GGUF file of a
/// llama-like model, to a new folder for MLX. Tensors are those that mlx-lm's convert makes, bit
/// for bit. Takes the memory of a few rows, and lets generations of the same process go on.
///
/// However the call ends, and if the process ends before it, there is a complete model at
/// target_dir or what was there before.
///
/// @param source        A folder as in mlxb_model_load, or a file whose name ends with .gguf, with
///                      tensors of the types F32, F16, BF16, Q4_0, Q4_1 and Q8_0. The blocks of
///                      the last three are matrices that are packed already, without loss. The
///                      tokenizer is that of files beside it, or made from its metadata.
/// @param target_dir    The new folder. It must not exist, unless the options say otherwise; its
///                      parent must.
/// @param options       NULL for the defaults: 4 bits in groups of 64.
/// @param out           What it came to. May be NULL. All zero on a failure.
/// @return MLXB_OK; MLXB_INVALID_ARGUMENT, MLXB_INVALID_UTF8 or MLXB_VERSION_MISMATCH for the
///         arguments, a target that exists, or modules that are not there or cannot be packed as
///         asked; MLXB_NOT_FOUND without a source or the target's parent; MLXB_MODEL_FORMAT or
///         MLXB_CORRUPT for a source that is incomplete or contradicts itself, or a tensor with a
///         value that is no finite number or too large for its new type; MLXB_UNSUPPORTED for an
///         architecture or a setting that the library does not have, or in a forked process;
///         MLXB_NO_SPACE; MLXB_IO; MLXB_OUT_OF_MEMORY; MLXB_OVER_BUDGET; MLXB_CANCELLED;
///         MLXB_BACKEND. The message names the file, the tensor or the setting.
///
/// Thread: any. Since 0.1.0.
///
/// # Safety
/// `source` and `target_dir` are NULL or NUL-terminated; `options` is NULL or a struct of
/// struct_size bytes whose pointers are valid; `out` is NULL or a struct of struct_size bytes;
/// `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_quantize(
    source: *const c_char,
    target_dir: *const c_char,
    options: *const mlxb_quantize_options,
    out: *mut mlxb_quantize_result,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise, for all pointers.
    unsafe {
        guard(error, || {
            if !out.is_null() {
                write_struct(out, SizedStruct::unset(), "out")?;
            }
            let source = path(source, "source")?;
            let target = path(target_dir, "target_dir")?;
            let options = if options.is_null() {
                SizedStruct::unset()
            } else {
                read_struct(options, "options")?
            };
            let callback = Callback::new(options.on_progress, options.user_data);
            let mut on_progress = |done, total| tell(&callback, done, total);
            let mut converted = read_options(&options)?;
            converted.on_progress = Some(&mut on_progress);
            let quantized = quantize(source, target, converted)?;
            if !out.is_null() {
                write_struct(out, quantized.into(), "out")?;
            }
            Ok(())
        })
    }
}

/// Tells how far a model would be from itself after a conversion, as a whole and with each of its
/// layers converted alone. Writes nothing. Takes the memory of the model and of what it would
/// become, and runs the model once for each layer and each 128 tokens of the text.
///
/// The report is an object with "token_count", "divergence", "bits_per_weight" and "layers", an
/// array of objects with "path" (such as "model.layers.0"), "divergence", "bits_per_weight" and
/// "parameter_count". A divergence is the Kullback-Leibler divergence of the distribution over
/// the next token from that of the source, in nats, on average over the text's tokens. The text
/// is run in windows of 128 tokens, each by itself.
///
/// @param source         As in mlxb_quantize; the tokenizer must lie beside a file.
/// @param options        As in mlxb_quantize, with a mode that packs; what is said of the target
///                       means nothing. NULL for the defaults.
/// @param text_ptr       UTF-8, with tokens; such text as the model is used for.
/// @param text_len       Its bytes.
/// @param report_json    The report, NUL-terminated; NULL on a failure.
/// @return As mlxb_quantize, but for what concerns the target.
///
/// Ownership: free `*report_json` with mlxb_string_free. Thread: any. Since 0.1.0.
///
/// # Safety
/// `source` is NULL or NUL-terminated; `options` is NULL or a struct of struct_size bytes whose
/// pointers are valid; `text_ptr` is readable for `text_len` bytes; `report_json` and `error` are
/// NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_quantize_report(
    source: *const c_char,
    options: *const mlxb_quantize_options,
    text_ptr: *const c_char,
    text_len: usize,
    report_json: *mut *mut c_char,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise, for all pointers.
    unsafe {
        guard(error, || {
            let out = super::out(report_json, ptr::null_mut(), "report_json")?;
            let source = path(source, "source")?;
            let text = text(text_ptr, text_len, "text")?;
            let options = if options.is_null() {
                SizedStruct::unset()
            } else {
                read_struct(options, "options")?
            };
            let callback = Callback::new(options.on_progress, options.user_data);
            let mut on_progress = |done, total| tell(&callback, done, total);
            let mut asked = read_options(&options)?;
            asked.on_progress = Some(&mut on_progress);
            *out = owned_string(report(source, text, asked)?.to_json().to_string());
            Ok(())
        })
    }
}

fn tell(callback: &Callback, done: u64, total: u64) -> Flow {
    callback.tell(&mlxb_event {
        done,
        total,
        ..mlxb_event::new(mlxb_event_kind::MLXB_EVENT_QUANTIZE)
    })
}

fn refuse(field: &str, what: &str, value: impl std::fmt::Display) -> Error {
    Error::new(
        Kind::InvalidArgument,
        format!("options.{field} {what}: {value}"),
    )
}

/// # Safety
/// The pointers in `options` are valid.
unsafe fn read_options<'a>(options: &mlxb_quantize_options) -> Result<QuantizeOptions<'a>> {
    // SAFETY: the caller's promise.
    let matrices = unsafe { read_matrices(options) }?;
    let mut read = QuantizeOptions::new(matrices);
    read.dtype = match options.dtype {
        0 => None,
        1 => Some(FloatType::Float32),
        2 => Some(FloatType::Float16),
        3 => Some(FloatType::Bfloat16),
        other => return Err(refuse("dtype", "is no type", other)),
    };
    if options.max_shard_bytes != -1 {
        let most = u64::try_from(options.max_shard_bytes)
            .ok()
            .filter(|&most| most > 0);
        read.most_shard_bytes = most.ok_or_else(|| {
            refuse(
                "max_shard_bytes",
                "must be positive or -1",
                options.max_shard_bytes,
            )
        })?;
    }
    read.overwrite = options.overwrite.get();
    // SAFETY: the caller's promise.
    read.cancel = unsafe { options.cancel.as_ref() }.map(|cancel| cancel.0.clone());
    Ok(read)
}

/// # Safety
/// The pointers in `options` are valid.
unsafe fn read_matrices(options: &mlxb_quantize_options) -> Result<Matrices> {
    let mode = match options.mode {
        0 | 5 => None,
        number => Some(mode(number).ok_or_else(|| refuse("mode", "is no mode", number))?),
    };
    let Some(mode) = mode else {
        let asked = [
            ("bits", options.bits != -1),
            ("group_size", options.group_size != -1),
            ("recipe", !options.recipe.is_null()),
            ("module_count", options.module_count != 0),
        ];
        if let Some((field, _)) = asked.iter().find(|(_, is_set)| *is_set) {
            return Err(refuse(field, "does not go with the mode", options.mode));
        }
        return Ok(match options.mode {
            0 => Matrices::Keep,
            _ => Matrices::Dequantize,
        });
    };
    let default = parameters(mode, options.bits, options.group_size)?;
    // SAFETY: the caller's promise.
    let recipe = match unsafe { optional_string(options.recipe, "options.recipe") }? {
        None => None,
        Some(_) if options.bits != -1 => {
            return Err(refuse("bits", "does not go with a recipe", options.bits));
        }
        Some(_) if mode != QuantizationMode::Affine => {
            return Err(refuse("recipe", "does not go with the mode", mode.name()));
        }
        Some(name) => Some(
            Recipe::from_name(name)
                .ok_or_else(|| refuse("recipe", "is no recipe", Escaped(name)))?,
        ),
    };
    Ok(Matrices::Quantize(Packings {
        default,
        recipe,
        // SAFETY: the caller's promise.
        modules: unsafe { read_modules(options, default) }?,
    }))
}

/// # Safety
/// The pointers in `options` are valid.
unsafe fn read_modules(
    options: &mlxb_quantize_options,
    default: QuantizationParameters,
) -> Result<Vec<(String, Option<QuantizationParameters>)>> {
    let count = options.module_count;
    // SAFETY: the caller's promise.
    let (paths, bits) = unsafe {
        (
            array(options.module_paths, count, "options.module_paths")?,
            array(options.module_bits, count, "options.module_bits")?,
        )
    };
    let optional = |pointer: *const i32, name: &str| -> Result<Option<&[i32]>> {
        if pointer.is_null() {
            return Ok(None);
        }
        // SAFETY: the caller's promise.
        unsafe { array(pointer, count, name) }.map(Some)
    };
    let modes = optional(options.module_modes, "options.module_modes")?;
    let group_sizes = optional(options.module_group_sizes, "options.module_group_sizes")?;
    let mut modules = Vec::with_capacity(count);
    for (index, (&path, &bits)) in paths.iter().zip(bits).enumerate() {
        // SAFETY: the caller's promise.
        let path = unsafe { string(path, "options.module_paths") }?;
        if bits == 0 {
            modules.push((path.to_owned(), None));
            continue;
        }
        let mode = match modes {
            None => default.mode(),
            Some(modes) => mode(modes[index])
                .ok_or_else(|| refuse("module_modes", "is no mode with bits", modes[index]))?,
        };
        let group_size = match group_sizes.map_or(-1, |sizes| sizes[index]) {
            -1 if mode == default.mode() => default.group_size() as i32,
            size => size,
        };
        modules.push((path.to_owned(), Some(parameters(mode, bits, group_size)?)));
    }
    Ok(modules)
}

fn mode(number: i32) -> Option<QuantizationMode> {
    Some(match number {
        1 => QuantizationMode::Affine,
        2 => QuantizationMode::Mxfp4,
        3 => QuantizationMode::Mxfp8,
        4 => QuantizationMode::Nvfp4,
        _ => return None,
    })
}

/// Bits and group size for a mode, -1 for its own.
fn parameters(
    mode: QuantizationMode,
    bits: i32,
    group_size: i32,
) -> Result<QuantizationParameters> {
    let (own_bits, own_group_size) = mode.defaults();
    let or_own = |value: i32, own| match value {
        -1 => own,
        value => usize::try_from(value).unwrap_or(0),
    };
    let given = |value: i32, own| {
        if value == -1 {
            own as i64
        } else {
            value.into()
        }
    };
    QuantizationParameters::new(
        mode,
        or_own(bits, own_bits),
        or_own(group_size, own_group_size),
    )
    .ok_or_else(|| {
        let what = format!(
            "no weights of the mode {} have these bits and group size",
            mode.name()
        );
        let (bits, group_size) = (given(bits, own_bits), given(group_size, own_group_size));
        Error::new(
            Kind::InvalidArgument,
            format!("{what}: {bits}, {group_size}"),
        )
    })
}
