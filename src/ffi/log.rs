//! The log callback.

use std::{
    ffi::c_void,
    sync::{Arc, PoisonError, RwLock},
};

use log::{Level, LevelFilter, Log, Metadata, Record};

use super::{guard, mlxb_error, mlxb_status, mlxb_str};
use crate::error::{Error, Kind};

/// How much to log. Each level includes those before it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum mlxb_log_level {
    /// Nothing, the default.
    MLXB_LOG_OFF = 0,
    /// Failures that no call reports.
    MLXB_LOG_ERROR = 1,
    /// What goes on, but worse than it should.
    MLXB_LOG_WARN = 2,
    /// What an app's developer may want to know.
    MLXB_LOG_INFO = 3,
    /// What the library's developer may want to know.
    MLXB_LOG_DEBUG = 4,
    /// Everything.
    MLXB_LOG_TRACE = 5,
}

/// Receives one line of log: `level` is one of mlxb_log_level, `message` lives for the call.
/// It may come from any thread, several at once. It must not throw or longjmp. On threads of the
/// library's own, what would wait for that very thread answers MLXB_BUSY.
pub type mlxb_log_fn =
    Option<unsafe extern "C" fn(user_data: *mut c_void, level: i32, message: mlxb_str)>;

/// Called once with `user_data` when the library has no more use for it.
pub type mlxb_destroy_fn = Option<unsafe extern "C" fn(user_data: *mut c_void)>;

struct Sink {
    receive: unsafe extern "C" fn(*mut c_void, i32, mlxb_str),
    destroy: mlxb_destroy_fn,
    user_data: *mut c_void,
}

// SAFETY: the caller of mlxb_log_set promises that both functions may be called with the
// pointer from any thread.
unsafe impl Send for Sink {}
// SAFETY: as above, several at once included.
unsafe impl Sync for Sink {}

impl Drop for Sink {
    fn drop(&mut self) {
        if let Some(destroy) = self.destroy {
            // SAFETY: the last use of the pointer, as the caller was promised.
            unsafe { destroy(self.user_data) };
        }
    }
}

static SINK: RwLock<Option<Arc<Sink>>> = RwLock::new(None);

struct Forwarder;

impl Log for Forwarder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Dependencies may log what they handle, prompts included.
        metadata.target().starts_with("mlxb")
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        // The callback runs with no lock held.
        let sink = SINK.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(sink) = sink {
            let message = record.args().to_string();
            let level = match record.level() {
                Level::Error => 1,
                Level::Warn => 2,
                Level::Info => 3,
                Level::Debug => 4,
                Level::Trace => 5,
            };
            // SAFETY: the caller of mlxb_log_set promises a function that may be called so.
            unsafe { (sink.receive)(sink.user_data, level, message.as_str().into()) };
        }
    }

    fn flush(&self) {}
}

/// Sends the library's log to `receive`. Nothing is logged before, and never on stdout or
/// stderr; prompts and generated text are never part of it.
///
/// @param max_level    One of mlxb_log_level: the least important level to log.
/// @param receive      Called for each line; NULL to log no more.
/// @param user_data    Passed to `receive` and `destroy`.
/// @param destroy      Called with `user_data` once `receive` will not be called any more,
///                     also when this call fails; may be NULL.
/// @return MLXB_OK; MLXB_INVALID_ARGUMENT for a level that is none.
///
/// Ownership: the library keeps `user_data` until it calls `destroy`.
/// Thread: any; replacing a receiver does not wait for a call to it that runs. Since 0.1.0.
///
/// # Safety
/// `receive` and `destroy` may be called with `user_data` from any thread; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_log_set(
    max_level: i32,
    receive: mlxb_log_fn,
    user_data: *mut c_void,
    destroy: mlxb_destroy_fn,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise.
    unsafe {
        guard(error, || {
            let new = match receive {
                Some(receive) => Some(Sink {
                    receive,
                    destroy,
                    user_data,
                }),
                None => {
                    if let Some(destroy) = destroy {
                        destroy(user_data);
                    }
                    None
                }
            };
            let filter = match max_level {
                0 => LevelFilter::Off,
                1 => LevelFilter::Error,
                2 => LevelFilter::Warn,
                3 => LevelFilter::Info,
                4 => LevelFilter::Debug,
                5 => LevelFilter::Trace,
                _ => {
                    return Err(Error::new(
                        Kind::InvalidArgument,
                        format!("max_level is no log level: {max_level}"),
                    ));
                }
            };
            // A Rust host may have a logger of its own, which then goes on receiving.
            let _ = log::set_logger(&Forwarder);
            log::set_max_level(filter);
            let mut sink = SINK.write().unwrap_or_else(PoisonError::into_inner);
            let old = std::mem::replace(&mut *sink, new.map(Arc::new));
            drop(sink);
            drop(old);
            Ok(())
        })
    }
}
