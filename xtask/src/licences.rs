//! `cargo xtask licences`: every crate that goes into the library has a licence that lets it.

use std::{collections::BTreeSet, process::Command};

use serde_json::Value;

use crate::{Result, process::output};

/// Licences that ask for no more than their text beside the library.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Fails and names the crates whose licence is not allowed.
pub(crate) fn check() -> Result<()> {
    let metadata = output(
        Command::new(env!("CARGO"))
            .args(["metadata", "--locked", "--format-version=1"])
            .current_dir(crate::root()),
    )?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let linked = linked(&metadata);
    let refused: Vec<_> = array(&metadata["packages"])
        .filter(|package| linked.contains(text(&package["id"])))
        .filter(|package| !is_allowed(text(&package["license"])))
        .map(|package| format!("{}: {}", text(&package["name"]), package["license"]))
        .collect();
    if refused.is_empty() {
        return Ok(());
    }
    Err(format!("licences that are not allowed:\n{}", refused.join("\n")).into())
}

/// The ids of all packages that the library's own code, on any platform, is built from.
fn linked(metadata: &Value) -> BTreeSet<&str> {
    let mut linked = BTreeSet::new();
    let mut open: Vec<_> = array(&metadata["packages"])
        .filter(|package| package["name"] == "mlxb")
        .map(|package| text(&package["id"]))
        .collect();
    while let Some(id) = open.pop() {
        if !linked.insert(id) {
            continue;
        }
        let node = array(&metadata["resolve"]["nodes"]).find(|node| node["id"] == id);
        let dependencies = node.into_iter().flat_map(|node| array(&node["deps"]));
        open.extend(
            dependencies
                .filter(|dependency| {
                    array(&dependency["dep_kinds"]).any(|kind| kind["kind"] != "dev")
                })
                .map(|dependency| text(&dependency["pkg"])),
        );
    }
    linked
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Whether an SPDX expression, the old slash for OR included, can be met with allowed licences.
fn is_allowed(expression: &str) -> bool {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ")
        .replace(" WITH ", "\0");
    let mut words = spaced.split_whitespace().collect::<Vec<_>>().into_iter();
    !expression.is_empty() && alternatives(&mut words)
}

fn alternatives<'a>(words: &mut impl Iterator<Item = &'a str>) -> bool {
    let (mut any, mut all) = (false, true);
    while let Some(word) = words.next() {
        match word {
            "OR" => {
                any |= all;
                all = true;
            }
            "AND" => {}
            ")" => break,
            "(" => all &= alternatives(words),
            licence => all &= ALLOWED.contains(&licence.replace('\0', " WITH ").as_str()),
        }
    }
    any | all
}

#[cfg(test)]
mod tests {
    use super::is_allowed;

    #[test]
    fn expressions() {
        for (expression, allowed) in [
            ("MIT", true),
            ("MIT/Apache-2.0", true),
            ("GPL-3.0 OR Apache-2.0", true),
            ("GPL-3.0", false),
            ("MIT AND GPL-3.0", false),
            ("(MIT OR GPL-3.0) AND Zlib", true),
            ("MIT AND (GPL-3.0 OR AGPL-3.0)", false),
            ("Apache-2.0 WITH LLVM-exception", true),
            ("GPL-3.0 WITH LLVM-exception OR GPL-2.0", false),
        ] {
            assert_eq!(is_allowed(expression), allowed, "{expression}");
        }
        assert!(!is_allowed(""), "a crate with a licence file of its own");
    }
}
