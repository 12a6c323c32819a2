//! What the caller's side and the engine's side of a generation share, and why neither waits for
//! ever.
//!
//! # Who waits for whom
//!
//! The caller's thread waits in one place, for the next update. The engine's thread waits in one
//! place, for the next command, and only while no task can be stepped; it never waits for a
//! caller. So a cycle of waiting would need the engine to sleep while a caller waits for it:
//!
//! - *A command is not overlooked.* Commands go through an unbounded channel: sending never
//!   waits, and the engine sleeps only on that very channel.
//! - *An update is not lost.* A task begins a step only with room for all that a step tells
//!   (`UPDATES_A_STEP`), it alone sends, and receiving only makes more room.
//! - *A task that waits for room is woken.* The engine raises `waits_for_room` and then looks at
//!   the room once more; the caller takes an update and then lowers the flag, sending a wake if it
//!   was up. Both are sequentially consistent. Take the update whose removal makes enough room. If
//!   it is removed before the engine's second look, the engine sees the room and goes on. If
//!   after, then the flag went up before, so the caller finds it up at the latest now (had it been
//!   lowered in between, that was for an earlier update, whose wake makes the engine look again)
//!   and sends a wake. The wake cannot come too early: it is a command, and the engine takes
//!   commands after it has marked the task as waiting. A wake too many costs one look.
//! - *A full channel has something to take.* It has room for more than a step tells, so while the
//!   engine waits for room the caller has an update to take, unless its callback runs. A callback
//!   that takes its time delays its own generation alone: the engine passes over it.
//! - *The end comes.* Whatever happens to a task (its last update, a panic in a step, the process
//!   exiting), its sender is dropped with it, and the caller's wait ends. Whatever happens to the
//!   caller (a callback that panics), its guard raises `abandoned` and sends a wake, and the task
//!   looks at that flag first.
//! - *A callback may call the library.* It runs with no lock held, and the engine does not wait
//!   for it. What would wait for this very generation, its kv, answers "busy".
//! - *Who borrows does not wait for a callback.* A generation that starts from another's layers
//!   waits for its steps. Others find it only behind its first event, so that no callback runs
//!   between being found and being started; from then on a callback that takes its time fills the
//!   channel, and what is there by then is lent.
//!
//! Locks are held for a few plain statements each (a kv's slot, the book of admitted memory), by
//! either thread, and never two at once nor across a call of MLX or of a callback.
//!
//! # What the flags order
//!
//! `stop` carries no data: a stale read costs the engine one more step, whose tokens are not told.
//! Everything else that crosses goes through a channel, which orders it.

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
