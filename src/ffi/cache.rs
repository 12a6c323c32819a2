//! The prompt cache.

use std::{
    ffi::{c_char, c_void},
    sync::Arc,
    time::Duration,
};

use super::{
    SizedStruct, array, guard, guard_plain, init_struct, mlxb_error, mlxb_kv, mlxb_model,
    mlxb_status, mlxb_str, optional_string, out, read_struct, required, write_struct,
};
use crate::{
    cache::{Cache, CacheOptions, CacheStatistics, DiskOptions, OnEvict},
    error::{Error, Kind, Result},
    model::Kv,
};

/// KV states by the tokens that led to them: in memory, and on disk where they survive the
/// process. All its functions may be called from several threads at once.
///
/// States of different models never mix, nor do those of different namespaces, names that the
/// caller chooses: a user, a document, a tenant. A model is known by the bytes of its files, so
/// one cache and one folder serve any number of models.
pub struct mlxb_cache(pub(crate) Cache);

/// Sees an entry that is about to be evicted from memory, alive, before it goes to disk: `ns` is
/// the namespace that it was put under, `kv` its state, both for the call only. Called on the
/// thread whose call evicts, which several may do at once; it may call any function of the library,
/// and cannot stop the eviction. What it puts itself may evict others, for which it is called
/// within the call. It must not throw or longjmp, nor free `kv`.
pub type mlxb_evict_fn =
    Option<unsafe extern "C" fn(user_data: *mut c_void, ns: mlxb_str, kv: *const mlxb_kv)>;

/// How to open a cache. Prepare it with mlxb_cache_options_init, then set what you need.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct mlxb_cache_options {
    /// sizeof(mlxb_cache_options).
    pub struct_size: usize,
    /// Bytes of states to keep in memory; -1: 2 GiB. A state larger than this goes to disk at
    /// once.
    pub memory_bytes: i64,
    /// The folder for states on disk, which is made where there is none; NULL to keep none.
    /// Several processes may use one at a time.
    pub disk_dir: *const c_char,
    /// Bytes that everything in the folder may take; -1: 16 GiB. The least recently used states
    /// go first, whichever model they are of.
    pub disk_bytes: i64,
    /// 1: what is read from disk is checked against its checksums; 0: it is not; -1: 1.
    pub verify: i32,
    /// Seconds without use after which a state goes from memory to disk, where it stays
    /// reachable; INFINITY: never; NaN: 600. Without a folder it stays in memory.
    pub idle_seconds: f64,
    /// Sees each entry before it is evicted; may be NULL. Not called by mlxb_cache_clear, for
    /// idle entries, and for those whose model has been freed.
    pub on_evict: mlxb_evict_fn,
    /// Passed to on_evict. It must stay valid until the cache is closed and no generation uses
    /// it any more.
    pub user_data: *mut c_void,
}

// SAFETY: repr(C), struct_size first, numbers, pointers and a function pointer that may be NULL.
unsafe impl SizedStruct for mlxb_cache_options {
    fn unset() -> Self {
        Self {
            struct_size: size_of::<Self>(),
            memory_bytes: -1,
            disk_dir: std::ptr::null(),
            disk_bytes: -1,
            verify: -1,
            idle_seconds: f64::NAN,
            on_evict: None,
            user_data: std::ptr::null_mut(),
        }
    }
}

/// How much of a prompt a cache holds. Set struct_size, the library fills in the rest.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct mlxb_cache_match {
    /// sizeof(mlxb_cache_match).
    pub struct_size: usize,
    /// Tokens that need not be run thanks to a state in memory.
    pub memory_prefix: u64,
    /// Tokens that need not be run thanks to a state on disk.
    pub disk_prefix: u64,
    /// Bytes of the state in memory; 0 where none serves, or somebody else extends it.
    pub bytes: u64,
}

// SAFETY: repr(C), struct_size first, numbers only.
unsafe impl SizedStruct for mlxb_cache_match {
    fn unset() -> Self {
        Self {
            struct_size: size_of::<Self>(),
            memory_prefix: 0,
            disk_prefix: 0,
            bytes: 0,
        }
    }
}

