//! The model types that the library can run: plain data, for the loader and the registry alike.

/// A family of models that one implementation runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Architecture {
    /// Pre-normalised blocks of grouped-query attention with rotary positions, and a gated MLP.
    Llama,
}

/// `model_type` of a configuration, and what runs it.
const MODEL_TYPES: [(&str, Architecture); 2] = [
    ("llama", Architecture::Llama),
    ("mistral", Architecture::Llama),
];

/// Types whose `text_config` is a model of its own, with other parts around it that a text
/// model does without.
const WRAPPERS: [&str; 2] = ["llava", "mistral3"];

/// What runs a model with this `model_type`, and this one in its `text_config` where it has
/// one; `None` when nothing does.
pub(crate) fn architecture(
    model_type: &str,
    text_model_type: Option<&str>,
) -> Option<Architecture> {
    let model_type = match text_model_type {
        Some(text_model_type) if WRAPPERS.contains(&model_type) => text_model_type,
        // A text configuration inside a text model describes the same model.
        Some(text_model_type) if text_model_type != model_type => return None,
        _ => model_type,
    };
    MODEL_TYPES
        .iter()
        .find(|row| row.0 == model_type)
        .map(|row| row.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_inside_decides_for_wrappers() {
        let llama = Some(Architecture::Llama);
        for (model_type, inside, expected) in [
            ("llama", None, llama),
            ("mistral", None, llama),
            ("mistral", Some("mistral"), llama),
            ("mistral3", Some("mistral"), llama),
            ("llava", Some("llama"), llama),
            ("llava", None, None),
            ("mistral3", Some("ministral3"), None),
            ("llama", Some("qwen2"), None),
            ("Llama", None, None),
            ("", None, None),
        ] {
            assert_eq!(
                architecture(model_type, inside),
                expected,
                "{model_type} {inside:?}"
            );
        }
    }
}
