//! What is changed in a template's text before it is compiled.

use std::borrow::Cow;
use std::ops::Range;

/// The filter that values pass before they are assigned to an attribute of a namespace.
pub(super) const ASSIGNABLE: &str = "assignable";

/// A template in the form that the engine reads: with `\n` as the only line end, as Jinja
/// makes it; without transformers' own blocks; with what is assigned to a namespace checked;
/// with loops left only where the engine can.
pub(super) fn prepare(source: &str) -> String {
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let mut out = String::with_capacity(source.len());
    let mut written = 0;
    let mut open = Vec::new();
    for tag in Tags::new(&source) {
        let inner = &source[tag.clone()];
        if let Some(replacement) = replacement(inner, &mut open) {
            out.push_str(&source[written..tag.start]);
            out.push_str(&replacement);
            written = tag.end;
        }
    }
    out.push_str(&source[written..]);
    out
}

/// What stands for a tag's text instead of it. `open` are the blocks around it that matter to
/// `break` and `continue`.
fn replacement<'a>(tag: &'a str, open: &mut Vec<&'a str>) -> Option<Cow<'static, str>> {
    let tag_text = tag.trim();
    let is_word_part = |character: char| character.is_alphanumeric() || character == '_';
    let word = tag_text
        .split(|character| !is_word_part(character))
        .next()
        .unwrap_or_default();
    match word {
        "for" | "with" | "filter" | "call" | "macro" | "generation" => open.push(word),
        "set" if assignment(tag).is_none() => open.push(word),
        "endfor" | "endwith" | "endfilter" | "endcall" | "endmacro" | "endgeneration"
        | "endset" => {
            open.pop();
        }
        _ => {}
    }
    match tag_text {
        // These blocks mark the assistant's text for training. When nobody asks for the
        // marks, they only open a scope.
        "generation" => Some(" with ".into()),
        "endgeneration" => Some(" endwith ".into()),
        "break" | "continue" => forbidden_jump(open).map(Cow::from),
        _ => checked_assignment(tag).map(Cow::from),
    }
}

/// What stands for a `break` or `continue` inside another block of the loop. The engine does
/// not close that block: it would lose what is written after it, or fail.
fn forbidden_jump(open: &[&str]) -> Option<String> {
    let innermost = open.last().filter(|block| **block != "for")?;
    open.contains(&"for").then(|| {
        format!(" do raise_exception(\"a loop cannot be left inside a {innermost} block\") ")
    })
}

/// The target and the value of a tag that assigns one.
fn assignment(tag: &str) -> Option<(&str, &str)> {
    let rest = tag.trim_start().strip_prefix("set")?;
    let (target, value) = rest.split_once('=')?;
    let is_target =
        |character: char| character.is_alphanumeric() || " _.,()\t\n".contains(character);
    let is_assignment = rest.starts_with(char::is_whitespace)
        && target.chars().all(is_target)
        && !value.starts_with('=');
    is_assignment.then_some((target, value))
}

/// An assignment to an attribute, with its value checked. Only through these can a template
/// make values whose nesting grows, or that hold themselves. The namespaces are read there,
/// too: a macro sees only what it reads.
fn checked_assignment(tag: &str) -> Option<String> {
    let (target, value) = assignment(tag)?;
    let names = target.split([',', '(', ')']);
    let namespaces: Vec<&str> = names
        .filter_map(|name| Some(name.split_once('.')?.0.trim()))
        .collect();
    (!namespaces.is_empty()).then(|| {
        let namespaces = namespaces.join(", ");
        format!(" set{target}= ({value}) | {ASSIGNABLE}({namespaces}) ")
    })
}

/// The insides of a template's `{% %}` tags, without the signs that strip white space. Raw
/// blocks, comments and expressions are passed over.
struct Tags<'a> {
    source: &'a str,
    at: usize,
}

impl<'a> Tags<'a> {
    fn new(source: &'a str) -> Self {
        Self { source, at: 0 }
    }

