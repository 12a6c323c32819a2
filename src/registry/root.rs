//! Where the hub and the registry's database are.

use std::{
    env,
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use crate::error::{Error, Kind, Result};
use crate::escape::EscapedPath;

/// The environment as far as paths depend on it; tests bring their own.
pub(crate) trait Environment {
    /// The value of a variable; an empty one counts as unset.
    fn variable(&self, name: &OsStr) -> Option<OsString>;
    /// The user's home folder.
    fn home(&self) -> Option<PathBuf>;
}

/// The process's own environment.
pub(crate) struct ProcessEnvironment;

impl Environment for ProcessEnvironment {
    fn variable(&self, name: &OsStr) -> Option<OsString> {
        env::var_os(name).filter(|value| !value.is_empty())
    }

    fn home(&self) -> Option<PathBuf> {
        env::home_dir().filter(|home| !home.as_os_str().is_empty())
    }
}

/// The hub's root, as an absolute path without symbolic links.
///
/// `explicit` wins (a leading `~` is expanded); else the variables that huggingface_hub reads, in
/// its order: `HF_HUB_CACHE`, `HUGGINGFACE_HUB_CACHE`, `HF_HOME` + `/hub`, `XDG_CACHE_HOME` +
/// `/huggingface/hub`, `~/.cache/huggingface/hub`, with `~` and `$VAR` expanded in each. Unlike
/// there, an empty variable counts as unset instead of naming the working directory.
///
/// # Errors
/// [`Kind::NotFound`] when there is no such folder or no home folder to find it under,
/// [`Kind::InvalidArgument`] when it is not a folder, [`Kind::InvalidUtf8`] when its path
/// cannot be written as text.
pub(crate) fn hub_root(explicit: Option<&Path>, environment: &dyn Environment) -> Result<PathBuf> {
    let named = named_hub_root(explicit, environment)?;
    let root = named
        .canonicalize()
        .map_err(|error| Error::io(format_args!("hub folder {}", EscapedPath(&named)), error))?;
    if !root.is_dir() {
        return Err(Error::new(
            Kind::InvalidArgument,
            format!("hub is not a folder: {}", EscapedPath(&root)),
        ));
    }
    if root.to_str().is_none() {
        return Err(Error::new(
            Kind::InvalidUtf8,
            format!("hub path is not valid UTF-8: {}", EscapedPath(&root)),
        ));
    }
    Ok(root)
}

fn named_hub_root(explicit: Option<&Path>, environment: &dyn Environment) -> Result<PathBuf> {
    if let Some(explicit) = explicit {
        return expand_home(explicit.as_os_str(), environment);
    }
    for name in ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"] {
        if let Some(value) = environment.variable(OsStr::new(name)) {
            return expand(&value, environment);
        }
    }
    if let Some(value) = environment.variable(OsStr::new("HF_HOME")) {
        return Ok(expand(&value, environment)?.join("hub"));
    }
    let cache = match environment.variable(OsStr::new("XDG_CACHE_HOME")) {
        Some(value) => expand(&value, environment)?,
        None => home(environment)?.join(".cache"),
    };
    Ok(cache.join("huggingface").join("hub"))
}

/// The database's default place: `mlxb/registry.sqlite` in the user's cache folder.
///
/// # Errors
/// [`Kind::NotFound`] when there is no home folder.
pub(crate) fn default_database(environment: &dyn Environment) -> Result<PathBuf> {
    let cache = match environment.variable(OsStr::new("XDG_CACHE_HOME")) {
        Some(value) => expand(&value, environment)?,
        None if cfg!(target_os = "macos") => home(environment)?.join("Library").join("Caches"),
        None => home(environment)?.join(".cache"),
    };
    Ok(cache.join("mlxb").join("registry.sqlite"))
}

fn home(environment: &dyn Environment) -> Result<PathBuf> {
    environment
        .home()
        .ok_or_else(|| Error::new(Kind::NotFound, "no home folder: set HOME"))
}

fn expand(value: &OsStr, environment: &dyn Environment) -> Result<PathBuf> {
    let value = expand_home(value, environment)?;
    Ok(expand_variables(value.as_os_str(), environment).into())
}

/// `~` and `~/rest`; `~user` stays as it is.
fn expand_home(value: &OsStr, environment: &dyn Environment) -> Result<PathBuf> {
    match value.as_bytes() {
        b"~" => home(environment),
        [b'~', b'/', rest @ ..] => {
            let slashes = rest.iter().take_while(|&&byte| byte == b'/').count();
            Ok(home(environment)?.join(OsStr::from_bytes(&rest[slashes..])))
        }
        _ => Ok(PathBuf::from(value)),
    }
}

