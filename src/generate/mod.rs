//! Generation: the caller's side of the decode loop, where text is made and callbacks run.

#[cfg(test)]
mod against_mlx_lm;
mod control;
mod decode;
mod filters;
mod listener;
mod logits;
mod penalties;
mod sampling;
mod stop_strings;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use crossbeam_channel::{Receiver, bounded};

use self::{
    control::Control,
    decode::{Decode, EndReason, Ended, Job, Update},
    listener::Listener,
    sampling::Sampler,
};
pub use self::{
    penalties::{DEFAULT_PENALTY_CONTEXT, Penalties, Penalty},
    sampling::{Logprobs, Sampling},
};
use crate::{
    cache::{Cache, Session},
    cancel::{Cancel, Flow},
    engine::{Engine, engine},
    error::{Error, Kind, Result},
    model::{Kv, Lease, Model, Running, Source, State},
};

/// Updates that the engine may be ahead of a slow callback. The tokens beyond the one at which a
/// caller stops are run in vain, and taken back out of the state.
const UPDATES_AHEAD: usize = 8;

/// Prompt tokens that are run at once unless the caller says otherwise: mlx-lm's number.
pub const DEFAULT_PREFILL_CHUNK: usize = 2048;

/// What to generate from, and how.
#[derive(Clone, Debug)]
pub struct GenerateOptions {
    /// The most tokens to generate; None: as many as fit into the context.
    pub max_tokens: Option<u64>,
    /// Whether all of `max_tokens` must fit into the memory budget beforehand. Without it, as
    /// without a limit, an answer begins when its first token fits.
    pub reserves_max_tokens: bool,
    /// How tokens are drawn.
    pub sampling: Sampling,
    /// Ends the answer where one of these appears in its text; no part of it is emitted.
    pub stop: Vec<String>,
    /// Ends the answer like an end token of the model; its text is not emitted.
    pub stop_tokens: Vec<u32>,
    /// Prompt tokens that are run at once: the grain of progress, fairness and cancelling.
    pub prefill_chunk: usize,
    /// Looked at before each step and each event.
    pub cancel: Option<Cancel>,
    /// Where states are looked for before, and kept after; not together with a kv.
    pub cache: Option<CacheUse>,
}

/// Which states of a cache a generation may use.
#[derive(Clone, Debug)]
pub struct CacheUse {
    /// The cache.
    pub cache: Cache,
    /// States are shared among those who say the same here: a user, a document, a tenant.
    pub namespace: String,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        Self {
            max_tokens: None,
            reserves_max_tokens: true,
            sampling: Sampling::default(),
            stop: Vec::new(),
            stop_tokens: Vec::new(),
            prefill_chunk: DEFAULT_PREFILL_CHUNK,
            cancel: None,
            cache: None,
        }
    }
}

/// What a generation tells while it runs.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// So many of the prompt's tokens have been run, or found in the cache. Comes first with 0,
    /// last with all.
    Prefill {
        /// Tokens run or found.
        done: usize,
        /// Tokens of the prompt.
        total: usize,
    },
    /// A token was sampled, the end token included.
    Token {
        /// Its id.
        id: u32,
        /// Where [`Sampling::logprobs`] asks for them.
        logprobs: Option<&'a Logprobs>,
    },
    /// Text that is complete: whole characters, and no part of a stop string.
    Text(&'a str),
}

impl From<EndReason> for Finish {
    fn from(reason: EndReason) -> Self {
        match reason {
            EndReason::Eos => Self::Eos,
            EndReason::Length => Self::Length,
            EndReason::Stopped => Self::Caller,
            EndReason::Cancelled => Self::Cancelled,
        }
    }
}

/// Why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finish {
    /// The model ended its answer.
    Eos,
    /// `max_tokens` or the context is used up.
    Length,
    /// A stop string appeared: its index among the options.
    StopString(usize),
    /// The callback returned [`Flow::Stop`].
    Caller,
    /// The cancel object was used.
    Cancelled,
}

/// How a generation went.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Generated {
    /// Why it ended.
    pub finish: Finish,
    /// Tokens before the answer: the kv's and the prompt's.
    pub prompt_tokens: usize,
    /// How many of these needed not be run: the kv or the cache held their state.
    pub reused_tokens: usize,
    /// How many of those were read from the cache's disk.
    pub restored_tokens: usize,
    /// Tokens told by [`Event::Token`].
    pub generated_tokens: usize,
    /// From the start to the first token.
    pub prefill: Duration,
    /// From the first token to the end.
    pub decode: Duration,
}

