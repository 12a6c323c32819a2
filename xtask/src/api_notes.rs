//! `cargo xtask api-notes`: whether Swift is told all that it must know of the header.
//!
//! Clang reads `include/CMLXB.apinotes` beside the header. What is missing there is no error for
//! it: the pointer becomes an implicitly unwrapped optional, the enum a struct, the name C's.

use std::{collections::BTreeMap, fmt::Write, fs};

use crate::Result;

/// What the header declares.
#[derive(Debug, Default, PartialEq)]
struct Header {
    functions: BTreeMap<String, Function>,
    /// Each with its values.
    enums: BTreeMap<String, Vec<String>>,
    structs: Vec<String>,
    function_types: Vec<String>,
}

#[derive(Debug, PartialEq)]
struct Function {
    returns_pointer: bool,
    /// For each parameter, whether it is a pointer.
    parameters: Vec<bool>,
}

/// An entry of the API notes: its keys with their values.
type Entry = BTreeMap<String, String>;

/// The entries of a section by name.
type Section = BTreeMap<String, Entry>;

/// Fails unless every item of the header has what Swift needs to know, and the other way round.
pub(crate) fn check() -> Result<()> {
    let include = crate::root().join("include");
    let header = header(&fs::read_to_string(include.join("mlxb.h"))?)?;
    let notes = notes(&fs::read_to_string(include.join("CMLXB.apinotes"))?)?;
    let missing = missing(&header, &notes);
    if missing.is_empty() {
        return Ok(());
    }
    Err(format!(
        "include/CMLXB.apinotes, N for never NULL, O for maybe NULL, S for no pointer:\n{missing}"
    )
    .into())
}

/// What is wrong, a line for each item; nothing when all is well.
fn missing(header: &Header, notes: &BTreeMap<String, Section>) -> String {
    let mut wrong = String::new();
    let mut say = |name: &str, what: &str| {
        let _ = writeln!(wrong, "{name}: {what}");
    };
    let nothing = Section::new();
    let section = |name: &str| notes.get(name).unwrap_or(&nothing);

    for (name, function) in &header.functions {
        let Some(entry) = section("Functions").get(name) else {
            say(name, "has no entry in Functions");
            continue;
        };
        let labels = entry.get("SwiftName").map(|name| name.matches(':').count());
        if labels != Some(function.parameters.len()) {
            say(name, "needs a SwiftName with a label for each parameter");
        }
        let marks = entry.get("Nullability").map(String::as_str).unwrap_or("[]");
        if !are_marked(marks, &function.parameters) {
            say(
                name,
                "needs a Nullability with N or O for each pointer, S for the rest",
            );
        }
        let result = entry.get("NullabilityOfRet").map(String::as_str);
        if function.returns_pointer != matches!(result, Some("N" | "O")) {
            say(
                name,
                "needs NullabilityOfRet N or O if it returns a pointer, else none",
            );
        }
    }
    for (name, values) in &header.enums {
        let entry = section("Tags").get(name);
        if entry
            .and_then(|entry| entry.get("EnumExtensibility"))
            .map(String::as_str)
            != Some("open")
        {
            say(name, "needs EnumExtensibility: open in Tags");
        }
        for value in values {
            if !is_named(section("Enumerators").get(value)) {
                say(value, "needs a SwiftName in Enumerators");
            }
        }
    }
    for name in header.enums.keys().chain(&header.structs) {
        if !is_named(section("Tags").get(name)) {
            say(name, "needs a SwiftName in Tags");
        }
    }
    for name in &header.function_types {
        if !is_named(section("Typedefs").get(name)) {
            say(name, "needs a SwiftName in Typedefs");
        }
    }

    for (section, entries) in notes {
        for name in entries.keys() {
            let is_declared = match section.as_str() {
                "Functions" => header.functions.contains_key(name),
                "Tags" => header.enums.contains_key(name) || header.structs.contains(name),
                "Enumerators" => header.enums.values().flatten().any(|value| value == name),
                "Typedefs" => header.function_types.contains(name),
                _ => false,
            };
            if !is_declared {
                say(name, &format!("in {section}, but not in the header"));
            }
        }
    }
    wrong
}

fn is_named(entry: Option<&Entry>) -> bool {
    entry.is_some_and(|entry| entry.contains_key("SwiftName"))
}

/// Whether `marks`, such as "[N, S]", fits parameters of which some are pointers.
fn are_marked(marks: &str, parameters: &[bool]) -> bool {
    let marks: Vec<&str> = marks
        .trim_matches(['[', ']'])
        .split(',')
        .map(str::trim)
        .filter(|mark| !mark.is_empty())
        .collect();
    marks.len() == parameters.len()
        && marks
            .iter()
            .zip(parameters)
            .all(|(mark, is_pointer)| match *mark {
                "N" | "O" => *is_pointer,
                "S" => !is_pointer,
                _ => false,
            })
}

