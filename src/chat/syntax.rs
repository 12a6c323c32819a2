//! Template syntax that transformers adds to Jinja.

use std::borrow::Cow;

/// A template in the form that the engine reads: with `\n` as the only line end, as Jinja
/// makes it, and without transformers' own blocks.
pub(super) fn prepare(source: &str) -> String {
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    without_generation_blocks(&source).into_owned()
}

/// Replaces `{% generation %}` blocks, which mark the assistant's text for training, by
/// blocks that only open a scope, as they do when nobody asks for the marks.
fn without_generation_blocks(source: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at);
        let Some(length) = tag.find("%}").map(|end| end + 2) else {
            break;
        };
        let inner = tag[2..length - 2]
            .trim_start_matches(['-', '+'])
            .trim_end_matches(['-', '+']);
        let replacement = match inner.trim() {
            "generation" => "with",
            "endgeneration" => "endwith",
            _ => {
                out.push_str(&rest[..at + 2]);
                rest = &rest[at + 2..];
                continue;
            }
        };
        out.push_str(before);
        out.push_str(&tag[..length].replacen(inner.trim(), replacement, 1));
        rest = &tag[length..];
    }
    if out.is_empty() {
        return Cow::Borrowed(source);
    }
    out.push_str(rest);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_generation_blocks_change() {
        for (source, result) in [
            (
                "{%- generation -%} a {%endgeneration%}",
                "{%- with -%} a {%endwith%}",
            ),
            (
                "{% if generation %}{% endif %}",
                "{% if generation %}{% endif %}",
            ),
            ("{{ x }}", "{{ x }}"),
            ("{% generation", "{% generation"),
        ] {
            assert_eq!(without_generation_blocks(source), result);
        }
    }
}
