//! What links lead to: whatever something surviving reaches must stay.

use std::{
    collections::{BTreeSet, HashSet},
    path::{Path, PathBuf},
};

use crate::registry::{
    layout::{Content, Hub},
    links::{End, Way},
};

/// All places that something surviving leads to.
#[derive(Default)]
pub(super) struct Reach {
    places: HashSet<PathBuf>,
    /// Folders that are reached as such, and so with all that is in them.
    folders: BTreeSet<PathBuf>,
}

impl Reach {
    pub(super) fn add(&mut self, way: &Way) {
        self.places.extend(way.places().map(Path::to_path_buf));
        if let End::Folder(folder) = &way.end {
            self.folders.insert(folder.clone());
        }
    }

    pub(super) fn contains(&self, path: &Path) -> bool {
        self.places.contains(path)
            || (!self.folders.is_empty() && path.ancestors().any(|up| self.folders.contains(up)))
    }

    /// The folders of the hub in which something is reached.
    pub(super) fn folders_with_places(&self, root: &Path) -> HashSet<&Path> {
        self.places
            .iter()
            .flat_map(|place| place.ancestors().skip(1))
            .filter(|folder| folder.starts_with(root))
            .collect()
    }

    /// A folder that is reached brings the links in it along, those of blobs too.
    pub(super) fn add_links_in_reached_folders(&mut self, hub: &Hub) {
        if self.folders.is_empty() {
            return;
        }
        let mut seen = 0;
        while seen != self.places.len() + self.folders.len() {
            seen = self.places.len() + self.folders.len();
            for repo in &hub.repos {
                let blobs = repo.blobs.iter().map(|blob| (&blob.path, &blob.content));
                let files = repo
                    .snapshots
                    .iter()
                    .flat_map(|snapshot| &snapshot.files)
                    .chain(&repo.bookkeeping)
                    .map(|file| (&file.path, &file.content));
                for (path, content) in blobs.chain(files) {
                    if let Content::Link(way) = content
                        && self.contains(path)
                    {
                        self.add(way);
                    }
                }
            }
        }
    }
}

/// Every place that any link of a repository leads to.
pub(super) fn linked_places(hub: &Hub) -> HashSet<&Path> {
    hub.repos
        .iter()
        .flat_map(|repo| {
            let blobs = repo.blobs.iter().map(|blob| &blob.content);
            let files = repo.snapshots.iter().flat_map(|snapshot| &snapshot.files);
            blobs.chain(files.map(|file| &file.content))
        })
        .filter_map(|content| match content {
            Content::Link(way) => Some(way.places()),
            Content::Regular(_) | Content::Other => None,
        })
        .flatten()
        .collect()
}
