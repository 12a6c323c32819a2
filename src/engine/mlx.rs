//! The edge to MLX: how the engine thread prepares it, and the operations that mlx-rs lacks.
//! The one file with raw mlx-sys calls.

use std::{
    cell::RefCell,
    ffi::{CStr, c_char, c_int, c_void},
    marker::PhantomData,
    ptr, slice,
};

use mlx_rs::{Array, Dtype, Stream, error::Exception};

use super::pages::Pages;
use crate::error::{Error, Kind, Result};

/// Proof of being on the engine thread, where alone MLX may be used.
pub(crate) struct Mlx {
    only_here: PhantomData<*const ()>,
}

/// The result of an MLX operation.
pub(crate) type MlxResult<T = Array> = std::result::Result<T, Exception>;

impl From<Exception> for Error {
    fn from(exception: Exception) -> Self {
        Self::new(Kind::Backend, format!("mlx: {}", exception.what()))
    }
}

/// Where a model computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceKind {
    /// The GPU where MLX has one, else the CPU.
    #[default]
    Default,
    /// The CPU.
    Cpu,
}

/// What MLX may keep of freed memory for reuse, unless the host says otherwise. Without a limit
/// it grows to whatever the peak was, inside an app that wants the memory for other things.
pub(crate) const DEFAULT_ALLOCATOR_CACHE: usize = 256 << 20;

impl Mlx {
    /// Prepares MLX on the calling thread, which thereby is the engine's.
    pub(super) fn prepare() -> Result<Self> {
        // On a CPU MLX compiles fused functions by running a shell and a compiler, and loads the
        // outcome from a predictable folder. No app wants that.
        // SAFETY: takes no arguments.
        unsafe { mlx_sys::mlx_disable_compile() };
        // The first operation has mlx-rs install its error handler; ours goes in front of it.
        // Never mlx-c's own: it prints, and exits the process.
        mlx_rs::memory::set_cache_limit(DEFAULT_ALLOCATOR_CACHE)?;
        // SAFETY: the handler is a plain function and needs no data.
        unsafe { mlx_sys::mlx_set_error_handler(Some(keep_error), ptr::null_mut(), None) };
        Ok(Self {
            only_here: PhantomData,
        })
    }

    /// Called when the first task comes: keeps the GPU's memory resident while there is work, as
    /// mlx-lm does.
    pub(super) fn work(&self) {
        if HAS_GPU && let Err(error) = wire(recommended_bytes()) {
            log::warn!("cannot keep memory resident: {error}");
        }
    }

    /// Called when the last task has gone: an app that does not generate may be paged out.
    pub(super) fn rest(&self) {
        if HAS_GPU {
            // What is in flight must not lose its residency.
            self.finish();
            if let Err(error) = wire(0) {
                log::warn!("cannot give up resident memory: {error}");
            }
        }
    }

    /// Waits for what is in flight, as when the engine stops.
    pub(super) fn finish(&self) {
        // SAFETY: takes no arguments.
        unsafe { mlx_sys::mlx_synchronize_default() };
    }

    /// Runs `work` with `device` as the place of every operation that names none.
    pub(crate) fn on<T>(&self, device: DeviceKind, work: impl FnOnce() -> T) -> T {
        match device {
            DeviceKind::Default => work(),
            DeviceKind::Cpu if !HAS_GPU => work(),
            DeviceKind::Cpu => mlx_rs::with_stream(&Stream::cpu(), work),
        }
    }

