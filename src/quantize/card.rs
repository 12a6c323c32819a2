//! The model card of a converted model.

use std::path::Path;

use crate::registry::{RepoKind, parse_repo_folder};

const FENCE: &str = "---";

/// The repository that the snapshot `dir` is of, where it lies in a hub's folder.
pub(super) fn repository(dir: &Path) -> Option<String> {
    let snapshots = dir.parent()?;
    let is_snapshot = snapshots.file_name()? == "snapshots";
    let folder = snapshots.parent()?.file_name()?.to_str()?;
    match parse_repo_folder(folder).filter(|_| is_snapshot)? {
        (RepoKind::Model, id) => Some(id),
        _ => None,
    }
}

/// The card with the front matter that mlx-lm gives it, and its own text. Without a card, one of
/// front matter alone. `base_model` is the repository that the model was made from.
///
/// Front matter is YAML between two lines of `---`. Only its top-level keys matter here, so lines
/// of others are kept as they are.
pub(super) fn of_target(card: Option<&str>, base_model: Option<&str>) -> String {
    let card = card.map(|card| card.trim_start_matches('\u{feff}'));
    let (mut front, body) = match card.map(split) {
        None => (vec!["language: en\n".to_owned()], ""),
        Some(parts) => parts,
    };
    set(&mut front, "library_name", "mlx");
    set(&mut front, "pipeline_tag", "text-generation");
    tag(&mut front);
    if let Some(base_model) = base_model {
        set(&mut front, "base_model", base_model);
    }
    format!("{FENCE}\n{}{FENCE}\n{body}", front.concat())
}

/// The lines of the front matter, and the text behind it.
fn split(card: &str) -> (Vec<String>, &str) {
    let is_fence = |line: &str| line.trim_end() == FENCE;
    let mut lines = card.split_inclusive('\n');
    let Some(first) = lines.next().filter(|line| is_fence(line)) else {
        return (Vec::new(), card);
    };
    let (mut front, mut length) = (Vec::new(), first.len());
    for line in lines {
        length += line.len();
        if is_fence(line) {
            return (front, &card[length..]);
        }
        front.push(format!("{}\n", line.trim_end_matches(['\r', '\n'])));
    }
    // No front matter after all.
    (Vec::new(), card)
}

/// The lines that say what `key` is: its own, and those that go on from there.
fn block(front: &[String], key: &str) -> Option<std::ops::Range<usize>> {
    let is_key = |line: &String| {
        let rest = line.strip_prefix(key).map(str::trim_start);
        rest.is_some_and(|rest| rest.starts_with(": ") || rest.trim_end() == ":")
    };
    let start = front.iter().position(is_key)?;
    let goes_on = |line: &String| line.starts_with([' ', '\t', '-', '#', '\n']);
    let more = front[start + 1..].iter().take_while(|line| goes_on(line));
    let mut end = start + 1 + more.count();
    let is_nothing = |line: &String| line.starts_with('#') || line.trim().is_empty();
    while end > start + 1 && is_nothing(&front[end - 1]) {
        end -= 1;
    }
    Some(start..end)
}

fn set(front: &mut Vec<String>, key: &str, value: &str) {
    let line = format!("{key}: {value}\n");
    match block(front, key) {
        Some(lines) => drop(front.splice(lines, [line])),
        None => front.push(line),
    }
}