/// What a cache holds and has done. Counts are since it was opened. Set struct_size, the library
/// fills in the rest.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct mlxb_cache_stats {
    /// sizeof(mlxb_cache_stats).
    pub struct_size: usize,
    /// Entries in memory.
    pub entries: u64,
    /// Bytes of their states. What entries share counts once.
    pub memory_bytes: u64,
    /// Bytes that finding them takes.
    pub index_bytes: u64,
    /// Bytes of the states on disk, those of other models included.
    pub disk_bytes: u64,
    /// Files that they are in.
    pub disk_files: u64,
    /// States that wait to be written.
    pub pending_writes: u64,
    /// Takes and generations that found something.
    pub hits: u64,
    /// Takes and generations that found nothing.
    pub misses: u64,
    /// Tokens that needed not be run thanks to the hits.
    pub reused_tokens: u64,
    /// States read from disk.
    pub restores: u64,
    /// How long the last of these took.
    pub last_restore_seconds: f64,
    /// States that left memory for others.
    pub evictions: u64,
    /// States larger than memory_bytes, which went to disk at once, or nowhere.
    pub oversized: u64,
    /// States written to disk, in whole or the part that was new.
    pub writes: u64,
    /// Bytes of these.
    pub written_bytes: u64,
    /// Writes that were given up since too many waited.
    pub dropped_writes: u64,
    /// Writes that failed; the log says why.
    pub failed_writes: u64,
}

// SAFETY: repr(C), struct_size first, numbers only.
unsafe impl SizedStruct for mlxb_cache_stats {
    fn unset() -> Self {
        CacheStatistics::default().into()
    }
}

impl From<CacheStatistics> for mlxb_cache_stats {
    fn from(statistics: CacheStatistics) -> Self {
        Self {
            struct_size: size_of::<Self>(),
            entries: statistics.entries,
            memory_bytes: statistics.memory_bytes,
            index_bytes: statistics.index_bytes,
            disk_bytes: statistics.disk_bytes,
            disk_files: statistics.disk_files,
            pending_writes: statistics.pending_writes,
            hits: statistics.hits,
            misses: statistics.misses,
            reused_tokens: statistics.reused_tokens,
            restores: statistics.restores,
            last_restore_seconds: statistics.last_restore.as_secs_f64(),
            evictions: statistics.evictions,
            oversized: statistics.oversized,
            writes: statistics.writes,
            written_bytes: statistics.written_bytes,
            dropped_writes: statistics.dropped_writes,
            failed_writes: statistics.failed_writes,
        }
    }
}

/// Sets all fields to "unset".
///
/// @param struct_size    sizeof(mlxb_cache_options).
///
/// Thread: any. Since 0.1.0.
///
/// # Safety
/// `options` is NULL or writable for `struct_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_cache_options_init(
    options: *mut mlxb_cache_options,
    struct_size: usize,
) {
    // SAFETY: the caller's promise.
    unsafe { init_struct(options, struct_size) };
}

/// Opens a cache.
///
/// @param options    How; NULL: 2 GiB in memory, nothing on disk.
/// @param out        The cache; NULL on a failure.
/// @return MLXB_OK; MLXB_INVALID_ARGUMENT, MLXB_INVALID_UTF8 or MLXB_VERSION_MISMATCH for the
///         options; MLXB_IO and the like for a folder that cannot be used.
///
/// Ownership: close `*out` with mlxb_cache_close. Thread: any. Since 0.1.0.
///
/// # Safety
/// `options` is NULL or a struct of struct_size bytes with valid pointers; on_evict may be called
/// with user_data from any thread until the cache is closed; `out` and `error` are NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_cache_open(
    options: *const mlxb_cache_options,
    out: *mut *mut mlxb_cache,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise, for all pointers.
    unsafe {
        guard(error, || {
            let out = super::out(out, std::ptr::null_mut(), "out")?;
            let options = if options.is_null() {
                SizedStruct::unset()
            } else {
                read_struct(options, "options")?
            };
            let cache = Cache::open(convert(&options)?)?;
            *out = Box::into_raw(Box::new(mlxb_cache(cache)));
            Ok(())
        })
    }
}

/// Closes a cache; NULL is ignored. What is not on disk yet is written first, so this may take
/// a while. Generations that use the cache go on, and it is closed with the last of them.
///
/// Ownership: consumes `cache`. Thread: any, but no other use of it at the same time. Since 0.1.0.
///
/// # Safety
/// `cache` is NULL or came from mlxb_cache_open and has not been closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_cache_close(cache: *mut mlxb_cache) {
    if !cache.is_null() {
        // SAFETY: made with Box::into_raw, and the caller gives it up.
        guard_plain((), || drop(unsafe { Box::from_raw(cache) }));
    }
}

