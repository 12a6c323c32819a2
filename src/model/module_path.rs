//! One spelling for the place of a module. Where a text model is a part of a larger one, files
//! and configurations name its modules from the root of the whole, in two ways.

use std::borrow::Cow;

/// `path` as it is called in the text model alone: both `language_model.model.layers.0` and
/// `model.language_model.layers.0` are `model.layers.0`, and `language_model.lm_head` is
/// `lm_head`. Names of tensors keep their last part.
pub(crate) fn in_text_model(path: &str) -> Cow<'_, str> {
    if let Some(rest) = path.strip_prefix("language_model.") {
        return Cow::Borrowed(rest);
    }
    match path.strip_prefix("model.language_model.") {
        Some(rest) if rest.starts_with("model.") || rest.starts_with("lm_head") => {
            Cow::Borrowed(rest)
        }
        Some(rest) => Cow::Owned(format!("model.{rest}")),
        None => Cow::Borrowed(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_becomes_that_of_the_text_model() {
        for (path, expected) in [
            ("model.layers.0.mlp", "model.layers.0.mlp"),
            ("language_model.model.layers.0.mlp", "model.layers.0.mlp"),
            ("model.language_model.layers.0.mlp", "model.layers.0.mlp"),
            (
                "model.language_model.model.layers.0.mlp",
                "model.layers.0.mlp",
            ),
            ("lm_head", "lm_head"),
            ("language_model.lm_head.weight", "lm_head.weight"),
            ("model.language_model.lm_head", "lm_head"),
            ("model.language_model.embed_tokens", "model.embed_tokens"),
            ("model.language_models.x", "model.language_models.x"),
            ("vision_tower.x", "vision_tower.x"),
            ("", ""),
        ] {
            assert_eq!(in_text_model(path), expected, "{path}");
        }
    }
}