    /// An array over `pages`, without a copy. `shape` and `dtype` make up exactly their length.
    pub(crate) fn adopt(&self, mut pages: Pages, shape: &[i32], dtype: Dtype) -> MlxResult {
        let block = pages.block();
        let payload = pages.into_payload();
        // SAFETY: the block is laid out as MLX's allocator does, stays at its address inside the
        // payload, and is released once, by MLX.
        let array = unsafe {
            adopt_block(
                block,
                shape.as_ptr(),
                shape.len() as c_int,
                dtype.into(),
                payload,
                Some(Pages::release),
            )
        };
        if array.ctx.is_null() {
            // SAFETY: MLX made no array, so it has not taken the payload.
            unsafe { Pages::release(payload) };
            return Err(take_error());
        }
        // SAFETY: a new array that nobody else owns.
        Ok(unsafe { Array::from_ptr(array) })
    }

    /// An array with a copy of `bytes`. `shape` and `dtype` make up exactly their length.
    pub(crate) fn copy(&self, bytes: &[u8], shape: &[i32], dtype: Dtype) -> Array {
        // SAFETY: MLX copies as many bytes as the shape says, and they are there.
        unsafe { Array::from_raw_data(bytes.as_ptr().cast(), shape, dtype) }
    }
}

/// Whether MLX was built with a GPU backend.
const HAS_GPU: bool = cfg!(target_os = "macos");

/// Sets how much memory the GPU may keep resident. Systems before macOS 15 ignore it.
fn wire(bytes: usize) -> MlxResult<()> {
    mlx_rs::memory::set_wired_limit(bytes).map(|_| ())
}

/// What the system recommends to keep resident at most; 0 where it does not say.
fn recommended_bytes() -> usize {
    let mut bytes = 0;
    // SAFETY: the handles are made, used and freed here; the key is NUL-terminated; a failing
    // call leaves `bytes` as it is.
    unsafe {
        let mut device = mlx_sys::mlx_device_new();
        let mut info = mlx_sys::mlx_device_info_new();
        let found = mlx_sys::mlx_get_default_device(&raw mut device) == 0
            && mlx_sys::mlx_device_info_get(&raw mut info, device) == 0;
        if found {
            let key = c"max_recommended_working_set_size";
            mlx_sys::mlx_device_info_get_size(&raw mut bytes, info, key.as_ptr());
        }
        mlx_sys::mlx_device_info_free(info);
        mlx_sys::mlx_device_free(device);
    }
    bytes
}

/// The library's version, MLX's, and MLX's backend.
pub(crate) const VERSIONS: &CStr = {
    const TEXT: &str = concat!("mlxb/", env!("CARGO_PKG_VERSION"), " mlx/0.32.2 (");
    const BACKEND: &str = if HAS_GPU { "metal)\0" } else { "cpu)\0" };
    const LENGTH: usize = TEXT.len() + BACKEND.len();
    const BYTES: [u8; LENGTH] = {
        let mut bytes = [0; LENGTH];
        let (start, end) = bytes.split_at_mut(TEXT.len());
        start.copy_from_slice(TEXT.as_bytes());
        end.copy_from_slice(BACKEND.as_bytes());
        bytes
    };
    match CStr::from_bytes_with_nul(&BYTES) {
        Ok(text) => text,
        Err(_) => panic!("the text ends with its only NUL"),
    }
};

#[cfg(not(target_os = "macos"))]
unsafe extern "C" {
    /// From the Linux shim: adopts memory that starts with the allocator's byte count.
    #[link_name = "mlx_array_adopt_block"]
    fn adopt_block(
        block: *mut c_void,
        shape: *const c_int,
        dim: c_int,
        dtype: mlx_sys::mlx_dtype,
        payload: *mut c_void,
        release: Option<unsafe extern "C" fn(*mut c_void)>,
    ) -> mlx_sys::mlx_array;
}
#[cfg(target_os = "macos")]
use mlx_sys::mlx_array_new_data_managed_payload as adopt_block;

unsafe extern "C" {
    /// mlx-rs' handler, which feeds the errors of its own calls.
    fn default_mlx_error_handler(message: *const c_char, data: *mut c_void);
}