/// `$NAME` and `${NAME}`; names that are not set stay as they are.
fn expand_variables(value: &OsStr, environment: &dyn Environment) -> OsString {
    let bytes = value.as_bytes();
    let mut expanded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] == b'$'
            && let Some((name, length)) = variable_name(&bytes[at + 1..])
        {
            match environment.variable(OsStr::from_bytes(name)) {
                Some(content) => expanded.extend_from_slice(content.as_bytes()),
                None => expanded.extend_from_slice(&bytes[at..=at + length]),
            }
            at += 1 + length;
        } else {
            expanded.push(bytes[at]);
            at += 1;
        }
    }
    OsString::from_vec(expanded)
}

/// The variable's name at the start of `text` (which follows a `$`), and how long its mention is.
fn variable_name(text: &[u8]) -> Option<(&[u8], usize)> {
    if let Some(braced) = text.strip_prefix(b"{") {
        let end = braced.iter().position(|&byte| byte == b'}')?;
        return Some((&braced[..end], end + 2));
    }
    let end = text
        .iter()
        .position(|&byte| !byte.is_ascii_alphanumeric() && byte != b'_')
        .unwrap_or(text.len());
    (end > 0).then_some((&text[..end], end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    struct Table(HashMap<&'static str, &'static str>);

    impl Environment for Table {
        fn variable(&self, name: &OsStr) -> Option<OsString> {
            let value = self.0.get(name.to_str()?)?;
            (!value.is_empty()).then(|| value.into())
        }

        fn home(&self) -> Option<PathBuf> {
            self.0.get("HOME").map(PathBuf::from)
        }
    }

    #[test]
    fn the_hub_is_where_huggingface_hub_has_it() {
        let home = ("HOME", "/home/u");
        for (variables, expected) in [
            (vec![home], "/home/u/.cache/huggingface/hub"),
            (vec![home, ("XDG_CACHE_HOME", "/x")], "/x/huggingface/hub"),
            (
                vec![home, ("XDG_CACHE_HOME", "~/x")],
                "/home/u/x/huggingface/hub",
            ),
            (
                vec![home, ("HF_HOME", "/hf"), ("XDG_CACHE_HOME", "/x")],
                "/hf/hub",
            ),
            (vec![home, ("HF_HOME", "/hf/")], "/hf/hub"),
            (vec![home, ("HF_HOME", "~")], "/home/u/hub"),
            (
                vec![home, ("HUGGINGFACE_HUB_CACHE", "/old"), ("HF_HOME", "/hf")],
                "/old",
            ),
            (
                vec![
                    home,
                    ("HF_HUB_CACHE", "/new"),
                    ("HUGGINGFACE_HUB_CACHE", "/old"),
                ],
                "/new",
            ),
            (
                vec![home, ("HF_HUB_CACHE", ""), ("HF_HOME", "/hf")],
                "/hf/hub",
            ),
            (
                vec![home, ("HF_HUB_CACHE", "$D/hub"), ("D", "/d")],
                "/d/hub",
            ),
            (
                vec![home, ("HF_HUB_CACHE", "${D}hub"), ("D", "/d/")],
                "/d/hub",
            ),
            (
                vec![home, ("HF_HUB_CACHE", "/a/$NOT_SET/b")],
                "/a/$NOT_SET/b",
            ),
            (vec![home, ("HF_HUB_CACHE", "/a/$/${x")], "/a/$/${x"),
            (vec![home, ("HF_HUB_CACHE", "~//hub/")], "/home/u/hub/"),
            (vec![home, ("HF_HUB_CACHE", "~other/hub")], "~other/hub"),
        ] {
            let environment = Table(variables.iter().copied().collect());
            let root = named_hub_root(None, &environment).unwrap();
            assert_eq!(root.as_os_str(), expected, "{variables:?}");
            let explicit = named_hub_root(Some(Path::new("~/mine")), &environment).unwrap();
            assert_eq!(explicit, Path::new("/home/u/mine"));
        }
        let nowhere = named_hub_root(None, &Table(HashMap::new())).unwrap_err();
        assert_eq!(nowhere.kind(), Kind::NotFound);
    }

    #[test]
    fn a_linked_root_and_a_trailing_slash_are_one_place() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap().join("real");
        std::fs::create_dir(&real).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let mut slash = link.clone().into_os_string();
        slash.push("/");
        for path in [link.as_path(), Path::new(&slash), &real] {
            assert_eq!(hub_root(Some(path), &ProcessEnvironment).unwrap(), real);
        }
        let missing = hub_root(Some(&real.join("none")), &ProcessEnvironment).unwrap_err();
        assert_eq!(missing.kind(), Kind::NotFound);
        std::fs::write(real.join("file"), "").unwrap();
        let file = hub_root(Some(&real.join("file")), &ProcessEnvironment).unwrap_err();
        assert_eq!(file.kind(), Kind::InvalidArgument);
    }

    #[test]
    fn the_database_is_in_the_cache_folder() {
        let environment = Table([("HOME", "/h"), ("XDG_CACHE_HOME", "/x")].into());
        let path = default_database(&environment).unwrap();
        assert_eq!(path, Path::new("/x/mlxb/registry.sqlite"));
    }
}
