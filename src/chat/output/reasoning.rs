//! How models mark their reasoning.

/// A pair of markers around reasoning.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Tags {
    pub(super) name: &'static str,
    pub(super) opening: &'static str,
    pub(super) closing: &'static str,
}

/// All pairs that are known; what a model has of them first is its own.
const KNOWN: &[Tags] = &[
    tags("think", "<think>", "</think>"),
    tags("longcat_think", "<longcat_think>", "</longcat_think>"),
    tags("think_tokens", "<|think:start|>", "<|think:end|>"),
    tags("seed_think", "<seed:think>", "</seed:think>"),
    tags("minimax_think", "<mm:think>", "</mm:think>"),
    tags("mistral_think", "[THINK]", "[/THINK]"),
    tags("cohere_think", "<|START_THINKING|>", "<|END_THINKING|>"),
    tags("apertus_think", "<|inner_prefix|>", "<|inner_suffix|>"),
    tags("gemma_channel", "<|channel>thought", "<channel|>"),
    tags(
        "kimi_k3_think",
        "<|open|>think<|sep|>",
        "<|close|>think<|sep|>",
    ),
];

const fn tags(name: &'static str, opening: &'static str, closing: &'static str) -> Tags {
    Tags {
        name,
        opening,
        closing,
    }
}

impl Tags {
    pub(super) fn by_name(name: &str) -> Option<&'static Self> {
        KNOWN.iter().find(|tags| tags.name == name)
    }

    /// The tags that a template writes or reads, or that a vocabulary has tokens for.
    pub(super) fn find(template: &str, has_token: impl Fn(&str) -> bool) -> Option<&'static Self> {
        let known = KNOWN.iter();
        // Kimi K3's template puts its markers together.
        if template.contains("<|open|>") && template.contains("<|end_of_msg|>") {
            return Self::by_name("kimi_k3_think");
        }
        let in_vocabulary = known.clone().find(|tags| match tags.name {
            "gemma_channel" => has_token("<|channel>") && has_token("<channel|>"),
            "kimi_k3_think" => ["<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"]
                .into_iter()
                .all(&has_token),
            _ => has_token(tags.opening) && has_token(tags.closing),
        });
        in_vocabulary.or_else(|| {
            known
                .clone()
                .find(|tags| template.contains(tags.opening) && template.contains(tags.closing))
        })
    }

    /// Whether a prompt ends inside reasoning: with the opening marker, or with reasoning to
    /// continue, in which no token of the template's own comes.
    pub(super) fn are_open_in(&self, prompt: &str, special_tokens: &[String]) -> bool {
        let Some(at) = prompt.rfind(self.opening) else {
            return false;
        };
        let rest = &prompt[at + self.opening.len()..];
        if rest.contains(self.closing) {
            return false;
        }
        let has_special = || {
            special_tokens
                .iter()
                .any(|token| rest.contains(token.as_str()))
        };
        rest.trim().is_empty() || (!special_tokens.is_empty() && !has_special())
    }
}
