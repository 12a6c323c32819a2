//! The decode loop, as a task of the engine: chunks of the prompt, then one token a step.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crossbeam_channel::{Sender, TrySendError};
use mlx_rs::{Array, transforms};

use super::{
    control::Control,
    penalties::History,
    sampling::{Drawn, Logprobs, Sampler},
};
use crate::{
    cancel::Cancel,
    engine::{Mlx, Progress, Task, mlx::MlxResult},
    error::{Error, Kind, Result},
    footprint::Request,
    memory::{self, Admission},
    model::{LayerCache, LoadedModel, Loan, Running, Source, State},
};

/// Decoded tokens after which MLX's allocator gives back what it keeps, as in mlx-lm.
const CLEAR_EVERY: u64 = 256;

/// What the engine tells the caller.
pub(crate) enum Update {
    /// So many prompt tokens have been run, or need not be.
    Prefill { done: usize },
    /// A sampled token.
    Token {
        id: u32,
        logprobs: Option<Box<Logprobs>>,
    },
    /// The only update of a request that does not fit: why, and the state as it was.
    Refused { error: Error, state: State },
    /// The last update: why it ended and the state that is left.
    Ended(Ended),
}

/// The most updates that one step tells: what need not be run, the end of the prefill and the
/// first token.
const UPDATES_A_STEP: usize = 3;

/// How a generation ended on the engine's side.
pub(crate) struct Ended {
    pub(crate) reason: Result<EndReason>,
    /// What is left: of the tokens before, the prompt and the answer, those that were run.
    pub(crate) state: State,
    /// Tokens of the context that were there already.
    pub(crate) reused: usize,
    pub(crate) prefill: Duration,
    pub(crate) decode: Duration,
}

/// Why the engine stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndReason {
    /// The model sampled an end token.
    Eos,
    /// The number of tokens asked for is reached.
    Length,
    /// The caller's side raised the stop flag.
    Stopped,
    /// The cancel object was used.
    Cancelled,
}

/// What to generate. All checked by the caller's side.
pub(crate) struct Job {
    pub(crate) model: Arc<LoadedModel>,
    /// What holds the first tokens of the context already: never all of them.
    pub(crate) source: Source,
    /// What the answer continues: at least one token.
    pub(crate) context: Vec<u32>,
    /// Where in the context the prompt begins that the caller is told about.
    pub(crate) prompt_start: usize,
    pub(crate) running: Arc<Running>,
    /// Ends the answer like an end token of the model.
    pub(crate) stop_tokens: Vec<u32>,
    pub(crate) prefill_chunk: usize,
    pub(crate) max_tokens: u64,
    /// Tokens of the answer that must fit into memory beforehand.
    pub(crate) admitted_tokens: u64,
    pub(crate) sampler: Sampler,
    pub(crate) cancel: Option<Cancel>,
    pub(crate) control: Arc<Control>,
    pub(crate) updates: Sender<Update>,
}

/// A running [`Job`].
pub(crate) struct Decode {
    job: Job,
    stage: Stage,
    /// From the first step on.
    admitted: Option<(Request, Admission)>,
    /// Everything that the host knows: the prompt and all before it, the answer so far.
    context: Vec<u32>,
    answer_start: usize,
    reused: usize,
    /// Tokens that the layers have seen: of the context, then generated ones.
    fed: usize,
    generated: u64,
    started: Instant,
    first_token: Option<Instant>,
}

enum Stage {
    Start,
    Prefill,
    /// The first token has been told, and the second is not begun.
    Second,
    /// The next token, computed or being computed.
    Decode(Drawn),
    Ending(Result<EndReason>),
    Ended,
}

impl Decode {
    pub(crate) fn new(mut job: Job) -> Self {
        let context = std::mem::take(&mut job.context);
        Self {
            answer_start: context.len(),
            context,
            job,
            stage: Stage::Start,
            admitted: None,
            reused: 0,
            fed: 0,
            generated: 0,
            started: Instant::now(),
            first_token: None,
        }
    }

    fn should_end(&self) -> Option<EndReason> {
        if self.job.cancel.as_ref().is_some_and(Cancel::is_requested) {
            Some(EndReason::Cancelled)
        } else if self.job.control.is_stopped() {
            Some(EndReason::Stopped)
        } else {
            None
        }
    }

    /// Whether the caller's side has room for what a step tells; if not, it will wake us.
    fn has_room(&self) -> bool {
        let updates = &self.job.updates;
        let room = || updates.capacity().unwrap_or(usize::MAX) - updates.len();
        if room() >= UPDATES_A_STEP {
            return true;
        }
        self.job.control.await_room();
        // Room may have been made before the flag was up.
        room() >= UPDATES_A_STEP
    }

