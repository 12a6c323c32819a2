//! `cargo xtask header`: writes what C sees of `src/ffi`.
//!
//! cbindgen turns the items into C; here they are put in the order of the rooms, their comments
//! are freed of what only Rust needs, and the frame is put around them.

use std::{collections::BTreeMap, fmt::Write, fs, path::Path};

use cbindgen::{Config, DocumentationLength, EnumConfig, ExportConfig, Language, Style};

use crate::{
    Result, layout,
    source::{self, Source},
};

/// The header's chapters in their order, each with the files of `src/ffi` that make it. A type
/// stands before the functions that use it.
const CHAPTERS: &[(&str, &[&str])] = &[
    ("Version", &["version"]),
    ("Errors", &["status", "error"]),
    ("Strings", &["string"]),
    ("Log", &["log"]),
    ("Memory", &["memory"]),
    ("Cancelling", &["cancel"]),
    ("Events", &["event"]),
    ("Models", &["model"]),
    ("Tokens", &["tokenize"]),
    ("KV state", &["kv"]),
    ("Prompt cache", &["cache"]),
    ("Generation", &["generate"]),
    ("Chat", &["chat"]),
    ("Protocols", &["respond"]),
    ("Models on this machine", &["registry"]),
    ("Conversion", &["quantize"]),
];

/// Words that mean nothing to a C programmer.
const RUST_ONLY: &[&str] = &[
    "::", "[`", "Rust", "Box<", "Vec<", "Option<", "&str", "`Drop`",
];

const LINE_LENGTH: usize = 100;

/// Writes the generated files, or with `check` only says which of them differ.
pub(crate) fn header(check: bool) -> Result<()> {
    let root = crate::root();
    let sources = source::read(&root.join("src/ffi"))?;
    let structs = layout::of(&sources)?;
    let generated = [
        ("include/mlxb.h", text(&root, &sources)?),
        ("include/mlxb.exports", exports(&sources)),
        ("src/ffi/layout.rs", layout::rust(&structs)),
        ("tests/c/layout.h", layout::c(&structs)),
    ];
    let mut stale = Vec::new();
    for (name, text) in &generated {
        let path = root.join(name);
        if fs::read_to_string(&path).is_ok_and(|written| written == *text) {
            continue;
        }
        stale.push(*name);
        if !check {
            fs::create_dir_all(path.parent().expect("a file is in a folder"))?;
            fs::write(path, text)?;
        }
    }
    if check && !stale.is_empty() {
        return Err(format!(
            "run `cargo xtask header`; out of date: {}",
            stale.join(", ")
        )
        .into());
    }
    Ok(())
}

/// The names that the library exports, one a line, sorted.
fn exports(sources: &[Source]) -> String {
    let mut names: Vec<_> = sources.iter().flat_map(Source::functions).collect();
    names.sort();
    names.into_iter().map(|name| name + "\n").collect()
}

fn text(root: &Path, sources: &[Source]) -> Result<String> {
    let mut chapters = vec![String::new(); CHAPTERS.len()];
    let mut chapter_of = BTreeMap::new();
    for source in sources {
        let names = source.names();
        let chapter = CHAPTERS
            .iter()
            .position(|(_, rooms)| rooms.contains(&source.room.as_str()));
        match chapter {
            Some(chapter) => chapter_of.extend(names.into_iter().map(|name| (name, chapter))),
            None if names.is_empty() => {}
            None => {
                return Err(format!(
                    "has no chapter in xtask/src/header.rs: {}",
                    source.path.display()
                )
                .into());
            }
        }
    }
    for item in items(&declarations(root, sources)?) {
        // C has a type of its own for what Rust calls BOOL.
        if item.ends_with("typedef uint8_t bool;\n") {
            continue;
        }
        let name = name(&item)?;
        let chapter = chapter_of
            .get(name)
            .ok_or_else(|| format!("not defined in src/ffi: {name}"))?;
        // A struct or enum bears its name as a tag too, so that C code can declare it ahead.
        let tagged = item
            .replacen("typedef struct {", &format!("typedef struct {name} {{"), 1)
            .replacen("typedef enum {", &format!("typedef enum {name} {{"), 1);
        write!(chapters[*chapter], "\n{}\n", for_c(&tagged)?)?;
    }
    frame(root, &chapters)
}

/// cbindgen's output, without a frame.
fn declarations(root: &Path, sources: &[Source]) -> Result<String> {
    let config = Config {
        language: Language::C,
        style: Style::Type,
        no_includes: true,
        documentation_length: DocumentationLength::Full,
        usize_is_size_t: true,
        line_length: LINE_LENGTH,
        tab_width: 4,
        // Enums that stand in no signature, because C passes them as int32_t.
        export: ExportConfig {
            include: sources.iter().flat_map(Source::names).collect(),
            rename: [(source::BOOL.to_owned(), "bool".to_owned())].into(),
            ..ExportConfig::default()
        },
        enumeration: EnumConfig {
            prefix_with_name: false,
            ..EnumConfig::default()
        },
        ..Config::default()
    };
    let mut text = Vec::new();
    cbindgen::Builder::new()
        .with_config(config)
        .with_src(root.join("src/ffi/mod.rs"))
        .generate()?
        .write(&mut text);
    Ok(String::from_utf8(text)?)
}

/// The declarations, each with its comment.
fn items(declarations: &str) -> Vec<String> {
    let mut items = Vec::new();
    let mut item = String::new();
    let mut depth = 0_usize;
    for line in declarations.lines() {
        let code = !line.trim_start().starts_with(['/', '*']);
        if code {
            depth += line.matches('{').count();
            depth -= line.matches('}').count();
        }
        if line.is_empty() && depth == 0 {
            items.push(std::mem::take(&mut item));
        } else {
            item += line;
            item.push('\n');
        }
    }
    items.push(item);
    items.retain(|item| !item.is_empty());
    items
}

