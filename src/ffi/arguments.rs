//! Turning what C passes into what Rust can trust.

use std::{
    ffi::{CStr, CString, c_char},
    mem::{MaybeUninit, size_of},
    path::Path,
    ptr, slice,
};

use crate::error::{Error, Kind, Result};

fn null(name: &str) -> Error {
    Error::new(Kind::InvalidArgument, format!("{name} is NULL"))
}

/// A handle or struct that must be there.
///
/// # Safety
/// `pointer` is NULL or valid for reads for `'a`.
pub(crate) unsafe fn required<'a, T>(pointer: *const T, name: &str) -> Result<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or_else(|| null(name))
}

/// Where an answer goes. It is set to `unset` at once, so that it is defined whatever happens.
///
/// # Safety
/// `pointer` is NULL or valid for writes for `'a`; it may be uninitialized.
pub(crate) unsafe fn out<'a, T>(pointer: *mut T, unset: T, name: &str) -> Result<&'a mut T> {
    if pointer.is_null() {
        return Err(null(name));
    }
    // SAFETY: not NULL, and valid for writes by the caller's promise; T: from here on it is
    // initialized.
    unsafe {
        pointer.write(unset);
        Ok(&mut *pointer)
    }
}

/// NUL-terminated UTF-8 that must be there.
///
/// # Safety
/// `pointer` is NULL or points to a NUL-terminated string that lives for `'a`.
pub(crate) unsafe fn string<'a>(pointer: *const c_char, name: &str) -> Result<&'a str> {
    // SAFETY: the caller's promise.
    unsafe { optional_string(pointer, name) }?.ok_or_else(|| null(name))
}

/// NUL-terminated UTF-8, or NULL for none.
///
/// # Safety
/// As [`string`].
pub(crate) unsafe fn optional_string<'a>(
    pointer: *const c_char,
    name: &str,
) -> Result<Option<&'a str>> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: not NULL, and NUL-terminated by the caller's promise.
    unsafe { CStr::from_ptr(pointer) }
        .to_str()
        .map(Some)
        .map_err(|_| invalid_utf8(name))
}

/// A path that must be there.
///
/// # Safety
/// As [`string`].
pub(crate) unsafe fn path<'a>(pointer: *const c_char, name: &str) -> Result<&'a Path> {
    // SAFETY: the caller's promise.
    unsafe { string(pointer, name) }.map(Path::new)
}

/// UTF-8 given as pointer and length; NULL is allowed with length 0.
///
/// # Safety
/// `pointer` is NULL or valid for reads of `length` bytes for `'a`.
pub(crate) unsafe fn text<'a>(
    pointer: *const c_char,
    length: usize,
    name: &str,
) -> Result<&'a str> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { array(pointer.cast::<u8>(), length, name) }?;
    std::str::from_utf8(bytes).map_err(|_| invalid_utf8(name))
}

/// An array given as pointer and count; NULL is allowed with count 0.
///
/// # Safety
/// `pointer` is NULL or aligned and valid for reads of `count` elements for `'a`.
pub(crate) unsafe fn array<'a, T>(pointer: *const T, count: usize, name: &str) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(null(name));
    }
    if count > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(Error::new(
            Kind::InvalidArgument,
            format!("{name} has an impossible length: {count}"),
        ));
    }
    // SAFETY: not NULL, sized within bounds, valid by the caller's promise.
    Ok(unsafe { slice::from_raw_parts(pointer, count) })
}

/// Writes `values` into the caller's buffer and their number into `count`; when the buffer is
/// too small, only the number.
///
/// # Safety
/// `buffer` is NULL (with capacity 0) or valid for writes of `capacity` elements; `count` is
/// NULL or valid for writes.
pub(crate) unsafe fn write_array<T: Copy>(
    values: &[T],
    buffer: *mut T,
    capacity: usize,
    count: *mut usize,
) -> Result<()> {
    // SAFETY: the caller's promise.
    *unsafe { out(count, 0, "count") }? = values.len();
    if values.is_empty() {
        return Ok(());
    }
    if capacity < values.len() {
        return Err(Error::new(
            Kind::BufferTooSmall,
            format!("needs room for {} but has {capacity}", values.len()),
        ));
    }
    if buffer.is_null() {
        return Err(null("buffer"));
    }
    // SAFETY: the buffer is not NULL and holds at least that many; the caller's memory cannot
    // overlap ours.
    unsafe { ptr::copy_nonoverlapping(values.as_ptr(), buffer, values.len()) };
    Ok(())
}