thread_local! {
    static LAST_ERROR: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keeps the message for the calls in this file and passes it on for those of mlx-rs.
unsafe extern "C" fn keep_error(message: *const c_char, data: *mut c_void) {
    // SAFETY: mlx-c passes a NUL-terminated message.
    let text = unsafe { CStr::from_ptr(message) }.to_string_lossy();
    LAST_ERROR.with(|last| *last.borrow_mut() = Some(text.into_owned()));
    // SAFETY: the arguments are those that it expects.
    unsafe { default_mlx_error_handler(message, data) };
}

fn take_error() -> Exception {
    let text = LAST_ERROR.with(|last| last.borrow_mut().take());
    Exception::custom(text.unwrap_or_else(|| "an operation failed without a message".into()))
}

/// Runs an operation that writes a new array and returns 0, or fails.
fn operation(call: impl FnOnce(*mut mlx_sys::mlx_array) -> c_int) -> MlxResult {
    // SAFETY: makes an empty handle.
    let mut result = unsafe { mlx_sys::mlx_array_new() };
    let status = call(&raw mut result);
    // SAFETY: on success the handle is a new array that nobody else owns; else it is empty, and
    // freed by the drop.
    let array = unsafe { Array::from_ptr(result) };
    if status == 0 {
        Ok(array)
    } else {
        Err(take_error())
    }
}

fn stream() -> Stream {
    Stream::thread_local_or_default()
}

fn optional_array(array: Option<&Array>) -> mlx_sys::mlx_array {
    array.map_or(
        mlx_sys::mlx_array {
            ctx: ptr::null_mut(),
        },
        Array::as_ptr,
    )
}

/// How the weights of a matrix are packed: see MLX's `quantize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packing {
    pub(crate) group_size: i32,
    pub(crate) bits: i32,
    pub(crate) mode: &'static CStr,
}

fn some(value: i32) -> mlx_sys::mlx_optional_int {
    mlx_sys::mlx_optional_int {
        value,
        has_value: true,
    }
}

/// `x @ w.T` with packed `w`: x \[.., in\], w \[out, in * bits / 32\], scales and biases
/// \[out, in / group\].
pub(crate) fn quantized_matmul(
    x: &Array,
    w: &Array,
    scales: &Array,
    biases: Option<&Array>,
    packing: Packing,
) -> MlxResult {
    let stream = stream();
    // SAFETY: all handles are live for the call, the mode is NUL-terminated.
    operation(|result| unsafe {
        mlx_sys::mlx_quantized_matmul(
            result,
            x.as_ptr(),
            w.as_ptr(),
            scales.as_ptr(),
            optional_array(biases),
            true,
            some(packing.group_size),
            some(packing.bits),
            packing.mode.as_ptr(),
            stream.as_ptr(),
        )
    })
}

/// The weights that packed ones stand for: \[rows, columns * bits / 32\] to \[rows, columns\].
pub(crate) fn dequantize(
    w: &Array,
    scales: &Array,
    biases: Option<&Array>,
    packing: Packing,
) -> MlxResult {
    let stream = stream();
    // SAFETY: as in `quantized_matmul`.
    operation(|result| unsafe {
        mlx_sys::mlx_dequantize(
            result,
            w.as_ptr(),
            scales.as_ptr(),
            optional_array(biases),
            some(packing.group_size),
            some(packing.bits),
            packing.mode.as_ptr(),
            optional_array(None),
            mlx_sys::mlx_optional_dtype {
                value: mlx_sys::mlx_dtype__MLX_FLOAT32,
                has_value: false,
            },
            stream.as_ptr(),
        )
    })
}