impl Model {
    /// Generates an answer to `prompt`, telling `on_event` on this thread.
    ///
    /// With a `kv`, the prompt continues its tokens. Afterwards it holds those, the prompt and
    /// all generated tokens but the last: the last was sampled, but not run. Start the next
    /// prompt with it to go on as if there had been no end. When a generation ends during the
    /// prefill, the kv holds the prompt tokens that were run.
    ///
    /// # Errors
    /// Nothing is run: [`Kind::InvalidArgument`] for an empty prompt, ids that the model does
    /// not have, a kv of another model and options that mean nothing; [`Kind::ContextFull`]
    /// when the prompt does not fit; [`Kind::Busy`] when the kv is in use;
    /// [`Kind::OverBudget`]. While running: [`Kind::Backend`], which leaves the kv empty. A
    /// cancelled generation is no error but a [`Finish`].
    pub fn generate(
        &self,
        kv: Option<&Kv>,
        prompt: &[u32],
        options: &GenerateOptions,
        on_event: &mut dyn FnMut(Event<'_>) -> Flow,
    ) -> Result<Generated> {
        self.check_request(kv, prompt, options)?;
        let engine = engine()?;
        let mut listener = Listener::new(self, options, prompt.len(), on_event)?;
        let mut lease = kv.map(Kv::lease).transpose()?;
        let kept = lease.as_ref().map_or(0, Lease::token_count);
        let max_tokens = self.max_tokens(kept + prompt.len(), options.max_tokens)?;
        // Before others can find this generation and wait for it: a callback takes its time, and
        // may itself ask for the same prompt.
        listener.prefilled(0);
        let mut source = Source::State(lease.as_mut().map(Lease::take).unwrap_or_default());
        let context = match &source {
            Source::State(state) => [&state.tokens, prompt].concat(),
            Source::Running(..) => prompt.to_vec(),
        };
        let running = Arc::new(Running::new(&context));
        if let Some(lease) = &mut lease {
            lease.is_run_by(&running);
        }
        let mut session = None;
        if let Some(CacheUse { cache, namespace }) = &options.cache {
            let (found, begun) = cache.begin(self, namespace, prompt, &running)?;
            source = found;
            session = Some(begun);
        }
        let mut owner = Owner { lease, session };

        let (sender, updates) = bounded(UPDATES_AHEAD);
        let control = Arc::new(Control::default());
        if listener.finish.is_some() {
            control.stop();
        }
        engine.start(Box::new(Decode::new(Job {
            model: Arc::clone(&self.0),
            source,
            context,
            prompt_start: kept,
            running,
            stop_tokens: options.stop_tokens.clone(),
            prefill_chunk: options.prefill_chunk,
            max_tokens,
            admitted_tokens: match options.max_tokens {
                Some(_) if options.reserves_max_tokens => max_tokens,
                _ => 1,
            },
            sampler: Sampler::new(options.sampling.clone(), self.spared_by_xtc(options)),
            cancel: options.cancel.clone(),
            control: Arc::clone(&control),
            updates: sender,
        })))?;
        let ended = match listen(engine, &updates, &control, &mut listener)? {
            Ok(ended) => ended,
            Err((error, state)) => {
                owner.give_back(state, 0);
                return Err(error);
            }
        };
        // After an error of MLX the state is empty.
        let mut state = ended.state;
        let reason = match ended.reason {
            Ok(reason) => reason,
            Err(error) => {
                owner.give_back(state, ended.reused);
                return Err(error);
            }
        };
        listener.end(reason);
        let generated_tokens = listener.generated_tokens;
        // The engine may have run the last token, and tokens that nobody was told of: what is
        // left is the same for every end.
        let run = generated_tokens.saturating_sub(1);
        state.tokens.truncate(kept + prompt.len() + run);
        let restored = owner.session.as_ref().map_or(0, Session::restored_tokens);
        owner.give_back(state, ended.reused);
        Ok(Generated {
            finish: listener.finish.unwrap_or_else(|| reason.into()),
            prompt_tokens: kept + prompt.len(),
            reused_tokens: ended.reused,
            restored_tokens: restored.min(ended.reused),
            generated_tokens,
            prefill: ended.prefill,
            decode: ended.decode,
        })
    }

    /// The ids of a prompt given as text. A begin token that the tokenizer would add by itself
    /// is left out where the text starts with one already, and after the tokens of a `kv`.
    ///
    /// # Errors
    /// [`Kind::Busy`] when the kv is in use, and those of the tokenizer.
    pub fn encode_prompt(&self, kv: Option<&Kv>, text: &str) -> Result<Vec<u32>> {
        let tokenizer = self.tokenizer();
        let continues = match kv {
            Some(kv) => !kv.tokens()?.is_empty(),
            None => false,
        };
        let begins = tokenizer
            .bos_token()
            .is_some_and(|bos| text.starts_with(bos));
        tokenizer.encode(text, !continues && !begins)
    }

    /// The text of ids.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] for an id that the model does not have.
    pub fn detokenize(&self, tokens: &[u32], skip_special: bool) -> Result<String> {
        self.0.check_tokens(tokens)?;
        Ok(self.tokenizer().decode(tokens, skip_special))
    }

    /// The ids that XTC never drops: the end tokens, and the newline where it is one token.
    fn spared_by_xtc(&self, options: &GenerateOptions) -> Vec<u32> {
        if options.sampling.xtc_probability == 0.0 {
            return Vec::new();
        }
        let mut spared = self.info().eos_tokens.clone();
        if let Ok([newline]) = self.tokenizer().encode("\n", false).as_deref() {
            spared.push(*newline);
        }
        spared
    }

    fn check_request(
        &self,
        kv: Option<&Kv>,
        prompt: &[u32],
        options: &GenerateOptions,
    ) -> Result<()> {
        let invalid = |what: &str| Err(Error::new(Kind::InvalidArgument, what));
        if prompt.is_empty() {
            return invalid("the prompt has no tokens");
        }
        if options.prefill_chunk == 0 {
            return invalid("prefill_chunk must be at least 1: 0");
        }
        if kv.is_some() && options.cache.is_some() {
            return invalid("a kv and a cache are given, of which a generation takes one");
        }
        if kv.is_some_and(|kv| !kv.is_of(self)) {
            return invalid("the kv was made from another model");
        }
        options.sampling.check(self.info().vocab_size)?;
        self.0.check_tokens(&options.stop_tokens)?;
        self.0.check_tokens(prompt)
    }

    /// How many tokens may follow `prompt_tokens`.
    fn max_tokens(&self, prompt_tokens: usize, wanted: Option<u64>) -> Result<u64> {
        let context = self.info().context_length;
        if prompt_tokens >= context {
            return Err(Error::new(
                Kind::ContextFull,
                format!(
                    "the prompt has {prompt_tokens} tokens, which leaves no room in a context of {context}"
                ),
            ));
        }
        let room = (context - prompt_tokens) as u64;
        Ok(wanted.map_or(room, |wanted| wanted.min(room)))
    }
}

/// Who gets the state when the generation has ended.
struct Owner<'a> {
    lease: Option<Lease<'a>>,
    session: Option<Session>,
}

