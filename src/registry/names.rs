//! The names that the hub's folders and files bear.

use std::ffi::OsStr;

/// What a repository of the hub holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RepoKind {
    /// `models--*`
    Model,
    /// `datasets--*`
    Dataset,
    /// `spaces--*`
    Space,
    /// `kernels--*`
    Kernel,
}

impl RepoKind {
    const ALL: [Self; 4] = [Self::Model, Self::Dataset, Self::Space, Self::Kernel];

    fn prefix(self) -> &'static str {
        match self {
            Self::Model => "models--",
            Self::Dataset => "datasets--",
            Self::Space => "spaces--",
            Self::Kernel => "kernels--",
        }
    }
}

/// Kind and id of the repository in a folder of that name, if it is a repository's.
///
/// The hub writes `/` as `--`. Ids have one `/` at the most, so the first `--` is it and later
/// ones belong to the name: `models--a--b--c` is `a/b--c`. [`repo_folder`] is the way back for
/// every folder name.
pub fn parse_repo_folder(folder: &str) -> Option<(RepoKind, String)> {
    let (kind, rest) = RepoKind::ALL
        .into_iter()
        .find_map(|kind| Some((kind, folder.strip_prefix(kind.prefix())?)))?;
    if rest.is_empty() {
        return None;
    }
    let id = match rest.split_once("--") {
        Some((owner, name)) if !owner.is_empty() && !name.is_empty() => format!("{owner}/{name}"),
        _ => rest.to_owned(),
    };
    Some((kind, id))
}

/// The folder that holds the repository `id`.
pub fn repo_folder(kind: RepoKind, id: &str) -> String {
    format!("{}{}", kind.prefix(), id.replace('/', "--"))
}

/// Files that operating systems and backup tools leave everywhere; they mean nothing here.
pub(crate) fn is_noise(name: &OsStr) -> bool {
    let bytes = name.as_encoded_bytes();
    bytes.starts_with(b"._")
        || matches!(
            bytes,
            b".DS_Store" | b"CACHEDIR.TAG" | b"Thumbs.db" | b"desktop.ini" | b".localized"
        )
}

/// Lock files and unfinished downloads: whoever made them may still be at work.
pub(crate) fn is_in_flight(name: &OsStr) -> bool {
    let bytes = name.as_encoded_bytes();
    bytes.ends_with(b".lock") || bytes.ends_with(b".incomplete")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_names_are_decoded_and_encoded() {
        for (folder, id) in [
            ("models--gpt2", "gpt2"),
            ("models--org--name", "org/name"),
            ("models--a--b--c", "a/b--c"),
            ("models--a---b", "a/-b"),
            ("models----b", "--b"),
            ("models--a--", "a--"),
            ("models--a----", "a/--"),
        ] {
            assert_eq!(
                parse_repo_folder(folder),
                Some((RepoKind::Model, id.to_owned())),
                "{folder}"
            );
            assert_eq!(repo_folder(RepoKind::Model, id), folder);
        }
        for (folder, kind) in [
            ("datasets--x--y", RepoKind::Dataset),
            ("spaces--x--y", RepoKind::Space),
            ("kernels--x--y", RepoKind::Kernel),
        ] {
            assert_eq!(parse_repo_folder(folder), Some((kind, "x/y".to_owned())));
        }
        for folder in ["blobs", ".locks", "models", "models--", "model--a--b", ""] {
            assert_eq!(parse_repo_folder(folder), None, "{folder}");
        }
    }
}