    fn tell(&mut self, update: Update) {
        match self.job.updates.try_send(update) {
            Ok(()) => {}
            // Nobody listens any more.
            Err(TrySendError::Disconnected(_)) => self.stage = Stage::Ended,
            Err(TrySendError::Full(_)) => unreachable!("a step starts with room for its updates"),
        }
    }

    fn advance(&mut self, mlx: &Mlx) -> Result<()> {
        match std::mem::replace(&mut self.stage, Stage::Ended) {
            Stage::Prefill => self.prefill(mlx),
            Stage::Second => {
                let drawn = self.run_last(mlx)?;
                self.decode(&drawn, mlx)
            }
            Stage::Decode(drawn) => self.decode(&drawn, mlx),
            other => {
                self.stage = other;
                Ok(())
            }
        }
    }

    /// Opens the source and asks for the memory of the whole request. False while the source is
    /// not there yet. Done here and not by the caller, since only between steps the memory in use
    /// holds no intermediate results of others.
    fn start(&mut self, mlx: &Mlx) -> Result<bool> {
        let (loan, kept, is_shared) = match &self.job.source {
            Source::State(state) => (None, state.tokens.len(), state.is_shared()),
            Source::Running(running, token_count) => match running.borrow(*token_count, mlx) {
                Loan::Wait => return Ok(false),
                Loan::Now(layers, kept) => (Some(layers), kept, true),
            },
        };
        let request = Request {
            kept: kept as u64,
            is_shared,
            prompt: (self.context.len() - kept) as u64,
            chunk: self.job.prefill_chunk as u64,
            answer: self.job.admitted_tokens,
        };
        let need = self.job.model.shape.need(&request);
        let admission = memory::admit("the request", need, mlx)?;
        self.admitted = Some((request, admission));
        let layers = match (loan, std::mem::take(&mut self.job.source)) {
            (Some(layers), _) if kept > 0 => layers,
            (None, Source::State(state)) => state.into_layers(&self.job.model, mlx),
            _ => self.job.model.network(mlx).new_cache(),
        };
        *self.job.running.layers(mlx) = layers;
        (self.reused, self.fed) = (kept, kept);
        self.job.running.has_fed(kept, mlx);
        self.stage = Stage::Prefill;
        if kept > self.job.prompt_start {
            self.tell(Update::Prefill {
                done: kept - self.job.prompt_start,
            });
        }
        Ok(true)
    }

    /// A chunk of all but the last prompt token; with the last chunk the last token, too, which
    /// gives the first of the answer. In the same step, so that a short request is not passed
    /// over between them by the long steps of others.
    fn prefill(&mut self, mlx: &Mlx) -> Result<()> {
        self.stage = Stage::Prefill;
        let before_last = self.context.len() - 1;
        let chunk = self.job.prefill_chunk.min(before_last - self.fed);
        if chunk > 0 {
            let ids = ids(&self.context[self.fed..self.fed + chunk]);
            let network = self.job.model.network(mlx);
            let mut layers = self.job.running.layers(mlx);
            network.forward(&ids, &mut layers)?;
            transforms::eval(layers.iter().flat_map(LayerCache::arrays))?;
            drop(layers);
            self.has_fed(chunk, mlx);
            mlx_rs::memory::clear_cache()?;
            self.tell(Update::Prefill {
                done: self.fed - self.job.prompt_start,
            });
            if self.fed < before_last || self.should_end().is_some() {
                return Ok(());
            }
        }
        if self.job.max_tokens == 0 {
            self.stage = Stage::Ending(Ok(EndReason::Length));
            return Ok(());
        }
        self.first(mlx)
    }

    fn has_fed(&mut self, count: usize, mlx: &Mlx) {
        self.fed += count;
        self.job.running.has_fed(self.fed, mlx);
        if let Some((request, admission)) = &self.admitted {
            let shape = &self.job.model.shape;
            admission.has_grown_to(shape.added_bytes(request, self.fed as u64));
        }
    }

    /// The first token. It is told before the second is begun: MLX's CPU backend queues few
    /// operations, so that beginning a step takes until the step before is almost done.
    fn first(&mut self, mlx: &Mlx) -> Result<()> {
        let drawn = self.run_last(mlx)?;
        self.tell_token(&drawn, Stage::Second)?;
        self.first_token = Some(Instant::now());
        Ok(())
    }

    /// Starts on the token after the drawn one, then reads the drawn one back.
    fn decode(&mut self, drawn: &Drawn, mlx: &Mlx) -> Result<()> {
        let next = if self.generated + 1 < self.job.max_tokens {
            let ids = drawn.token.reshape(&[1, 1])?;
            Stage::Decode(self.run(&ids, Some(&drawn.token), mlx)?)
        } else {
            Stage::Ended
        };
        self.tell_token(drawn, next)
    }

