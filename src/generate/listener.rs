//! The caller's side: tokens become text, text is searched for stop strings, callbacks run.

use super::{EndReason, Event, Finish, GenerateOptions, Logprobs, stop_strings::StopStrings};
use crate::{
    cancel::{Cancel, Flow},
    error::Result,
    model::Model,
    tokenizer::Detokenizer,
};

/// Turns updates into events for the callback, up to the one at which it or a stop string ends
/// the generation.
pub(crate) struct Listener<'a, 'b> {
    model: &'a Model,
    on_event: &'b mut dyn FnMut(Event<'_>) -> Flow,
    cancel: Option<Cancel>,
    prompt_tokens: usize,
    detokenizer: Detokenizer,
    stop_strings: StopStrings,
    stop_tokens: Vec<u32>,
    /// How many tokens the callback was told.
    pub(crate) generated_tokens: usize,
    /// Set once the generation has ended for a reason on this side.
    pub(crate) finish: Option<Finish>,
}

impl<'a, 'b> Listener<'a, 'b> {
    pub(crate) fn new(
        model: &'a Model,
        options: &GenerateOptions,
        prompt_tokens: usize,
        on_event: &'b mut dyn FnMut(Event<'_>) -> Flow,
    ) -> Result<Self> {
        Ok(Self {
            model,
            on_event,
            cancel: options.cancel.clone(),
            prompt_tokens,
            detokenizer: Detokenizer::new(&model.0.tokenizer, false),
            stop_strings: StopStrings::new(&options.stop)?,
            stop_tokens: options.stop_tokens.clone(),
            generated_tokens: 0,
            finish: None,
        })
    }

    /// Tells the callback, unless the generation has ended; whether it did. The engine may have
    /// been ahead of the callback when the cancel object was used: what it sent until then is not
    /// told.
    fn tell(&mut self, event: Event<'_>) -> bool {
        if self.finish.is_none() && self.cancel.as_ref().is_some_and(Cancel::is_requested) {
            self.finish = Some(Finish::Cancelled);
        }
        if self.finish.is_some() {
            return false;
        }
        if (self.on_event)(event) == Flow::Stop {
            self.finish = Some(Finish::Caller);
        }
        true
    }

    pub(crate) fn prefilled(&mut self, done: usize) {
        let total = self.prompt_tokens;
        self.tell(Event::Prefill { done, total });
    }

    pub(crate) fn token(&mut self, id: u32, logprobs: Option<&Logprobs>) {
        if self.generated_tokens == 0 {
            self.prefilled(self.prompt_tokens);
        }
        if !self.tell(Event::Token { id, logprobs }) {
            return;
        }
        self.generated_tokens += 1;
        let ends = self.model.0.is_eos(id) || self.stop_tokens.contains(&id);
        if self.finish.is_none() && !ends {
            let text = self.detokenizer.push(id);
            self.text(&text);
        }
    }

    /// The engine has ended: what was held back is complete now.
    pub(crate) fn end(&mut self, reason: EndReason) {
        if self.finish.is_some() || !matches!(reason, EndReason::Eos | EndReason::Length) {
            return;
        }
        let rest = self.detokenizer.finish();
        self.text(&rest);
        if self.finish.is_none() {
            let rest = self.stop_strings.finish();
            self.emit(&rest);
        }
    }

    fn text(&mut self, text: &str) {
        let (settled, matched) = self.stop_strings.push(text);
        self.emit(&settled);
        if let (None, Some(index)) = (self.finish, matched) {
            self.finish = Some(Finish::StopString(index));
        }
    }

    fn emit(&mut self, text: &str) {
        if !text.is_empty() {
            self.tell(Event::Text(text));
        }
    }
}