/// Adds the tag `mlx`, unless it is there.
fn tag(front: &mut Vec<String>) {
    let fresh = || ["tags:\n".to_owned(), "- mlx\n".to_owned()];
    let Some(lines) = block(front, "tags") else {
        front.extend(fresh());
        return;
    };
    let (_, value) = front[lines.start].split_once(':').unwrap_or_default();
    let value = value.split(" #").next().unwrap_or_default().trim();
    let is_mlx = |item: &str| item.trim().trim_matches(['"', '\'']) == "mlx";
    if let Some(items) = value.strip_prefix('[').and_then(|v| v.strip_suffix(']')) {
        if !items.split(',').any(is_mlx) {
            let separator = if items.trim().is_empty() { "" } else { ", " };
            front[lines.start] = format!("tags: [{}{separator}mlx]\n", items.trim());
        }
    } else if value.is_empty() && lines.len() > 1 {
        let items = front[lines.start + 1..lines.end].iter();
        let items: Vec<_> = items
            .filter_map(|line| line.trim_start().strip_prefix("- "))
            .collect();
        if !items.iter().any(|item| is_mlx(item)) {
            let last = &front[lines.end - 1];
            let indent = last.len() - last.trim_start().len();
            front.insert(lines.end, format!("{}- mlx\n", " ".repeat(indent)));
        }
    } else if ["", "null", "~"].contains(&value) {
        front.splice(lines, fresh());
    } else if lines.len() == 1 && !value.starts_with('[') && !is_mlx(value) {
        let single = format!("- {value}\n");
        front.splice(lines, ["tags:\n".to_owned(), single, "- mlx\n".to_owned()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: &str = "library_name: mlx\npipeline_tag: text-generation\n";

    #[test]
    fn the_front_matter_is_mlx_lms_and_the_text_stays() {
        for (card, expected) in [
            // As huggingface_hub writes mlx-lm's card for a model without one.
            (None, format!("---\nlanguage: en\n{NEW}tags:\n- mlx\n---\n")),
            (Some(""), format!("---\n{NEW}tags:\n- mlx\n---\n")),
            (
                Some("# Title\n---\nx: y\n---\n"),
                format!("---\n{NEW}tags:\n- mlx\n---\n# Title\n---\nx: y\n---\n"),
            ),
            (
                Some("\u{feff}---\r\nlicense: mit\r\n---\r\n\r\nText\r\n---\r\n"),
                format!("---\nlicense: mit\n{NEW}tags:\n- mlx\n---\n\r\nText\r\n---\r\n"),
            ),
            (
                Some("---\nlibrary_name: transformers\n# of what\nlicense: mit\n---\nbody"),
                "---\nlibrary_name: mlx\n# of what\nlicense: mit\npipeline_tag: text-generation\n\
                 tags:\n- mlx\n---\nbody"
                    .to_owned(),
            ),
            (
                Some("---\nwidget:\n- text: a\n  library_name: x\n---\n"),
                format!("---\nwidget:\n- text: a\n  library_name: x\n{NEW}tags:\n- mlx\n---\n"),
            ),
            (
                Some("---\nunclosed: x\n"),
                format!("---\n{NEW}tags:\n- mlx\n---\n---\nunclosed: x\n"),
            ),
        ] {
            let made = of_target(card, None);
            assert_eq!(made, expected);
            assert_eq!(of_target(Some(&made), None), made);
        }
    }

    #[test]
    fn tags_of_every_form_get_one_more() {
        for (tags, expected) in [
            ("tags:\n- a\n- mlx\n", "tags:\n- a\n- mlx\n"),
            ("tags:\n- a\n- 'mlx'\n", "tags:\n- a\n- 'mlx'\n"),
            ("tags:\n- a\nx: 1\n", "tags:\n- a\n- mlx\nx: 1\n"),
            (
                "tags:\n  - a\n\n# c\nx: 1\n",
                "tags:\n  - a\n  - mlx\n\n# c\nx: 1\n",
            ),
            ("tags: [a, b]\n", "tags: [a, b, mlx]\n"),
            ("tags: [a, \"mlx\"] # c\n", "tags: [a, \"mlx\"] # c\n"),
            ("tags: []\n", "tags: [mlx]\n"),
            ("tags:\n", "tags:\n- mlx\n"),
            ("tags: null\n", "tags:\n- mlx\n"),
            ("tags: a\n", "tags:\n- a\n- mlx\n"),
            ("tags: mlx\n", "tags: mlx\n"),
        ] {
            let made = of_target(Some(&format!("---\n{tags}---\n")), None);
            assert_eq!(made, format!("---\n{expected}{NEW}---\n"));
        }
    }

    #[test]
    fn the_model_that_it_was_made_from_is_named() {
        let card = "---\nbase_model:\n- some/parent\n---\n";
        assert_eq!(
            of_target(Some(card), Some("org/name")),
            format!("---\nbase_model: org/name\n{NEW}tags:\n- mlx\n---\n")
        );
        for (dir, expected) in [
            ("/hub/models--org--name/snapshots/abc", Some("org/name")),
            ("/hub/datasets--org--name/snapshots/abc", None),
            ("/hub/models--org--name/other/abc", None),
            ("/hub/name/snapshots/abc", None),
            ("abc", None),
        ] {
            assert_eq!(repository(Path::new(dir)).as_deref(), expected);
        }
    }
}
