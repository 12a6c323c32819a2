//! Token ids to text while they arrive.

use std::sync::Arc;

use super::Tokenizer;
use super::pipeline::Pipeline;

/// Turns ids into text one by one. The concatenated text equals [`Tokenizer::decode`] of
/// all ids; a character is given out when it is complete and nothing later can change it.
/// The cost of an id does not depend on how many came before.
///
/// Most decoders hold back at most an unfinished character. Byte fallback holds back a run
/// of byte tokens to its end, since one invalid byte turns the whole run into replacement
/// characters; the clean-up of spaces holds back a space until it sees what follows.
pub struct Detokenizer {
    tokenizer: Arc<Tokenizer>,
    pipeline: Pipeline,
    skip_special: bool,
}

impl Detokenizer {
    /// A detokenizer at the start of a text; with `skip_special`, special tokens have no text.
    pub fn new(tokenizer: &Arc<Tokenizer>, skip_special: bool) -> Self {
        Self {
            pipeline: tokenizer.pipeline.clone(),
            tokenizer: Arc::clone(tokenizer),
            skip_special,
        }
    }

    /// Takes the next id; the text that it completes, often none.
    pub fn push(&mut self, id: u32) -> String {
        match self.tokenizer.decodable(id, self.skip_special) {
            Some((token, is_added)) => self.pipeline.push(token, is_added),
            None => String::new(),
        }
    }

    /// The text that was held back; the detokenizer is at the start of a text again.
    pub fn finish(&mut self) -> String {
        let text = self.pipeline.finish();
        self.pipeline = self.tokenizer.pipeline.clone();
        text
    }
}