/// Keeps a state under its tokens and a namespace. The two share memory until `kv` is extended.
/// An entry of the same tokens is replaced, and entries that are prefixes of it are dropped, since
/// it serves in their place. Then the least recently used entries are evicted until all fit.
///
/// @param ns    The namespace; NULL is "".
/// @return MLXB_OK; MLXB_INVALID_ARGUMENT for a state without tokens; MLXB_INVALID_UTF8; MLXB_BUSY
///         while a generation uses it; MLXB_POISONED; MLXB_UNSUPPORTED in a forked process, or
///         when a file of the model has changed since it was loaded, MLXB_IO when one cannot be
///         read. On a failure nothing changes.
///
/// Ownership: `kv` stays the caller's. Thread: any; never waits for the engine or a file, but for
/// the first use of a model, whose files may have to be read. Since 0.1.0.
///
/// # Safety
/// `cache` and `kv` are NULL or alive; `ns` is NULL or NUL-terminated; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_cache_put(
    cache: *const mlxb_cache,
    ns: *const c_char,
    kv: *const mlxb_kv,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise, for all pointers.
    unsafe {
        guard(error, || {
            let cache = cache_of(cache)?;
            let kv = Arc::clone(&required(kv, "kv")?.0);
            cache.put(namespace(ns)?, &kv)
        })
    }
}

/// Takes the state that saves most of running `tokens`, from memory or from disk. At least the
/// last token always remains to be run. An entry whose tokens are all used is moved out; of a
/// longer one a shortened copy is made, which shares its memory. Give the state and the rest of
/// the tokens to mlxb_generate, and put it back afterwards. Setting `cache` in
/// mlxb_generate_options does all of that.
///
/// @param model     The model that is to go on from the state.
/// @param ns        The namespace; NULL is "".
/// @param tokens    The prompt.
/// @param count     Ids at `tokens`.
/// @param out       The state; NULL when nothing serves, and on a failure.
/// @return MLXB_OK, also when nothing serves; MLXB_INVALID_ARGUMENT; MLXB_INVALID_UTF8;
///         MLXB_UNSUPPORTED and MLXB_IO as for mlxb_cache_put. What is damaged on disk is a miss
///         and a line in the log.
///
/// Ownership: free `*out` with mlxb_kv_free. Thread: any; waits for the disk when the state comes
/// from there, for the running step when a generation has it, and at the first use of a model as
/// mlxb_cache_put does. Since 0.1.0.
///
/// # Safety
/// `cache` and `model` are NULL or alive; `ns` is NULL or NUL-terminated; `tokens` is valid for
/// `count` ids; `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_cache_take(
    cache: *const mlxb_cache,
    model: *const mlxb_model,
    ns: *const c_char,
    tokens: *const u32,
    count: usize,
    out: *mut *mut mlxb_kv,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise, for all pointers.
    unsafe {
        guard(error, || {
            let out = super::out(out, std::ptr::null_mut(), "out")?;
            let cache = cache_of(cache)?;
            let model = &required(model, "model")?.model;
            let tokens = array(tokens, count, "tokens")?;
            if let Some(kv) = cache.take(model, namespace(ns)?, tokens)? {
                *out = Box::into_raw(Box::new(mlxb_kv(kv)));
            }
            Ok(())
        })
    }
}

/// Tells how much of `tokens` could be reused. Changes nothing: neither what is evicted next nor
/// the statistics.
///
/// @param ns        The namespace; NULL is "".
/// @param tokens    The prompt.
/// @param count     Ids at `tokens`.
/// @param out       Filled in.
/// @return MLXB_OK; MLXB_INVALID_ARGUMENT; MLXB_INVALID_UTF8; MLXB_UNSUPPORTED and MLXB_IO as for
///         mlxb_cache_put.
///
/// Thread: any; waits for nobody, but for the first use of a model, whose files may have to be
/// read. Since 0.1.0.
///
/// # Safety
/// `cache` and `model` are NULL or alive; `ns` is NULL or NUL-terminated; `tokens` is valid for
/// `count` ids; `out` is NULL or a struct of struct_size bytes; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_cache_peek(
    cache: *const mlxb_cache,
    model: *const mlxb_model,
    ns: *const c_char,
    tokens: *const u32,
    count: usize,
    out: *mut mlxb_cache_match,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise, for all pointers.
    unsafe {
        guard(error, || {
            write_struct(out, SizedStruct::unset(), "out")?;
            let cache = cache_of(cache)?;
            let model = &required(model, "model")?.model;
            let tokens = array(tokens, count, "tokens")?;
            let found = cache.peek(model, namespace(ns)?, tokens)?;
            let filled = mlxb_cache_match {
                memory_prefix: found.memory_prefix as u64,
                disk_prefix: found.disk_prefix as u64,
                bytes: found.bytes,
                ..SizedStruct::unset()
            };
            write_struct(out, filled, "out")
        })
    }
}