/// An owned string for C, to be freed by `mlxb_string_free`.
pub(crate) fn owned_string(text: String) -> *mut c_char {
    let text = CString::new(text).unwrap_or_else(|error| {
        let bytes = error.into_vec();
        let clean = bytes
            .into_iter()
            .filter(|&byte| byte != 0)
            .collect::<Vec<_>>();
        CString::new(clean).expect("the NULs were removed")
    });
    text.into_raw()
}

fn invalid_utf8(name: &str) -> Error {
    Error::new(Kind::InvalidUtf8, format!("{name} is not valid UTF-8"))
}

/// A C `bool` inside a struct that the caller fills: whatever byte is there, it is defined.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct CBool(u8);

impl CBool {
    pub(crate) const FALSE: Self = Self(0);

    pub(crate) fn get(self) -> bool {
        self.0 != 0
    }
}

/// A struct that starts with `struct_size`, so that it can grow at its end: the caller's may be
/// shorter (older) or longer (newer) than ours.
///
/// # Safety
/// `repr(C)`, its first field is `struct_size: usize`, and all its fields accept any bytes that
/// a C compiler would store there (no `bool` but as `u8`, no Rust enums, no references).
pub(crate) unsafe trait SizedStruct: Copy {
    /// All fields as `_init` leaves them.
    fn unset() -> Self;
}

/// Bytes that a caller may add in later versions, at the most.
const SIZE_LIMIT: usize = 64 * 1024;

/// Copies the caller's struct over the unset one. Fields past the caller's size stay unset;
/// bytes past ours must be zero, else something that we do not know was asked for.
///
/// # Safety
/// `pointer` is NULL or points to a struct whose `struct_size` says how many bytes are valid.
pub(crate) unsafe fn read_struct<T: SizedStruct>(pointer: *const T, name: &str) -> Result<T> {
    if pointer.is_null() {
        return Err(null(name));
    }
    // SAFETY: struct_size is the first field, valid by the caller's promise.
    let size = unsafe { pointer.cast::<usize>().read() };
    check_size(size, name)?;
    let mut value = T::unset();
    // SAFETY: the caller's struct has `size` valid bytes; T takes any bytes (SizedStruct).
    unsafe {
        ptr::copy_nonoverlapping(
            pointer.cast::<u8>(),
            (&raw mut value).cast::<u8>(),
            size.min(size_of::<T>()),
        );
        if size > size_of::<T>() {
            let beyond = slice::from_raw_parts(
                pointer.cast::<u8>().add(size_of::<T>()),
                size - size_of::<T>(),
            );
            if beyond.iter().any(|&byte| byte != 0) {
                return Err(Error::new(
                    Kind::VersionMismatch,
                    format!("{name} sets a field that this version does not know"),
                ));
            }
        }
    }
    Ok(value)
}

/// Writes `value` into the caller's struct: no more than its `struct_size`, which stays.
///
/// # Safety
/// `pointer` is NULL or points to a struct whose `struct_size` says how many bytes may be
/// written.
pub(crate) unsafe fn write_struct<T: SizedStruct>(
    pointer: *mut T,
    value: T,
    name: &str,
) -> Result<()> {
    if pointer.is_null() {
        return Err(null(name));
    }
    // SAFETY: struct_size is the first field, valid by the caller's promise.
    let size = unsafe { pointer.cast::<usize>().read() };
    check_size(size, name)?;
    let value = MaybeUninit::new(value);
    let header = size_of::<usize>();
    // SAFETY: both sides have that many bytes past struct_size.
    unsafe {
        ptr::copy_nonoverlapping(
            value.as_ptr().cast::<u8>().add(header),
            pointer.cast::<u8>().add(header),
            size.min(size_of::<T>()) - header,
        );
    }
    Ok(())
}

/// What every `_init` function does: all fields unset, and the size the caller compiled with.
///
/// # Safety
/// `pointer` is NULL or valid for writes of `size` bytes.
pub(crate) unsafe fn init_struct<T: SizedStruct>(pointer: *mut T, size: usize) {
    if pointer.is_null() || check_size(size, "struct").is_err() {
        return;
    }
    let value = MaybeUninit::new(T::unset());
    // SAFETY: valid for `size` bytes by the caller's promise; what lies past our own struct is
    // zeroed, that is unset.
    unsafe {
        ptr::write_bytes(pointer.cast::<u8>(), 0, size);
        ptr::copy_nonoverlapping(
            value.as_ptr().cast::<u8>(),
            pointer.cast::<u8>(),
            size.min(size_of::<T>()),
        );
        pointer.cast::<usize>().write(size);
    }
}

fn check_size(size: usize, name: &str) -> Result<()> {
    if (size_of::<usize>()..=SIZE_LIMIT).contains(&size) {
        return Ok(());
    }
    Err(Error::new(
        Kind::InvalidArgument,
        format!("{name} has a wrong struct_size: {size}"),
    ))
}
