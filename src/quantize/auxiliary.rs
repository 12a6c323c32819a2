//! The files of a model beside its weights and its configuration.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    path::Path,
};

use crate::{
    error::{Error, Result},
    escape::EscapedPath,
    regular_file,
};

/// The card that says where a model comes from.
pub(super) const CARD: &str = "README.md";

/// The longest card that is read.
const MOST_CARD_BYTES: u64 = 16 << 20;

/// Files that come along as they are.
const COPIED: [&str; 13] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
    "kv_config.json",
    "LICENSE",
    "NOTICE",
];

/// The same, by how their names end: vocabularies in the forms of sentencepiece and tiktoken.
const COPIED_ENDINGS: [&str; 2] = [".model", ".tiktoken"];

fn is_copied(name: &str) -> bool {
    COPIED.contains(&name)
        || COPIED_ENDINGS.iter().any(|ending| name.ends_with(ending)) && !name.starts_with('.')
}

/// Copies what belongs to the model in the folder `from` to the folder `to`. Links are followed:
/// the hub's snapshots consist of them.
///
/// # Errors
/// What the system reports.
pub(super) fn copy(from: &Path, to: &Path) -> Result<()> {
    let io = |error| Error::io(EscapedPath(from), error);
    for entry in fs::read_dir(from).map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        let path = from.join(&name);
        // What is listed and leads nowhere, or is a folder, is not part of the model.
        let is_file = fs::metadata(&path).is_ok_and(|metadata| metadata.is_file());
        if is_file && name.to_str().is_some_and(is_copied) {
            copy_file(&path, &to.join(&name))?;
        }
    }
    Ok(())
}

fn copy_file(from: &Path, to: &Path) -> Result<()> {
    let (mut source, _) = regular_file::open(from)?;
    let io = |error| Error::io(EscapedPath(to), error);
    let mut target = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(to)
        .map_err(io)?;
    io::copy(&mut source, &mut target).map_err(io)?;
    target.sync_all().map_err(io)
}

/// The text of the card in the folder `dir`; `None` where there is none, or none that is text.
///
/// # Errors
/// What the system reports.
pub(super) fn read_card(dir: &Path) -> Result<Option<String>> {
    let path = dir.join(CARD);
    if !path.is_file() {
        return Ok(None);
    }
    let bytes = regular_file::read(&path, MOST_CARD_BYTES)?;
    Ok(String::from_utf8(bytes).ok())
}

/// Writes a new file.
///
/// # Errors
/// What the system reports.
pub(super) fn write(path: &Path, text: &str) -> Result<()> {
    let io = |error| Error::io(EscapedPath(path), error);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .map_err(io)?;
    file.write_all(text.as_bytes()).map_err(io)?;
    file.sync_all().map_err(io)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_come_along_as_contents_and_nothing_else_does() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir(&from).unwrap();
        fs::create_dir(&to).unwrap();
        fs::write(dir.path().join("blob"), "{}").unwrap();
        symlink("../blob", from.join("tokenizer.json")).unwrap();
        symlink("../nowhere", from.join("vocab.json")).unwrap();
        for name in [
            "spiece.model",
            "%s%n.model",
            "x.tiktoken",
            "kv_config.json",
            "config.json",
            "README.md",
            "model.safetensors",
            "modeling_llama.py",
            "._tokenizer.model",
            "pytorch_model.bin",
        ] {
            fs::write(from.join(name), name).unwrap();
        }
        fs::create_dir(from.join("merges.txt")).unwrap();
        copy(&from, &to).unwrap();
        let mut names: Vec<_> = fs::read_dir(&to)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(
            names,
            [
                "%s%n.model",
                "kv_config.json",
                "spiece.model",
                "tokenizer.json",
                "x.tiktoken"
            ]
        );
        let copied = to.join("tokenizer.json");
        assert!(fs::symlink_metadata(&copied).unwrap().is_file());
        assert_eq!(fs::read_to_string(copied).unwrap(), "{}");
    }
}
