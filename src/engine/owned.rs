//! What lives on the engine thread, held from elsewhere.

use std::{cell::Cell, mem::ManuallyDrop};

use super::{Mlx, run_later};

/// A value that only the engine thread touches: opened with [`Mlx`], dropped over there.
pub(crate) struct Owned<T: Send + 'static>(ManuallyDrop<T>);

// SAFETY: every access to the value takes a `&Mlx`, which exists on the engine thread only, so
// no two threads ever share it; moving it there is what `T: Send` allows.
unsafe impl<T: Send + 'static> Sync for Owned<T> {}

impl<T: Send + 'static> Owned<T> {
    pub(crate) fn new(value: T, _: &Mlx) -> Self {
        Self(ManuallyDrop::new(value))
    }

    pub(crate) fn get(&self, _: &Mlx) -> &T {
        &self.0
    }

    pub(crate) fn into_inner(self, _: &Mlx) -> T {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is never dropped, so the value is taken once.
        unsafe { ManuallyDrop::take(&mut this.0) }
    }
}

/// For values that hold nothing of MLX to begin with.
impl<T: Default + Send + 'static> Default for Owned<T> {
    fn default() -> Self {
        Self(ManuallyDrop::new(T::default()))
    }
}

thread_local! {
    static IS_ENGINE: Cell<bool> = const { Cell::new(false) };
}

/// Says that this is the engine thread.
pub(super) fn this_is_the_engine() {
    IS_ENGINE.set(true);
}

/// Whether this is the engine thread, which cannot wait for itself.
pub(crate) fn is_engine_thread() -> bool {
    IS_ENGINE.try_with(Cell::get) == Ok(true)
}

impl<T: Send + 'static> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: this is the drop, so the value is taken once.
        let value = unsafe { ManuallyDrop::take(&mut self.0) };
        // A command to itself would come too late for an engine that is about to stop.
        if is_engine_thread() {
            drop(value);
            return;
        }
        // Without an engine (the process exits, or is a fork) the value can only be leaked:
        // freeing it here would call MLX from the wrong thread.
        let value = ManuallyDrop::new(value);
        let free = Box::new(move |_: &Mlx| drop(ManuallyDrop::into_inner(value)));
        if let Err(unsent) = run_later(free) {
            std::mem::forget(unsent);
        }
    }
}
