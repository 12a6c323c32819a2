//! Reading the small JSON files of a model folder.

use std::path::Path;

use serde_json::Value;

use crate::{
    error::{Error, Kind, Result},
    escape::{Escaped, EscapedPath},
    regular_file,
};

/// The key under which transformers writes a number that JSON cannot hold, as in
/// `{"__float__": "Infinity"}`.
const TAGGED_FLOAT: &str = "__float__";

/// The longest file that is read. Real ones stay under a few megabytes, and what is parsed
/// takes several times the memory.
const MOST_BYTES: u64 = 16 << 20;

/// Reads the JSON file `name` of the folder `dir`; `None` when there is none, or only a link to
/// nothing.
///
/// What Python writes and reads is accepted: a byte order mark, and the bare words `NaN`,
/// `Infinity` and `-Infinity`, which come out in the tagged form that [`number`] reads. A key
/// that stands twice counts as the last one says.
///
/// # Errors
/// [`Kind::ModelFormat`] for malformed JSON and for a file of more than 16 MiB, and what the
/// system reports; all name the file.
pub(crate) fn read_json(dir: &Path, name: &str) -> Result<Option<Value>> {
    let path = dir.join(name);
    let Some(bytes) = read_if_there(&path, MOST_BYTES)? else {
        return Ok(None);
    };
    parse_json(&bytes).map(Some).map_err(|error| {
        Error::new(
            Kind::ModelFormat,
            format!(
                "{}: malformed: {}",
                EscapedPath(&path),
                Escaped(&error.to_string())
            ),
        )
        .with_source(error)
    })
}

/// The file's bytes; `None` when there is none.
pub(super) fn read_if_there(path: &Path, most_bytes: u64) -> Result<Option<Vec<u8>>> {
    match regular_file::read(path, most_bytes) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == Kind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn parse_json(bytes: &[u8]) -> serde_json::Result<Value> {
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    serde_json::from_slice(bytes).or_else(|error| match tag_bare_floats(bytes) {
        Some(tagged) => serde_json::from_slice(&tagged),
        None => Err(error),
    })
}

/// The text with every bare `NaN`, `Infinity` and `-Infinity` outside of strings in the tagged
/// form; `None` when there is none of them.
fn tag_bare_floats(json: &[u8]) -> Option<Vec<u8>> {
    const WORDS: [&str; 3] = ["-Infinity", "Infinity", "NaN"];
    let mut tagged = Vec::with_capacity(json.len() + 64);
    let mut found = false;
    let mut in_string = false;
    let mut at = 0;
    while let Some(&byte) = json.get(at) {
        let word = WORDS
            .iter()
            .find(|word| !in_string && json[at..].starts_with(word.as_bytes()));
        if let Some(word) = word {
            tagged.extend_from_slice(format!("{{\"{TAGGED_FLOAT}\":\"{word}\"}}").as_bytes());
            at += word.len();
            found = true;
            continue;
        }
        tagged.push(byte);
        at += 1;
        match byte {
            b'"' => in_string = !in_string,
            b'\\' if in_string => {
                tagged.extend(json.get(at));
                at += 1;
            }
            _ => {}
        }
    }
    found.then_some(tagged)
}

/// A JSON number as a float, the tagged form included; `None` for anything else.
pub(crate) fn number(value: &Value) -> Option<f64> {
    if let Some(number) = value.as_f64() {
        return Some(number);
    }
    let object = value.as_object().filter(|object| object.len() == 1)?;
    match object.get(TAGGED_FLOAT)?.as_str()? {
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        "NaN" => Some(f64::NAN),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    fn read(bytes: impl AsRef<[u8]>) -> Result<Value> {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("config.json"), bytes).unwrap();
        read_json(dir.path(), "config.json").map(Option::unwrap)
    }

    #[test]
    fn what_python_accepts_is_read() {
        let value = read("\u{feff}{\"a\": [1, 2.5], \"b\": \"\u{e9}\", \"b\": null}").unwrap();
        assert_eq!(value["a"][1], 2.5);
        assert!(value["b"].is_null());

        let value = read(
            r#"{"a": Infinity, "b": [-Infinity, NaN], "c": "NaN \" Infinity", "Infinity": 1,
               "d": {"__float__": "Infinity"}, "e": "\\", "f": NaN}"#,
        )
        .unwrap();
        assert_eq!(number(&value["a"]), Some(f64::INFINITY));
        assert_eq!(number(&value["b"][0]), Some(f64::NEG_INFINITY));
        assert!(number(&value["b"][1]).unwrap().is_nan());
        assert_eq!(value["c"], "NaN \" Infinity");
        assert_eq!(number(&value["Infinity"]), Some(1.0));
        assert_eq!(number(&value["d"]), Some(f64::INFINITY));
        assert!(number(&value["f"]).unwrap().is_nan());
    }

    #[test]
    fn only_numbers_are_numbers() {
        for json in [
            r#""1""#,
            "null",
            "[1]",
            "{}",
            r#"{"__float__": 1}"#,
            r#"{"__float__": "x"}"#,
            r#"{"__float__": "NaN", "a": 1}"#,
        ] {
            assert_eq!(number(&serde_json::from_str(json).unwrap()), None, "{json}");
        }
        assert_eq!(number(&Value::from(-3)), Some(-3.0));
    }

    #[test]
    fn a_malformed_file_is_named() {
        let deep = "[".repeat(900);
        for bytes in [
            "",
            "{",
            "{} {}",
            "{\"a\": NaNN}",
            "{\"a\": Inf}",
            "{'a': 1}",
            "NaN \"",
            "\"\\",
            &deep,
        ] {
            let error = read(bytes).unwrap_err();
            assert_eq!(error.kind(), Kind::ModelFormat, "{bytes}");
            assert!(
                error.message().contains("config.json: malformed: "),
                "{error}"
            );
        }
        assert_eq!(
            read([b'"', 0xff, b'"']).unwrap_err().kind(),
            Kind::ModelFormat
        );
    }

    #[test]
    fn size_is_bounded_and_absence_is_no_error() {
        let error = read(" ".repeat((16 << 20) + 1)).unwrap_err();
        assert_eq!(error.kind(), Kind::ModelFormat);
        assert!(
            error
                .message()
                .ends_with("config.json is larger than 16777216 bytes: 16777217"),
            "{error}"
        );

        let dir = tempfile::tempdir().unwrap();
        assert!(read_json(dir.path(), "config.json").unwrap().is_none());
        std::os::unix::fs::symlink("nowhere", dir.path().join("config.json")).unwrap();
        assert!(read_json(dir.path(), "config.json").unwrap().is_none());
    }

    proptest! {
        #[test]
        fn tagging_changes_no_json_and_never_panics(
            text in "[-NaInfity\"\\\\:,{}\\[\\] 0-9]{0,40}",
        ) {
            if let Ok(value) = serde_json::from_str::<Value>(&text) {
                prop_assert_eq!(parse_json(text.as_bytes()).unwrap(), value);
            } else {
                let _ = parse_json(text.as_bytes());
            }
        }

        #[test]
        fn words_in_strings_are_left_alone(text in ".*(NaN|Infinity).*") {
            let json = serde_json::json!({ &text: [&text] }).to_string();
            let with_bare = format!("[{json}, NaN]");
            let value = parse_json(with_bare.as_bytes()).unwrap();
            prop_assert_eq!(&value[0][&text][0], &text);
        }
    }
}
