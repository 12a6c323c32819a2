//! The files of `src/ffi`, parsed.

use std::{
    fs,
    path::{Path, PathBuf},
};

use syn::{Attribute, Item, Visibility};

use crate::Result;

/// What `bool` is called in structs that C fills, where Rust must not trust the byte.
pub(crate) const BOOL: &str = "CBool";

/// One file.
pub(crate) struct Source {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// Its name below `src/ffi`, or that of its folder there.
    pub(crate) room: String,
    /// What it defines.
    pub(crate) items: Vec<Item>,
}

/// All files below `folder`, sorted.
pub(crate) fn read(folder: &Path) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    let mut entries = fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    entries.sort();
    for path in entries {
        let room = path
            .file_stem()
            .map(|stem| stem.to_string_lossy().into_owned())
            .ok_or("a file without a name")?;
        if path.is_dir() {
            let inside = read(&path)?;
            sources.extend(inside.into_iter().map(|source| Source {
                room: room.clone(),
                ..source
            }));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let file = syn::parse_file(&fs::read_to_string(&path)?)
                .map_err(|error| format!("{}: {error}", path.display()))?;
            sources.push(Source {
                items: file.items,
                path,
                room,
            });
        }
    }
    Ok(sources)
}

impl Source {
    /// The functions that C may call.
    pub(crate) fn functions(&self) -> Vec<String> {
        let exported = self.items.iter().filter_map(|item| match item {
            Item::Fn(function) if is_exported(&function.attrs) => Some(&function.sig.ident),
            _ => None,
        });
        exported.map(ToString::to_string).collect()
    }

    /// All that C may name.
    pub(crate) fn names(&self) -> Vec<String> {
        let types = self.items.iter().filter_map(|item| {
            let (visibility, name) = match item {
                Item::Const(item) => (&item.vis, &item.ident),
                Item::Enum(item) => (&item.vis, &item.ident),
                Item::Struct(item) => (&item.vis, &item.ident),
                Item::Type(item) => (&item.vis, &item.ident),
                _ => return None,
            };
            (matches!(visibility, Visibility::Public(_)) && name != BOOL).then(|| name.to_string())
        });
        types.chain(self.functions()).collect()
    }
}

fn is_exported(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("unsafe")
            && attribute
                .parse_args::<syn::Path>()
                .is_ok_and(|inner| inner.is_ident("no_mangle"))
    })
}

/// Whether a type's layout is C's.
pub(crate) fn is_repr_c(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("repr")
            && attribute
                .parse_args::<syn::Path>()
                .is_ok_and(|inner| inner.is_ident("C"))
    })
}

/// The library's version, from its Cargo.toml.
pub(crate) fn package_version(root: &Path) -> Result<String> {
    let manifest = fs::read_to_string(root.join("Cargo.toml"))?;
    let version = manifest
        .lines()
        .find_map(|line| line.strip_prefix("version = \""))
        .and_then(|rest| rest.strip_suffix('"'))
        .ok_or("Cargo.toml has no version")?;
    Ok(version.to_owned())
}
