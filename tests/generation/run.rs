//! One generation and all that it told.

use mlxb::{Event, Flow, GenerateOptions, Generated, Kv, Logprobs, Model, Result};

/// What was told.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Told {
    pub(crate) prefill: Vec<(usize, usize)>,
    pub(crate) ids: Vec<u32>,
    pub(crate) logprobs: Vec<Logprobs>,
    pub(crate) text: String,
    pub(crate) pieces: Vec<String>,
}

impl Told {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Prefill { done, total } => self.prefill.push((done, total)),
            Event::Token { id, logprobs } => {
                self.ids.push(id);
                self.logprobs.extend(logprobs.cloned());
            }
            Event::Text(text) => {
                self.text.push_str(text);
                self.pieces.push(text.to_owned());
            }
            _ => {}
        }
    }
}

/// Generates; `flow` decides, after each event, on what was told so far.
pub(crate) fn run_while(
    model: &Model,
    kv: Option<&Kv>,
    prompt: &[u32],
    options: &GenerateOptions,
    mut flow: impl FnMut(&Told) -> Flow,
) -> Result<(Generated, Told)> {
    let mut told = Told::default();
    let generated = model.generate(kv, prompt, options, &mut |event| {
        told.take(event);
        flow(&told)
    })?;
    assert_eq!(generated.generated_tokens, told.ids.len());
    Ok((generated, told))
}

/// Generates to the end.
pub(crate) fn run(
    model: &Model,
    kv: Option<&Kv>,
    prompt: &[u32],
    options: &GenerateOptions,
) -> (Generated, Told) {
    run_while(model, kv, prompt, options, |_| Flow::Continue)
        .unwrap_or_else(|error| panic!("{error}"))
}
