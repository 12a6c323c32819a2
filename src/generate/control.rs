//! What the caller's side and the engine's side of a generation share.

use std::sync::atomic::{AtomicBool, Ordering};

/// Flags between a generation's two threads.
#[derive(Default)]
pub(crate) struct Control {
    stop: AtomicBool,
    abandoned: AtomicBool,
    waits_for_room: AtomicBool,
}

impl Control {
    /// Asks the engine to end before its next step.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Says that nobody takes updates any more.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::SeqCst)
    }

    /// Says that the engine passes the generation over until there is room for an update.
    pub(crate) fn await_room(&self) {
        self.waits_for_room.store(true, Ordering::SeqCst);
    }

    /// Whether the engine must be woken, now that there is room.
    pub(crate) fn room_was_awaited(&self) -> bool {
        self.waits_for_room.swap(false, Ordering::SeqCst)
    }
}