/// Packs weights: \[rows, columns\] to the words \[rows, columns * bits / 32\], the scales
/// \[rows, columns / group\], and in the affine mode the biases, shaped as the scales.
pub(crate) fn quantize(w: &Array, packing: Packing) -> MlxResult<Vec<Array>> {
    let stream = stream();
    // SAFETY: makes an empty handle, freed below.
    let mut parts = unsafe { mlx_sys::mlx_vector_array_new() };
    // SAFETY: as in `quantized_matmul`; without a global scale.
    let status = unsafe {
        mlx_sys::mlx_quantize(
            &raw mut parts,
            w.as_ptr(),
            some(packing.group_size),
            some(packing.bits),
            packing.mode.as_ptr(),
            optional_array(None),
            stream.as_ptr(),
        )
    };
    let arrays = if status == 0 {
        // SAFETY: the vector is live, and the index below its size.
        let count = unsafe { mlx_sys::mlx_vector_array_size(parts) };
        (0..count)
            .map(|index| {
                // SAFETY: as above.
                operation(|part| unsafe { mlx_sys::mlx_vector_array_get(part, parts, index) })
            })
            .collect()
    } else {
        Err(take_error())
    };
    // SAFETY: made above, and freed once.
    unsafe { mlx_sys::mlx_vector_array_free(parts) };
    arrays
}

/// A copy of the elements' bytes, row by row. Runs what the array still needs.
pub(crate) fn bytes(array: &Array) -> MlxResult<Vec<u8>> {
    let stream = stream();
    // SAFETY: the handle is live.
    let rows = operation(|result| unsafe {
        mlx_sys::mlx_contiguous(result, array.as_ptr(), false, stream.as_ptr())
    })?;
    rows.eval()?;
    let length = rows.nbytes();
    if length == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: the handle is live and its data computed.
    let data = unsafe { mlx_sys::mlx_array_data_uint8(rows.as_ptr()) };
    if data.is_null() {
        return Err(take_error());
    }
    // SAFETY: so many bytes lie there, one row behind the other, as long as `rows` lives.
    Ok(unsafe { slice::from_raw_parts(data, length) }.to_vec())
}

/// Rows `[from, to)` of axis 2 of a four-dimensional array.
pub(crate) fn slice_rows(array: &Array, from: i32, to: i32) -> MlxResult {
    let shape = array.shape();
    let (start, stop) = ([0, 0, from, 0], [shape[0], shape[1], to, shape[3]]);
    let stream = stream();
    // SAFETY: the handle is live, the bounds are arrays of four.
    operation(|result| unsafe {
        mlx_sys::mlx_slice(
            result,
            array.as_ptr(),
            start.as_ptr(),
            4,
            stop.as_ptr(),
            4,
            [1; 4].as_ptr(),
            4,
            stream.as_ptr(),
        )
    })
}

/// The bytes of rows `[from, to)` of axis 2 of a four-dimensional array, evaluated.
pub(crate) fn row_bytes(array: &Array, from: i32, to: i32) -> MlxResult<Vec<u8>> {
    let rows = slice_rows(array, from, to)?.contiguous()?;
    rows.eval()?;
    // SAFETY: the handle is live.
    let data = unsafe { mlx_sys::mlx_array_data_uint8(rows.as_ptr()) };
    if data.is_null() || rows.nbytes() == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: an evaluated array in row order, whose bytes stay there while `rows` lives.
    Ok(unsafe { std::slice::from_raw_parts(data, rows.nbytes()) }.to_vec())
}

/// `array` with rows `[from, from + update's rows)` of axis 2 replaced. Consumes the array, so
/// that MLX may write in place when nobody else holds it.
pub(crate) fn replace_rows(array: Array, update: &Array, from: i32) -> MlxResult {
    let shape = array.shape();
    let (start, stop) = (
        [0, 0, from, 0],
        [shape[0], shape[1], from + update.dim(2), shape[3]],
    );
    let stream = stream();
    // SAFETY: the handles are live, the bounds are arrays of four.
    operation(|result| unsafe {
        mlx_sys::mlx_slice_update(
            result,
            array.as_ptr(),
            update.as_ptr(),
            start.as_ptr(),
            4,
            stop.as_ptr(),
            4,
            [1; 4].as_ptr(),
            4,
            stream.as_ptr(),
        )
    })
}
