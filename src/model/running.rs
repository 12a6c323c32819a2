//! The state of a sequence while a generation extends it.

use std::{
    cell::{RefCell, RefMut},
    sync::atomic::{AtomicBool, Ordering},
};

use super::{LayerCache, State};
use crate::engine::{Mlx, Owned, wake};

/// Layers in the hands of a generation, which others may borrow from at the boundary of two steps.
pub(crate) struct Running {
    /// What the generation was given to run: its layers come to hold these, then its answer.
    context: Box<[u32]>,
    inner: Owned<RefCell<Inner>>,
    /// Whether the generation has left, be it by a panic.
    is_over: AtomicBool,
    is_awaited: AtomicBool,
}

#[derive(Default)]
struct Inner {
    layers: Vec<LayerCache>,
    /// Tokens that all layers have seen: as of the last boundary of two steps.
    fed: usize,
    /// Whether the generation waits for its caller, nobody knows how long.
    is_stalled: bool,
    /// What was left at the end.
    left: Option<State>,
}

/// What a borrower gets.
pub(crate) enum Loan {
    /// Layers of so many tokens of the context; 0 of an empty list.
    Now(Vec<LayerCache>, usize),
    /// Not yet: the engine wakes its tasks when there is more.
    Wait,
}

impl Running {
    pub(crate) fn new(context: &[u32]) -> Self {
        Self {
            context: context.into(),
            inner: Owned::default(),
            is_over: AtomicBool::new(false),
            is_awaited: AtomicBool::new(false),
        }
    }

    /// The tokens that the generation was given.
    pub(crate) fn context(&self) -> &[u32] {
        &self.context
    }

    /// The layers, for the generation itself to extend.
    pub(crate) fn layers<'a>(&'a self, mlx: &'a Mlx) -> RefMut<'a, Vec<LayerCache>> {
        RefMut::map(self.inner.get(mlx).borrow_mut(), |inner| &mut inner.layers)
    }

    /// Says that all layers have seen `fed` tokens now.
    pub(crate) fn has_fed(&self, fed: usize, mlx: &Mlx) {
        self.inner.get(mlx).borrow_mut().fed = fed;
        self.wake_borrowers();
    }

    /// Says whether the generation waits for its caller.
    pub(crate) fn set_stalled(&self, is_stalled: bool, mlx: &Mlx) {
        self.inner.get(mlx).borrow_mut().is_stalled = is_stalled;
        if is_stalled {
            self.wake_borrowers();
        }
    }

    /// Says what is left at the end.
    pub(crate) fn leave(&self, state: State, mlx: &Mlx) {
        self.inner.get(mlx).borrow_mut().left = Some(state);
    }

    /// Says that the generation is not there any more.
    pub(crate) fn is_over(&self) {
        self.is_over.store(true, Ordering::Release);
        self.wake_borrowers();
    }

    /// The first `token_count` tokens of the context, or as many as there are where no more are
    /// to be expected soon. They share the generation's buffers until one side writes.
    pub(crate) fn borrow(&self, token_count: usize, mlx: &Mlx) -> Loan {
        let inner = self.inner.get(mlx).borrow();
        let comes = !inner.is_stalled && !self.is_over.load(Ordering::Acquire);
        if inner.fed < token_count && comes {
            self.is_awaited.store(true, Ordering::Release);
            return Loan::Wait;
        }
        drop(inner);
        let (layers, token_count) = self.borrow_now(token_count, mlx);
        Loan::Now(layers, token_count)
    }

    /// As [`Self::borrow`], without waiting.
    pub(crate) fn borrow_now(&self, token_count: usize, mlx: &Mlx) -> (Vec<LayerCache>, usize) {
        let inner = self.inner.get(mlx).borrow();
        if let Some(left) = &inner.left {
            return left.clone().truncated(token_count).lend(mlx);
        }
        // It left nothing: a step that panicked may have left its layers half written.
        if self.is_over.load(Ordering::Acquire) {
            return (Vec::new(), 0);
        }
        let token_count = token_count.min(inner.fed);
        let mut layers = inner.layers.clone();
        for layer in &mut layers {
            layer.trim_to(token_count);
        }
        (layers, token_count)
    }

    fn wake_borrowers(&self) {
        if self.is_awaited.swap(false, Ordering::AcqRel) {
            wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::engine;

    #[test]
    fn what_a_panic_left_behind_is_not_lent() {
        let work = |mlx: &Mlx| {
            let running = Running::new(&[1, 2, 3]);
            running.has_fed(2, mlx);
            assert!(matches!(running.borrow(3, mlx), Loan::Wait));
            assert_eq!(running.borrow_now(3, mlx).1, 2);
            running.is_over();
            assert!(matches!(running.borrow(3, mlx), Loan::Now(_, 0)));
            assert_eq!(running.borrow_now(3, mlx).1, 0);
        };
        engine().unwrap().run(work).unwrap();
    }
}
