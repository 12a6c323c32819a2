//! Events: what callbacks are told.

use std::ffi::c_void;

use super::mlxb_str;
use crate::cancel::Flow;

/// What an event tells. New kinds may appear in later versions: ignore those that you do not
/// know.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum mlxb_event_kind {
    /// `done` of `total` prompt tokens have been run.
    MLXB_EVENT_PREFILL = 1,
    /// `token` was sampled, the end token included.
    MLXB_EVENT_TOKEN = 2,
    /// `text` is complete: whole characters, and no part of a stop string.
    MLXB_EVENT_TEXT = 3,
    /// `done` of `total` bytes of weights have been read.
    MLXB_EVENT_LOAD = 4,
    /// How far a conversion is, in bytes of weights, or a report on one, in runs of the model:
    /// `done` of `total`.
    MLXB_EVENT_QUANTIZE = 5,
}

/// What a callback returns.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum mlxb_flow {
    /// Go on.
    MLXB_CONTINUE = 0,
    /// End here.
    MLXB_STOP = 1,
}

/// An event. Fields that its kind does not name are zero.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct mlxb_event {
    /// Bytes of this struct that the library filled in.
    pub struct_size: usize,
    /// What it tells.
    pub kind: mlxb_event_kind,
    /// A token id.
    pub token: u32,
    /// Text; lives for the call.
    pub text: mlxb_str,
    /// The token's log-probability; NaN where it was not asked for, -9999 for a token that is
    /// impossible or whose logits are no numbers.
    pub logprob: f32,
    /// The most likely ids, best first, impossible ones left out; lives for the call. NULL with
    /// top_count 0.
    pub top_tokens: *const u32,
    /// Their log-probabilities; lives for the call. NULL with top_count 0.
    pub top_logprobs: *const f32,
    /// Ids at top_tokens.
    pub top_count: usize,
    /// Progress: so much of `total`.
    pub done: u64,
    /// Progress: all of it.
    pub total: u64,
}

impl mlxb_event {
    /// An event with nothing but its kind.
    pub(crate) fn new(kind: mlxb_event_kind) -> Self {
        Self {
            struct_size: size_of::<Self>(),
            kind,
            token: 0,
            text: "".into(),
            logprob: 0.0,
            top_tokens: std::ptr::null(),
            top_logprobs: std::ptr::null(),
            top_count: 0,
            done: 0,
            total: 0,
        }
    }
}

/// Receives events, on the thread that made the call, one at a time. `event` lives for the
/// call. Returns MLXB_CONTINUE, or MLXB_STOP to end. It may call any function of the library;
/// one that would wait for this very call returns MLXB_BUSY. It must not throw or longjmp, nor
/// free the handles that the call uses.
pub type mlxb_event_fn =
    Option<unsafe extern "C" fn(user_data: *mut c_void, event: *const mlxb_event) -> i32>;

/// A callback with its data, for use on the calling thread.
#[derive(Clone, Copy)]
pub(crate) struct Callback {
    function: mlxb_event_fn,
    user_data: *mut c_void,
}

impl Callback {
    /// # Safety
    /// `function` may be called with `user_data` for as long as the callback is used.
    pub(crate) unsafe fn new(function: mlxb_event_fn, user_data: *mut c_void) -> Self {
        Self {
            function,
            user_data,
        }
    }

    /// What the receiver wants; to go on without one. Numbers other than MLXB_CONTINUE mean to
    /// stop: a receiver that is confused should not be called again.
    pub(crate) fn tell(&self, event: &mlxb_event) -> Flow {
        let Some(function) = self.function else {
            return Flow::Continue;
        };
        // SAFETY: the promise made to `new`.
        let flow = unsafe { function(self.user_data, event) };
        if flow == mlxb_flow::MLXB_CONTINUE as i32 {
            Flow::Continue
        } else {
            Flow::Stop
        }
    }
}
