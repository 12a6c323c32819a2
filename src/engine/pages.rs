//! Memory that the library fills and MLX then adopts without a copy.

use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::MmapMut;

use crate::error::{Error, Result};

/// Bytes of [`Pages`] that MLX holds, which its own statistics do not count on every platform.
static ADOPTED: AtomicU64 = AtomicU64::new(0);
/// The most that these were.
static MOST_ADOPTED: AtomicU64 = AtomicU64::new(0);

/// Room before the data for what MLX's CPU allocator keeps there; a cache line keeps the data
/// aligned for vector loads. Metal wants the data itself at the page's start.
pub(super) const HEADER: usize = if cfg!(target_os = "macos") { 0 } else { 64 };

/// Anonymous page-aligned memory, zero at first. Not a mapped file: one that is truncated
/// under the mapping kills the process.
pub(crate) struct Pages {
    map: MmapMut,
    len: usize,
}

impl Pages {
    /// Memory for `len` bytes.
    ///
    /// # Errors
    /// [`crate::Kind::OutOfMemory`] when the system refuses.
    pub(crate) fn new(len: usize) -> Result<Self> {
        let map = len
            .checked_add(HEADER)
            .ok_or_else(|| std::io::Error::from(std::io::ErrorKind::OutOfMemory))
            .and_then(MmapMut::map_anon)
            .map_err(|error| {
                Error::new(
                    crate::Kind::OutOfMemory,
                    format!("no memory for a tensor of {len} bytes"),
                )
                .with_source(error)
            })?;
        #[cfg(target_os = "linux")]
        {
            // A hint alone: without huge pages everything works, a little slower.
            let _ = map.advise(memmap2::Advice::HugePage);
        }
        Ok(Self { map, len })
    }

    /// The data.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.map[HEADER..HEADER + self.len]
    }

    /// Where MLX's block begins: the byte count before the data on Linux, the data on macOS.
    pub(super) fn block(&mut self) -> *mut std::ffi::c_void {
        #[cfg(not(target_os = "macos"))]
        {
            let count = self.map[HEADER - size_of::<usize>()..]
                .as_mut_ptr()
                .cast::<usize>();
            // SAFETY: inside the map, and aligned, since both the page and HEADER are.
            unsafe { count.write(self.len) };
            count.cast()
        }
        #[cfg(target_os = "macos")]
        self.map.as_mut_ptr().cast()
    }

    /// Hands the memory over as a pointer for [`Self::release`].
    pub(super) fn into_payload(self) -> *mut std::ffi::c_void {
        let bytes = self.len as u64;
        let adopted = ADOPTED.fetch_add(bytes, Ordering::Relaxed) + bytes;
        MOST_ADOPTED.fetch_max(adopted, Ordering::Relaxed);
        Box::into_raw(Box::new(self)).cast()
    }

    /// Frees what [`Self::into_payload`] handed over; MLX calls it on whichever thread drops
    /// the last array.
    ///
    /// # Safety
    /// `payload` came from `into_payload` and is released once.
    pub(super) unsafe extern "C" fn release(payload: *mut std::ffi::c_void) {
        // SAFETY: the caller's promise.
        let pages = unsafe { Box::from_raw(payload.cast::<Self>()) };
        ADOPTED.fetch_sub(pages.len as u64, Ordering::Relaxed);
    }
}

/// Bytes of adopted memory in use.
pub(crate) fn adopted_bytes() -> u64 {
    ADOPTED.load(Ordering::Relaxed)
}

/// The most that these were.
pub(crate) fn adopted_peak_bytes() -> u64 {
    MOST_ADOPTED.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_stays_when_memory_is_given_back() {
        let bytes = 1 << 20;
        let payload = Pages::new(bytes).unwrap().into_payload();
        let peak = adopted_peak_bytes();
        assert!(peak >= bytes as u64);
        // SAFETY: the payload was made above.
        unsafe { Pages::release(payload) };
        assert!(adopted_peak_bytes() >= peak);
    }
}
