//! Asking a running call to stop.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use crate::error::{Error, Kind, Result};

/// A request to stop that can be made from any thread, before or during the calls that look at
/// it. It stays requested: use a new one for the next call.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Not requested yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks the calls that hold a clone of this to stop.
    pub fn request(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether [`request`](Self::request) was called.
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// An error of [`Kind::Cancelled`] once requested.
    pub(crate) fn check(cancel: Option<&Self>) -> Result<()> {
        match cancel {
            Some(cancel) if cancel.is_requested() => Err(cancelled()),
            _ => Ok(()),
        }
    }
}

/// What a cancelled call fails with, where it has nothing to return.
pub(crate) fn cancelled() -> Error {
    Error::new(Kind::Cancelled, "cancelled by the caller")
}

/// What a callback wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Go on.
    Continue,
    /// End here.
    Stop,
}
