//! The license from a model card's front matter.

/// The license that the card names: `license`, or `license_name` where that is `other`. Of a
/// list, the first.
///
/// The front matter is YAML between two lines of `---`. Only top-level scalars and lists of
/// scalars matter here, so nothing more of YAML is understood.
pub(crate) fn license(card: &str) -> Option<String> {
    let card = card.trim_start_matches('\u{feff}').trim_start();
    let mut lines = card.lines();
    if lines.next()?.trim_end() != "---" {
        return None;
    }
    let front: Vec<&str> = lines
        .take_while(|line| line.trim_end() != "---")
        .map(str::trim_end)
        .collect();
    let license = value(&front, "license")?;
    if license == "other" {
        return Some(value(&front, "license_name").unwrap_or(license));
    }
    Some(license)
}

fn value(front: &[&str], name: &str) -> Option<String> {
    let at = front.iter().position(|line| {
        line.strip_prefix(name)
            .is_some_and(|rest| rest.trim_start().starts_with(':'))
    })?;
    let (_, rest) = front[at].split_once(':')?;
    let mut text = scalar(rest);
    if text.is_empty() {
        // A list on the following lines, indented or not.
        text = front[at + 1..]
            .iter()
            .find(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'))
            .and_then(|line| line.trim_start().strip_prefix("- "))
            .map(scalar)?;
    }
    if let Some(list) = text.strip_prefix('[') {
        text = scalar(list.split([',', ']']).next().unwrap_or_default());
    }
    (!text.is_empty() && text != "null" && text != "~").then_some(text)
}

/// A plain or quoted scalar without the comment behind it.
fn scalar(text: &str) -> String {
    let text = text.trim();
    for quote in ['"', '\''] {
        if let Some(rest) = text.strip_prefix(quote) {
            return rest.split(quote).next().unwrap_or_default().to_owned();
        }
    }
    let text = if text.starts_with('#') {
        ""
    } else {
        text.split(" #").next().unwrap_or_default()
    };
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licenses_are_found_in_front_matter_only() {
        for (card, expected) in [
            ("---\nlicense: mit\n---\nbody", Some("mit")),
            (
                "\u{feff}---\r\nlicense: apache-2.0\r\n---\r\n",
                Some("apache-2.0"),
            ),
            ("---\nlicense: \"mit\" # c\n---", Some("mit")),
            ("---\nlicense: 'mit'\n---", Some("mit")),
            ("---\nlicense: mit # the usual\n---", Some("mit")),
            (
                "---\nlicense: other\nlicense_name: llama3\n---",
                Some("llama3"),
            ),
            ("---\nlicense: other\n---", Some("other")),
            ("---\nlicense: mit\nlicense_name: x\n---", Some("mit")),
            ("---\nlicense:\n- mit\n- gpl\n---", Some("mit")),
            ("---\nlicense:\n  # c\n  - \"mit\"\n---", Some("mit")),
            ("---\nlicense: [mit, gpl]\n---", Some("mit")),
            ("---\nlicense: ['mit']\n---", Some("mit")),
            ("---\nlicense_name: llama3\n---", None),
            ("---\nlicense_link: x\nlicense : mit\n---", Some("mit")),
            ("---\nother:\n  license: mit\n---", None),
            ("---\nlicense: null\n---", None),
            ("---\nlicense:\n---", None),
            ("---\nlanguage: en\n---\nlicense: mit", None),
            ("license: mit", None),
            ("---\nlicense: mit", Some("mit")),
            ("", None),
            ("---", None),
        ] {
            assert_eq!(license(card).as_deref(), expected, "{card:?}");
        }
    }
}