/// Reads a header as `cargo xtask header` writes it.
fn header(text: &str) -> Result<Header> {
    let code = without_comments(text);
    let mut header = Header::default();
    for declaration in declarations(&code) {
        let declaration = declaration.trim();
        let words: Vec<&str> = declaration
            .split(|letter: char| !letter.is_alphanumeric() && letter != '_')
            .filter(|word| !word.is_empty())
            .collect();
        match (words[..].first_chunk::<3>(), declaration.split_once('{')) {
            (Some(["typedef", "enum", name]), Some((_, values))) => {
                let values = values.split(',').filter_map(|value| value.split_once('='));
                let values = values.map(|(name, _)| name.trim().to_owned()).collect();
                header.enums.insert((*name).to_owned(), values);
            }
            (Some(["typedef", "struct", name]), Some(_)) => {
                header.structs.push((*name).to_owned());
            }
            // A handle: Swift has no name for what it cannot look into.
            (Some(["typedef", "struct", _]), None) => {}
            (Some(["typedef", ..]), None) => {
                let name = declaration
                    .split_once("(*")
                    .and_then(|(_, rest)| rest.split(')').next())
                    .ok_or_else(|| format!("cannot tell what this declares: {declaration}"))?;
                header.function_types.push(name.to_owned());
            }
            _ => {
                let (name, function) = function(declaration, &header.function_types)
                    .ok_or_else(|| format!("cannot tell what this declares: {declaration}"))?;
                header.functions.insert(name, function);
            }
        }
    }
    Ok(header)
}

fn function(declaration: &str, function_types: &[String]) -> Option<(String, Function)> {
    let (before, parameters) = declaration.strip_suffix(')')?.split_once('(')?;
    let name = before.rsplit([' ', '*']).next()?;
    let is_pointer = |parameter: &str| {
        parameter.contains('*')
            || parameter
                .split_whitespace()
                .any(|word| function_types.iter().any(|name| name == word))
    };
    let parameters = match parameters {
        "void" => Vec::new(),
        _ => parameters.split(',').map(is_pointer).collect(),
    };
    let function = Function {
        returns_pointer: before.contains('*'),
        parameters,
    };
    Some((name.to_owned(), function))
}

fn without_comments(text: &str) -> String {
    let mut code = String::new();
    let mut rest = text;
    while let Some((before, comment)) = rest.split_once("/*") {
        code += before;
        rest = comment.split_once("*/").map_or("", |(_, after)| after);
    }
    code + rest
}

/// What stands between semicolons, directives and the frame left out.
fn declarations(code: &str) -> Vec<String> {
    let mut declarations = vec![String::new()];
    let mut depth = 0_usize;
    for line in code.lines() {
        let is_frame = line.starts_with('#') || line == "extern \"C\" {" || line.trim() == "}";
        if is_frame {
            continue;
        }
        depth += line.matches('{').count();
        depth -= line.matches('}').count();
        let last = declarations.last_mut().expect("there is always one");
        last.push_str(line.trim());
        last.push(' ');
        if depth == 0 && line.ends_with(';') {
            last.truncate(last.trim_end().len() - 1);
            declarations.push(String::new());
        }
    }
    declarations.retain(|declaration| !declaration.trim().is_empty());
    declarations
}

