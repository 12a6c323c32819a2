//! Names from outside, made safe to print in one line.

use std::{
    fmt::{self, Write as _},
    path::Path,
};

/// Longest part of a name that a message repeats, in characters.
const LONGEST: usize = 256;

/// Shows a name that came from a file or a folder: what could break a line, drive a terminal or
/// reorder text is escaped, and a very long name is cut.
pub(crate) struct Escaped<'a>(pub(crate) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shown, character) in self.0.chars().enumerate() {
            if shown == LONGEST {
                return f.write_str("...");
            }
            match character {
                // Quotes are harmless, and `escape_debug` would add backslashes to them.
                '"' | '\'' => f.write_char(character)?,
                // Marks that change the direction of what follows are printable for Rust.
                '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                    write!(f, "{}", character.escape_unicode())?;
                }
                _ => write!(f, "{}", character.escape_debug())?,
            }
        }
        Ok(())
    }
}

/// Shows a path like [`Escaped`]; bytes that are not UTF-8 become replacement characters. The
/// parts of a path that the system allows are short enough to be shown whole.
pub(crate) struct EscapedPath<'a>(pub(crate) &'a Path);

impl fmt::Display for EscapedPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, part) in self.0.to_string_lossy().split('/').enumerate() {
            if index > 0 {
                f.write_char('/')?;
            }
            write!(f, "{}", Escaped(part))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_breaks_a_line_or_a_terminal_is_escaped() {
        for (name, shown) in [
            ("model.layers.0", "model.layers.0"),
            ("%s%n 'a' \"b\"", "%s%n 'a' \"b\""),
            ("a\nb\r\t\0", "a\\nb\\r\\t\\0"),
            ("\u{1b}[31m", "\\u{1b}[31m"),
            ("\u{202e}gnp", "\\u{202e}gnp"),
            ("a\u{2028}b\u{85}c\u{7f}", "a\\u{2028}b\\u{85}c\\u{7f}"),
            ("\u{feff}x", "\\u{feff}x"),
            ("日本語", "日本語"),
            ("back\\slash", "back\\\\slash"),
        ] {
            assert_eq!(Escaped(name).to_string(), shown);
        }
    }

    #[test]
    fn a_long_name_is_cut_but_a_deep_path_is_not() {
        assert_eq!(Escaped(&"x".repeat(5000)).to_string().len(), LONGEST + 3);
        let path = format!("/{}/model.safetensors", "folder/".repeat(100));
        assert_eq!(EscapedPath(Path::new(&path)).to_string(), path);
    }
}