impl Owner<'_> {
    /// `reused` tokens of the context were there already.
    fn give_back(&mut self, state: State, reused: usize) {
        if let Some(lease) = &mut self.lease {
            lease.give_back(state);
        } else if let Some(session) = self.session.take() {
            session.end(state, reused);
        }
    }
}

/// Takes updates until the engine has ended, or refused to begin and gave the state back.
fn listen(
    engine: &Engine,
    updates: &Receiver<Update>,
    control: &Arc<Control>,
    listener: &mut Listener<'_, '_>,
) -> Result<Result<Ended, (Error, State)>> {
    let _guard = AbandonOnDrop {
        engine,
        control: Arc::clone(control),
    };
    loop {
        let Ok(update) = updates.recv() else {
            return Err(engine.dropped("the generation"));
        };
        if control.room_was_awaited() {
            engine.wake();
        }
        match update {
            Update::Prefill { done } => listener.prefilled(done),
            Update::Token { id, logprobs } => listener.token(id, logprobs.as_deref()),
            Update::Refused { error, state } => return Ok(Err((error, state))),
            Update::Ended(ended) => return Ok(Ok(ended)),
        }
        if listener.finish.is_some() {
            control.stop();
        }
    }
}

/// Tells the engine that nobody listens, when a callback panics.
struct AbandonOnDrop<'a> {
    engine: &'a Engine,
    control: Arc<Control>,
}

impl Drop for AbandonOnDrop<'_> {
    fn drop(&mut self) {
        self.control.abandon();
        self.engine.wake();
    }
}