    /// The end of a tag or an expression that began before `at`; texts in it may hold `end`.
    fn end_of(&self, at: usize, end: &str) -> Option<usize> {
        let mut quote = None;
        let mut characters = self.source[at..].char_indices();
        while let Some((offset, character)) = characters.next() {
            match (quote, character) {
                (None, '"' | '\'') => quote = Some(character),
                (Some(_), '\\') => {
                    characters.next();
                }
                (Some(open), _) if open == character => quote = None,
                (None, _) if self.source[at + offset..].starts_with(end) => {
                    return Some(at + offset);
                }
                _ => {}
            }
        }
        None
    }
}

impl Iterator for Tags<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let open = self.at + self.source[self.at..].find('{')?;
            let inside = open + 2;
            self.at = open + 1;
            match self.source.as_bytes().get(open + 1) {
                Some(b'#') => self.at = inside + self.source[inside..].find("#}")?,
                Some(b'{') => self.at = self.end_of(inside, "}}")?,
                Some(b'%') => {
                    let close = self.end_of(inside, "%}")?;
                    self.at = close;
                    let tag = &self.source[inside..close];
                    let start = inside + usize::from(tag.starts_with(['-', '+']));
                    let end = close - usize::from(tag.ends_with(['-', '+']) && start < close);
                    if self.source[start..end].trim() == "raw" {
                        self.at = close + self.source[close..].find("endraw")?;
                    } else {
                        return Some(start..end);
                    }
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generation_blocks_become_scopes() {
        for (source, result) in [
            (
                "{%- generation -%} a {%endgeneration%}",
                "{%- with -%} a {% endwith %}",
            ),
            (
                "{% if generation %}{% endif %}",
                "{% if generation %}{% endif %}",
            ),
            ("{{ x }}", "{{ x }}"),
            ("{% generation", "{% generation"),
            ("{{ '{% generation %}' }}", "{{ '{% generation %}' }}"),
            ("{# {% generation %} #}", "{# {% generation %} #}"),
            (
                "{% raw %}{% generation %}{% endraw %}",
                "{% raw %}{% generation %}{% endraw %}",
            ),
            ("{%-%}{%+", "{%-%}{%+"),
        ] {
            assert_eq!(prepare(source), result);
        }
    }

    #[test]
    fn what_a_namespace_is_assigned_is_checked() {
        for (source, result) in [
            (
                "{%- set ns.x = 'a=b%}' if y else [1] -%}",
                "{%- set ns.x = ( 'a=b%}' if y else [1] ) | assignable(ns) -%}",
            ),
            ("{%set ns.x=1%}", "{% set ns.x= (1) | assignable(ns) %}"),
            (
                "{% set (a, ns.x) = 1, 2 %}",
                "{% set (a, ns.x) = ( 1, 2 ) | assignable(ns) %}",
            ),
            ("{% set x = ns.x == 1 %}", "{% set x = ns.x == 1 %}"),
            ("{% set ns.x %}a{% endset %}", "{% set ns.x %}a{% endset %}"),
            ("{% if ns.x == 1 %}", "{% if ns.x == 1 %}"),
        ] {
            assert_eq!(prepare(source), result);
        }
    }

    #[test]
    fn loops_are_left_only_where_the_engine_can() {
        let jump = |block: &str| {
            format!("{{% do raise_exception(\"a loop cannot be left inside a {block} block\") %}}")
        };
        for (before, tag, block) in [
            ("{% for x in y %}", "{% break %}", None),
            (
                "{% for x in y %}{% if x %}{% set z = 1 %}",
                "{% continue %}",
                None,
            ),
            (
                "{% for x in y %}{% with %}{% endwith %}",
                "{% break %}",
                None,
            ),
            (
                "{% with %}{% for x in y %}{% set z %}{% endset %}",
                "{% break %}",
                None,
            ),
            ("{% with %}", "{% break %}", None),
            (
                "{% for x in y %}{% with a = 1 %}",
                "{% break %}",
                Some("with"),
            ),
            (
                "{% for x in y %}{% set z | replace('=', '') %}",
                "{% break %}",
                Some("set"),
            ),
            (
                "{% for x in y %}{% filter upper %}{% if x %}",
                "{% continue %}",
                Some("filter"),
            ),
        ] {
            let result = block.map_or(tag.to_owned(), jump);
            assert_eq!(
                prepare(&format!("{before}{tag}")),
                format!("{before}{result}")
            );
        }
    }
}
