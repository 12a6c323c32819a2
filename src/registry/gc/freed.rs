//! The bytes that deleting files frees.

use std::collections::HashMap;

use crate::registry::{layout::Content, links::Identity};

/// Files that go, to count the bytes that this frees: a file with several names is free when
/// its last name goes.
#[derive(Default)]
pub(super) struct Removed {
    files: HashMap<(u64, u64), (Identity, u64)>,
}

impl Removed {
    pub(super) fn add(&mut self, identity: &Identity) {
        self.files
            .entry((identity.device, identity.inode))
            .or_insert((*identity, 0))
            .1 += 1;
    }

    pub(super) fn add_content(&mut self, content: &Content) {
        if let Content::Regular(identity) = content {
            self.add(identity);
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.files
            .values()
            .filter(|(identity, names)| *names >= identity.name_count)
            .map(|(identity, _)| identity.bytes)
            .sum()
    }
}