    /// Reads a token back and tells it. Unless it is the last, the generation goes on with `next`.
    fn tell_token(&mut self, drawn: &Drawn, next: Stage) -> Result<()> {
        let id = drawn
            .token
            .try_item_exact::<u32>()
            .map_err(|error| Error::new(Kind::Backend, format!("reading a token: {error}")))?;
        let logprobs = drawn.read_logprobs()?.map(Box::new);
        if self.generated.is_multiple_of(CLEAR_EVERY) {
            mlx_rs::memory::clear_cache()?;
        }
        self.generated += 1;
        self.context.push(id);
        self.stage = if self.job.model.is_eos(id) || self.job.stop_tokens.contains(&id) {
            Stage::Ending(Ok(EndReason::Eos))
        } else if self.generated == self.job.max_tokens {
            Stage::Ending(Ok(EndReason::Length))
        } else {
            next
        };
        self.tell(Update::Token { id, logprobs });
        Ok(())
    }

    /// Runs the last token of the context, which no layer has seen.
    fn run_last(&mut self, mlx: &Mlx) -> MlxResult<Drawn> {
        let last = ids(&self.context[self.context.len() - 1..]);
        self.run(&last, None, mlx)
    }

    /// Runs ids \[1, L\] and starts sampling the token that follows. `pending` is the last of
    /// them where the host does not know it yet: \[1\].
    fn run(&mut self, ids: &Array, pending: Option<&Array>, mlx: &Mlx) -> MlxResult<Drawn> {
        let network = self.job.model.network(mlx);
        let hidden = network.forward(ids, &mut self.job.running.layers(mlx))?;
        let logits = network.logits(&hidden)?.reshape(&[1, -1])?;
        let history = History {
            known: &self.context,
            answer_start: self.answer_start,
            pending,
        };
        let step = self.generated + u64::from(pending.is_some());
        let drawn = self.job.sampler.draw(logits, &history, step)?;
        transforms::async_eval(drawn.arrays())?;
        self.has_fed(ids.dim(1) as usize, mlx);
        Ok(drawn)
    }

    fn end(&mut self, reason: Result<EndReason>, mlx: &Mlx) {
        let ended = Instant::now();
        let first = self.first_token.unwrap_or(ended);
        let state = if self.admitted.is_some() {
            let mut tokens = std::mem::take(&mut self.context);
            tokens.truncate(self.fed);
            let layers = std::mem::take(&mut *self.job.running.layers(mlx));
            match reason {
                Ok(_) => State::new(tokens, layers, mlx),
                Err(_) => State::default(),
            }
        } else {
            self.unused_state()
        };
        self.job.running.leave(state.clone(), mlx);
        let update = Update::Ended(Ended {
            reason,
            state,
            reused: self.reused,
            prefill: first - self.started,
            decode: ended - first,
        });
        self.stage = Stage::Ended;
        self.tell(update);
    }

    /// The state that the caller lent, before anything was run.
    fn unused_state(&mut self) -> State {
        match std::mem::take(&mut self.job.source) {
            Source::State(state) => state,
            Source::Running(..) => State::default(),
        }
    }
}

impl Drop for Decode {
    fn drop(&mut self) {
        self.job.running.is_over();
    }
}

impl Task for Decode {
    fn step(&mut self, mlx: &Mlx) -> Progress {
        if self.job.control.is_abandoned() {
            return Progress::Done;
        }
        let has_room = self.has_room();
        self.job.running.set_stalled(!has_room, mlx);
        if !has_room {
            return Progress::Waiting;
        }
        if !matches!(self.stage, Stage::Ending(_))
            && let Some(reason) = self.should_end()
        {
            self.stage = Stage::Ending(Ok(reason));
        }
        match std::mem::replace(&mut self.stage, Stage::Ended) {
            Stage::Ending(reason) => {
                self.end(reason, mlx);
                return Progress::Done;
            }
            Stage::Start => match self.start(mlx) {
                Ok(true) => {}
                Ok(false) => {
                    self.stage = Stage::Start;
                    return Progress::Waiting;
                }
                Err(error) => {
                    let state = self.unused_state();
                    self.tell(Update::Refused { error, state });
                    return Progress::Done;
                }
            },
            stage => self.stage = stage,
        }
        let device = self.job.model.device();
        if let Err(error) = mlx.on(device, || self.advance(mlx)) {
            // The layers may be half written: nobody gets them.
            self.job.running.layers(mlx).clear();
            self.job.running.has_fed(0, mlx);
            self.stage = Stage::Ending(Err(error));
        }
        match self.stage {
            Stage::Ended => Progress::Done,
            _ => Progress::Again,
        }
    }
}

/// Ids as an array \[1, L\].
fn ids(tokens: &[u32]) -> Array {
    Array::from_slice(tokens, &[1, tokens.len() as i32])
}