/// What an item declares.
fn name(item: &str) -> Result<&str> {
    let code = match item.split_once("*/\n") {
        Some((comment, code)) if comment.starts_with("/*") => code,
        _ => item,
    };
    let before = code.split(['(', '{', ';']).next().unwrap_or_default();
    let name = match before.split_whitespace().collect::<Vec<_>>()[..] {
        ["#define", name, ..] | ["typedef", "struct", name, ..] => Some(name),
        ["typedef", "struct" | "enum"] => code
            .rsplit_once("} ")
            .and_then(|(_, rest)| rest.trim_end().strip_suffix(';')),
        ["typedef", ..] => code
            .split_once("(*")
            .and_then(|(_, rest)| rest.split(')').next()),
        [.., name] => Some(name.trim_start_matches('*')),
        [] => None,
    };
    name.ok_or_else(|| format!("cannot tell what this declares:\n{item}").into())
}

/// An item whose comments speak to C programmers.
fn for_c(item: &str) -> Result<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut in_safety = false;
    for line in item.trim_end().lines() {
        let comment = line.trim_start().strip_prefix('*').map(str::trim);
        match comment {
            Some("# Safety") => in_safety = true,
            Some("/") => {
                in_safety = false;
                while lines.last().is_some_and(|last| last.trim() == "*") {
                    lines.pop();
                }
                end_comment(&mut lines, line);
            }
            _ if in_safety => {}
            _ => lines.push(line.replace("[`", "`").replace("`]", "`")),
        }
    }
    let text = lines.join("\n");
    match RUST_ONLY.iter().find(|word| text.contains(**word)) {
        Some(word) => Err(format!("means nothing to a C programmer: {word} in\n{text}").into()),
        None => Ok(text),
    }
}

/// Ends a comment, in one line when it says but one thing.
fn end_comment(lines: &mut Vec<String>, end: &str) {
    if let [.., start, only] = &lines[..]
        && start.trim() == "/**"
        && let Some(text) = only.trim().strip_prefix("* ")
        && start.len() + text.len() + " */".len() < LINE_LENGTH
    {
        let line = format!("{start} {text} */");
        lines.truncate(lines.len() - 2);
        lines.push(line);
    } else {
        lines.push(end.to_owned());
    }
}

/// What holds for all functions: a section of the comment of `src/ffi/mod.rs`, as lines of a C
/// comment.
fn conventions(root: &Path) -> Result<String> {
    let text = fs::read_to_string(root.join("src/ffi/mod.rs"))?;
    let section: String = text
        .lines()
        .skip_while(|line| *line != "//! # Conventions")
        .skip(2)
        .map_while(|line| line.strip_prefix("//!"))
        .map(|line| format!(" *{line}\n"))
        .collect();
    if section.is_empty() {
        return Err("src/ffi/mod.rs has no section of conventions".into());
    }
    Ok(section)
}

fn frame(root: &Path, chapters: &[String]) -> Result<String> {
    let version = source::package_version(root)?;
    let [major, minor, patch] = version.split('.').collect::<Vec<_>>()[..] else {
        return Err(format!("not a version of three numbers: {version}").into());
    };
    let conventions = conventions(root)?;
    let mut text = format!(
        "\
/* libmlxb {version}: local language models on Apple's MLX, embedded.
 *
 * Generated from src/ffi by `cargo xtask header`: do not edit.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
{conventions} */
#ifndef MLXB_H
#define MLXB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MLXB_VERSION_MAJOR {major}
#define MLXB_VERSION_MINOR {minor}
#define MLXB_VERSION_PATCH {patch}

#ifdef __cplusplus
extern \"C\" {{
#endif
"
    );
    for ((title, _), chapter) in CHAPTERS.iter().zip(chapters) {
        if !chapter.is_empty() {
            let rule = "-".repeat(LINE_LENGTH - "/* ----  */".len() - title.len());
            write!(text, "\n/* ---- {title} {rule} */\n{chapter}")?;
        }
    }
    text += "
#ifdef __cplusplus
} /* extern \"C\" */
#endif

#endif /* MLXB_H */
";
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECLARATIONS: &str = "\
#define MLXB_STOP 1

/**
 * Text, see [`mlxb_string_free`].
 *
 * # Safety
 * A promise.
 */
typedef struct {
    /**
     * The bytes.
     */
    const char *ptr;

    size_t len;
} mlxb_str;

/** Hears of { events. */
typedef int32_t (*mlxb_event_fn)(void *user_data,
                                 const mlxb_event *event);

const char *mlxb_status_name(int32_t status);
";

    #[test]
    fn declarations_fall_apart_into_named_items() {
        let items = items(DECLARATIONS);
        let names: Vec<_> = items.iter().map(|item| name(item).unwrap()).collect();
        let wanted = ["MLXB_STOP", "mlxb_str", "mlxb_event_fn", "mlxb_status_name"];
        assert_eq!(names, wanted);
    }

    #[test]
    fn comments_lose_what_only_rust_needs() {
        let item = for_c(&items(DECLARATIONS)[1]).unwrap();
        let wanted = "\
/** Text, see `mlxb_string_free`. */
typedef struct {
    /** The bytes. */
    const char *ptr;

    size_t len;
} mlxb_str;";
        assert_eq!(item, wanted);
    }

    #[test]
    fn words_of_rust_are_refused() {
        let error = for_c("/** An `Option<u8>`. */\nvoid f(void);").unwrap_err();
        assert!(error.to_string().contains("Option<"), "{error}");
    }
}
