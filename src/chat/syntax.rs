//! What is changed in a template's text before it is compiled.

use std::borrow::Cow;
use std::ops::Range;

/// The filter that values pass before they are assigned to an attribute of a namespace.
pub(super) const ASSIGNABLE: &str = "assignable";

/// A template in the form that the engine reads: with `\n` as the only line end, as Jinja
/// makes it; without transformers' own blocks; with what is assigned to a namespace checked.
pub(super) fn prepare(source: &str) -> String {
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let mut out = String::with_capacity(source.len());
    let mut written = 0;
    for tag in Tags::new(&source) {
        let inner = &source[tag.clone()];
        if let Some(replacement) = replacement(inner) {
            out.push_str(&source[written..tag.start]);
            out.push_str(&replacement);
            written = tag.end;
        }
    }
    out.push_str(&source[written..]);
    out
}

/// What stands for a tag's text instead of it.
fn replacement(tag: &str) -> Option<Cow<'static, str>> {
    match tag.trim() {
        // These blocks mark the assistant's text for training. When nobody asks for the
        // marks, they only open a scope.
        "generation" => Some(" with ".into()),
        "endgeneration" => Some(" endwith ".into()),
        _ => checked_assignment(tag).map(Cow::from),
    }
}

/// An assignment to an attribute, with its value checked. Only through these can a template
/// make values whose nesting grows, or that hold themselves.
fn checked_assignment(tag: &str) -> Option<String> {
    let rest = tag.trim_start().strip_prefix("set")?;
    let (target, value) = rest.split_once('=')?;
    let is_target =
        |character: char| character.is_alphanumeric() || " _.,()\t\n".contains(character);
    let is_assignment = rest.starts_with(char::is_whitespace)
        && target.contains('.')
        && target.chars().all(is_target)
        && !value.starts_with('=');
    is_assignment.then(|| format!(" set{target}= ({value}) | {ASSIGNABLE} "))
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
                "{%- set ns.x = ( 'a=b%}' if y else [1] ) | assignable -%}",
            ),
            ("{%set ns.x=1%}", "{% set ns.x= (1) | assignable %}"),
            (
                "{% set (a, ns.x) = 1, 2 %}",
                "{% set (a, ns.x) = ( 1, 2 ) | assignable %}",
            ),
            ("{% set x = ns.x == 1 %}", "{% set x = ns.x == 1 %}"),
            ("{% set ns.x %}a{% endset %}", "{% set ns.x %}a{% endset %}"),
            ("{% if ns.x == 1 %}", "{% if ns.x == 1 %}"),
        ] {
            assert_eq!(prepare(source), result);
        }
    }
}
