//! Who put the states of a namespace, for the caller's hook.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use super::namespace::Namespace;

/// What a namespace stands for: the caller's name of it, and a model that makes its states.
pub(super) struct Owner<M> {
    pub(super) name: Arc<str>,
    pub(super) model: Weak<M>,
}

impl<M> Clone for Owner<M> {
    fn clone(&self) -> Self {
        Self {
            name: Arc::clone(&self.name),
            model: Weak::clone(&self.model),
        }
    }
}

/// The owners of the namespaces that have states.
pub(super) struct Owners<M> {
    known: HashMap<Namespace, Owner<M>>,
}

/// Owners of nothing that are not looked for.
const SPARE: usize = 16;

impl<M> Owners<M> {
    pub(super) fn new() -> Self {
        Self {
            known: HashMap::new(),
        }
    }

    /// Notes the owner of a namespace, unless one is known whose model is still there. Others, of
    /// which `has_states` says no, are forgotten once they are more than those of which it says
    /// yes.
    pub(super) fn note(
        &mut self,
        namespace: Namespace,
        owner: &Owner<M>,
        state_namespaces: usize,
        has_states: impl Fn(&Namespace) -> bool,
    ) {
        let known = self.known.get(&namespace);
        if known.is_none_or(|known| known.model.strong_count() == 0) {
            self.known.insert(namespace, owner.clone());
        }
        if self.known.len() > 2 * state_namespaces + SPARE {
            self.known
                .retain(|known, _| *known == namespace || has_states(known));
        }
    }

    pub(super) fn of(&self, namespace: &Namespace) -> Option<Owner<M>> {
        self.known.get(namespace).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(name: &str, model: &Arc<()>) -> Owner<()> {
        Owner {
            name: name.into(),
            model: Arc::downgrade(model),
        }
    }

    #[test]
    fn owners_of_nothing_are_forgotten() {
        let model = Arc::new(());
        let mut owners = Owners::new();
        let kept = |namespace: &Namespace| namespace.0[0] == 0;
        for number in 0..=u8::MAX {
            let namespace = Namespace([number; 32]);
            owners.note(namespace, &owner("name", &model), 1, kept);
            assert!(owners.known.len() <= 2 + SPARE);
            assert!(owners.of(&namespace).is_some());
            assert!(owners.of(&Namespace([0; 32])).is_some());
        }
    }

    #[test]
    fn a_model_that_is_gone_makes_room_for_another() {
        let (gone, alive) = (Arc::new(()), Arc::new(()));
        let mut owners = Owners::new();
        let namespace = Namespace([1; 32]);
        owners.note(namespace, &owner("a", &gone), 1, |_| true);
        owners.note(namespace, &owner("b", &alive), 1, |_| true);
        assert_eq!(&*owners.of(&namespace).unwrap().name, "a");
        drop(gone);
        owners.note(namespace, &owner("b", &alive), 1, |_| true);
        assert!(owners.of(&namespace).unwrap().model.upgrade().is_some());
    }
}