/// Tells whether exactly these tokens are an entry in memory, or all on disk. Changes nothing.
///
/// @param ns        The namespace; NULL is "".
/// @param tokens    The sequence.
/// @param count     Ids at `tokens`.
/// @param found     The answer; false on a failure.
/// @return MLXB_OK; MLXB_INVALID_ARGUMENT; MLXB_INVALID_UTF8; MLXB_UNSUPPORTED and MLXB_IO as for
///         mlxb_cache_put.
///
/// Thread: any; waits for nobody, but for the first use of a model, whose files may have to be
/// read. Since 0.1.0.
///
/// # Safety
/// `cache` and `model` are NULL or alive; `ns` is NULL or NUL-terminated; `tokens` is valid for
/// `count` ids; `found` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_cache_find_exact(
    cache: *const mlxb_cache,
    model: *const mlxb_model,
    ns: *const c_char,
    tokens: *const u32,
    count: usize,
    found: *mut bool,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise, for all pointers.
    unsafe {
        guard(error, || {
            let found = out(found, false, "found")?;
            let cache = cache_of(cache)?;
            let model = &required(model, "model")?.model;
            let tokens = array(tokens, count, "tokens")?;
            *found = cache.find_exact(model, namespace(ns)?, tokens)?;
            Ok(())
        })
    }
}

/// Returns when everything that is to be on disk is there; without a folder at once. What could
/// not be written before is tried again.
///
/// @return MLXB_OK; MLXB_NO_SPACE, MLXB_IO and the like when something could not be written:
///         everything else is; MLXB_BUSY on a thread of the library's own, as in a log callback;
///         MLXB_INVALID_ARGUMENT; MLXB_UNSUPPORTED in a forked process.
///
/// Thread: any; waits for the engine and the disk. Since 0.1.0.
///
/// # Safety
/// `cache` is NULL or alive; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_cache_flush(
    cache: *const mlxb_cache,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise, for all pointers.
    unsafe { guard(error, || cache_of(cache)?.flush()) }
}

/// Evicts the least recently used entries until at most `memory_bytes` are in memory, and returns
/// when they are on disk, where they stay reachable. Call it when the system warns of memory
/// pressure.
///
/// @param freed_bytes    How many bytes left memory; may be NULL.
/// @return MLXB_OK; as mlxb_cache_flush when something could not be written, with the memory
///         free nevertheless.
///
/// Thread: any; waits for the engine and the disk. Since 0.1.0.
///
/// # Safety
/// `cache` is NULL or alive; `freed_bytes` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_cache_trim(
    cache: *const mlxb_cache,
    memory_bytes: u64,
    freed_bytes: *mut u64,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise, for all pointers.
    unsafe {
        guard(error, || {
            if freed_bytes.is_null() {
                cache_of(cache)?.trim(memory_bytes)?;
                return Ok(());
            }
            let freed_bytes = out(freed_bytes, 0, "freed_bytes")?;
            *freed_bytes = cache_of(cache)?.trim(memory_bytes)?;
            Ok(())
        })
    }
}

/// Forgets all entries in memory, and the conversations of mlxb_respond: they are neither shown to
/// on_evict nor written. What is on disk, or on its way there, stays.
///
/// @return MLXB_OK; MLXB_INVALID_ARGUMENT; MLXB_UNSUPPORTED in a forked process.
///
/// Thread: any; waits for nobody. Since 0.1.0.
///
/// # Safety
/// `cache` is NULL or alive; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_cache_clear(
    cache: *const mlxb_cache,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise, for all pointers.
    unsafe { guard(error, || cache_of(cache)?.clear()) }
}

/// Removes all states on disk, those of other models and other programs in the folder included.
///
/// @param freed_bytes    How many bytes they were; may be NULL.
/// @return MLXB_OK; MLXB_IO and the like; MLXB_INVALID_ARGUMENT; MLXB_UNSUPPORTED in a forked
///         process.
///
/// Thread: any; waits for the disk. Since 0.1.0.
///
/// # Safety
/// `cache` is NULL or alive; `freed_bytes` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_cache_clear_disk(
    cache: *const mlxb_cache,
    freed_bytes: *mut u64,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise, for all pointers.
    unsafe {
        guard(error, || {
            if freed_bytes.is_null() {
                cache_of(cache)?.clear_disk()?;
                return Ok(());
            }
            let freed_bytes = out(freed_bytes, 0, "freed_bytes")?;
            *freed_bytes = cache_of(cache)?.clear_disk()?;
            Ok(())
        })
    }
}