/// Reads API notes: the part of YAML that they are written in, a list of entries in each section.
fn notes(text: &str) -> Result<BTreeMap<String, Section>> {
    let mut notes = BTreeMap::<String, Section>::new();
    let mut section = String::new();
    let mut name = String::new();
    for line in text.lines() {
        let unreadable = || format!("cannot read this line: {line}");
        let is_entry = line.starts_with("- ");
        let content = line.trim_start_matches("- ").trim();
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        if let Some(title) = line.strip_suffix(':') {
            section = title.to_owned();
            continue;
        }
        let pairs = match content
            .strip_prefix('{')
            .and_then(|rest| rest.strip_suffix('}'))
        {
            Some(flow) => flow.split(", ").collect(),
            None => vec![content],
        };
        for pair in pairs {
            let (key, value) = pair.split_once(": ").ok_or_else(unreadable)?;
            let (key, value) = (key.trim(), value.trim().to_owned());
            if key == "Name" && !is_entry {
                continue; // That of the module.
            }
            let entries = notes.entry(section.clone()).or_default();
            if key == "Name" {
                name = value.clone();
                if entries.contains_key(&name) {
                    return Err(format!("twice in {section}: {name}").into());
                }
            }
            entries
                .entry(name.clone())
                .or_default()
                .insert(key.to_owned(), value);
        }
    }
    Ok(notes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "\
/* A comment; with code(void); in it. */
#ifndef MLXB_H
#include <stdint.h>
#ifdef __cplusplus
extern \"C\" {
#endif
/** Status. */
typedef enum mlxb_status {
    /** Fine. */
    MLXB_OK = 0,
    MLXB_BUSY = 5,
} mlxb_status;

typedef struct mlxb_model mlxb_model;

typedef struct mlxb_str {
    const char *ptr;
    size_t len;
} mlxb_str;

typedef int32_t (*mlxb_event_fn)(void *user_data, const mlxb_str *event);

const char *mlxb_status_name(int32_t status);

uint32_t mlxb_version_number(void);

mlxb_status mlxb_model_load(const char *snapshot_dir,
                            size_t size,
                            mlxb_event_fn on_event,
                            mlxb_model **out);

#ifdef __cplusplus
} /* extern \"C\" */
#endif
";

    const NOTES: &str = "\
# A comment.
Name: CMLXB

Functions:
- Name: mlxb_status_name
  SwiftName: mlxbStatusName(_:)
  NullabilityOfRet: N
  Nullability: [S]
# Another one.
- Name: mlxb_version_number
  SwiftName: mlxbVersionNumber()
- Name: mlxb_model_load
  SwiftName: mlxbModelLoad(_:size:onEvent:out:)
  Nullability: [N, S, O, N]

Tags:
- Name: mlxb_status
  SwiftName: MLXBStatus
  EnumExtensibility: open
- Name: mlxb_str
  SwiftName: MLXBString

Typedefs:
- Name: mlxb_event_fn
  SwiftName: MLXBEventFunction

Enumerators:
- { Name: MLXB_OK, SwiftName: ok }
- { Name: MLXB_BUSY, SwiftName: busy }
";

    fn wrong(notes_text: &str) -> String {
        let header = header(HEADER).expect("the header can be read");
        missing(&header, &notes(notes_text).expect("the notes can be read"))
    }

    #[test]
    fn the_header_is_read_whole() {
        let header = header(HEADER).expect("the header can be read");
        assert_eq!(header.structs, ["mlxb_str"]);
        assert_eq!(header.function_types, ["mlxb_event_fn"]);
        assert_eq!(header.enums["mlxb_status"], ["MLXB_OK", "MLXB_BUSY"]);
        assert_eq!(header.functions.len(), 3);
        assert!(header.functions["mlxb_status_name"].returns_pointer);
        assert_eq!(
            header.functions["mlxb_model_load"].parameters,
            [true, false, true, true]
        );
    }

    #[test]
    fn complete_notes_pass() {
        assert_eq!(wrong(NOTES), "");
    }

    #[test]
    fn whatever_is_left_out_is_told() {
        for (what, by, named) in [
            ("  SwiftName: mlxbStatusName(_:)\n", "", "mlxb_status_name"),
            (
                "  SwiftName: mlxbVersionNumber()\n",
                "",
                "mlxb_version_number",
            ),
            (
                "mlxbModelLoad(_:size:",
                "mlxbModelLoad(_:",
                "mlxb_model_load",
            ),
            ("  NullabilityOfRet: N\n", "", "mlxb_status_name"),
            (
                "  NullabilityOfRet: N\n",
                "  NullabilityOfRet: U\n",
                "mlxb_status_name",
            ),
            ("[N, S, O, N]", "[N, S, O]", "mlxb_model_load"),
            ("[N, S, O, N]", "[N, S, U, N]", "mlxb_model_load"),
            ("[N, S, O, N]", "[N, S, S, N]", "mlxb_model_load"),
            ("[N, S, O, N]", "[N, N, O, N]", "mlxb_model_load"),
            ("  Nullability: [N, S, O, N]\n", "", "mlxb_model_load"),
            (
                "- Name: mlxb_version_number\n  SwiftName: mlxbVersionNumber()\n",
                "",
                "mlxb_version_number",
            ),
            ("  EnumExtensibility: open\n", "", "mlxb_status"),
            (
                "EnumExtensibility: open",
                "EnumExtensibility: closed",
                "mlxb_status",
            ),
            ("  SwiftName: MLXBStatus\n", "", "mlxb_status"),
            (
                "- Name: mlxb_str\n  SwiftName: MLXBString\n",
                "",
                "mlxb_str",
            ),
            ("  SwiftName: MLXBEventFunction\n", "", "mlxb_event_fn"),
            ("- { Name: MLXB_BUSY, SwiftName: busy }\n", "", "MLXB_BUSY"),
            ("Name: MLXB_BUSY,", "Name: MLXB_GONE,", "MLXB_GONE"),
        ] {
            let changed = NOTES.replacen(what, by, 1);
            assert_ne!(changed, NOTES, "{what} is not in the notes");
            let wrong = wrong(&changed);
            assert!(
                wrong
                    .lines()
                    .any(|line| line.starts_with(&format!("{named}: "))),
                "without {what}: {wrong}"
            );
        }
    }

    #[test]
    fn what_the_header_lost_is_told() {
        let notes_text = NOTES.replacen(
            "Functions:\n",
            "Functions:\n- Name: mlxb_old\n  SwiftName: old()\n",
            1,
        );
        assert_eq!(
            wrong(&notes_text),
            "mlxb_old: in Functions, but not in the header\n"
        );
        assert!(notes(&NOTES.replacen("mlxb_version_number", "mlxb_status_name", 1)).is_err());
    }

    #[test]
    fn the_real_notes_are_complete() {
        if let Err(error) = check() {
            panic!("{error}");
        }
    }
}