/// Tells what a cache holds and has done: the numbers of a settings page.
///
/// @param out    Filled in.
/// @return MLXB_OK; MLXB_INVALID_ARGUMENT; MLXB_UNSUPPORTED in a forked process.
///
/// Thread: any; waits for nobody. Since 0.1.0.
///
/// # Safety
/// `cache` is NULL or alive; `out` is NULL or a struct of struct_size bytes; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_cache_stats_get(
    cache: *const mlxb_cache,
    out: *mut mlxb_cache_stats,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise, for all pointers.
    unsafe {
        guard(error, || {
            write_struct(out, SizedStruct::unset(), "out")?;
            write_struct(out, cache_of(cache)?.statistics()?.into(), "out")
        })
    }
}

/// # Safety
/// `cache` is NULL or alive.
unsafe fn cache_of<'a>(cache: *const mlxb_cache) -> Result<&'a Cache> {
    // SAFETY: the caller's promise.
    Ok(&unsafe { required(cache, "cache") }?.0)
}

/// # Safety
/// `ns` is NULL or NUL-terminated.
pub(super) unsafe fn namespace<'a>(ns: *const c_char) -> Result<&'a str> {
    // SAFETY: the caller's promise.
    Ok(unsafe { optional_string(ns, "ns") }?.unwrap_or(""))
}

/// # Safety
/// The pointers in `options` are valid; on_evict may be called with user_data from any thread.
unsafe fn convert(options: &mlxb_cache_options) -> Result<CacheOptions> {
    let mut converted = CacheOptions::default();
    let verify = match options.verify {
        -1 | 1 => true,
        0 => false,
        other => return Err(invalid(format!("options.verify is out of range: {other}"))),
    };
    let disk_bytes = bytes_or_unset(options.disk_bytes, "options.disk_bytes")?;
    let idle = match options.idle_seconds {
        seconds if seconds.is_nan() => None,
        seconds => Some(idle_after(seconds)?),
    };
    if let Some(bytes) = bytes_or_unset(options.memory_bytes, "options.memory_bytes")? {
        converted.memory_bytes = bytes;
    }
    // SAFETY: the caller's promise.
    if let Some(dir) = unsafe { optional_string(options.disk_dir, "options.disk_dir") }? {
        if dir.is_empty() {
            return Err(invalid("options.disk_dir is empty"));
        }
        let mut disk = DiskOptions::new(dir);
        disk.bytes = disk_bytes.unwrap_or(disk.bytes);
        disk.verify = verify;
        disk.idle_after = idle.unwrap_or(disk.idle_after);
        converted.disk = Some(disk);
    }
    if let Some(function) = options.on_evict {
        let hook = Hook {
            function,
            user_data: options.user_data,
        };
        let on_evict: OnEvict = Box::new(move |ns, kv| hook.call(ns, kv));
        converted.on_evict = Some(on_evict);
    }
    Ok(converted)
}

struct Hook {
    function: unsafe extern "C" fn(*mut c_void, mlxb_str, *const mlxb_kv),
    user_data: *mut c_void,
}

// SAFETY: the caller of mlxb_cache_open promises that the function may be called with the pointer
// from any thread.
unsafe impl Send for Hook {}
// SAFETY: as above.
unsafe impl Sync for Hook {}

impl Hook {
    fn call(&self, ns: &str, kv: &Arc<Kv>) {
        let kv = mlxb_kv(Arc::clone(kv));
        // SAFETY: the caller of mlxb_cache_open promises a function that may be called so.
        unsafe { (self.function)(self.user_data, ns.into(), &raw const kv) };
    }
}

fn bytes_or_unset(bytes: i64, name: &str) -> Result<Option<u64>> {
    match bytes {
        -1 => Ok(None),
        bytes => u64::try_from(bytes)
            .map(Some)
            .map_err(|_| invalid(format!("{name} must not be negative, but for -1: {bytes}"))),
    }
}

fn idle_after(seconds: f64) -> Result<Option<Duration>> {
    if seconds == f64::INFINITY {
        return Ok(None);
    }
    Duration::try_from_secs_f64(seconds)
        .map(Some)
        .map_err(|_| invalid(format!("options.idle_seconds is no time: {seconds}")))
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(Kind::InvalidArgument, message)
}
