//! Changes to logits that depend on the tokens before: bias and penalties. The arithmetic is
//! that of mlx-lm's `make_logits_processors`, in its order.

use mlx_rs::{Array, ops};

use super::filters::scalar;
use crate::{
    engine::mlx::MlxResult,
    error::{Error, Kind, Result},
};

/// Tokens that a penalty looks back on unless the caller says otherwise: mlx-lm's number.
pub const DEFAULT_PENALTY_CONTEXT: usize = 20;

/// A penalty on tokens that appeared before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Penalty {
    /// How much.
    pub value: f32,
    /// How many tokens back; 0 is all of them.
    pub context_size: usize,
}

/// Everything that changes logits before they become probabilities.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Penalties {
    /// Added to the logits of these ids.
    pub logit_bias: Vec<(u32, f32)>,
    /// Divides positive logits and multiplies negative ones of tokens in the prompt or the
    /// answer (Keskar et al. 2019); 1 does nothing.
    pub repetition: Option<Penalty>,
    /// Subtracted once from the logits of tokens in the answer.
    pub presence: Option<Penalty>,
    /// Subtracted from the logits of tokens in the answer for each time they appear there.
    pub frequency: Option<Penalty>,
}

impl Penalties {
    /// Refuses values that mean nothing.
    pub(super) fn check(&self, vocab_size: usize) -> Result<()> {
        let refuse = |what: String| Err(Error::new(Kind::InvalidArgument, what));
        for &(id, bias) in &self.logit_bias {
            if id as usize >= vocab_size {
                return refuse(format!(
                    "logit_bias names an id that is not below the vocabulary's size {vocab_size}: {id}"
                ));
            }
            if bias.is_nan() || bias == f32::INFINITY {
                return refuse(format!("logit_bias of token {id} is no bias: {bias}"));
            }
        }
        if let Some(Penalty { value, .. }) = self.repetition
            && !(value.is_finite() && value > 0.0)
        {
            return refuse(format!("repetition_penalty must be above 0: {value}"));
        }
        for (name, penalty) in [
            ("presence_penalty", self.presence),
            ("frequency_penalty", self.frequency),
        ] {
            if let Some(Penalty { value, .. }) = penalty
                && !value.is_finite()
            {
                return refuse(format!("{name} must be a finite number: {value}"));
            }
        }
        Ok(())
    }
}

/// The tokens before the one to be sampled: those that the host knows, and the last one where it
/// is still being computed.
pub(super) struct History<'a> {
    /// Prompt and answer.
    pub(super) known: &'a [u32],
    /// Where the answer begins in `known`.
    pub(super) answer_start: usize,
    /// \[1\].
    pub(super) pending: Option<&'a Array>,
}

impl History<'_> {
    /// The last `size` tokens (0: all), of the answer only where asked: \[n\], or None for none.
    fn window(&self, size: usize, answer_only: bool) -> MlxResult<Option<Array>> {
        let known = if answer_only {
            &self.known[self.answer_start..]
        } else {
            self.known
        };
        let from_known = match (size, self.pending) {
            (0, _) => known.len(),
            (size, Some(_)) => size - 1,
            (size, None) => size,
        };
        let known = &known[known.len().saturating_sub(from_known)..];
        let host = || Array::from_slice(known, &[known.len() as i32]);
        Ok(match self.pending {
            Some(pending) if known.is_empty() => Some(pending.clone()),
            Some(pending) => Some(ops::concatenate(&[&host(), pending], 0)?),
            None if known.is_empty() => None,
            None => Some(host()),
        })
    }
}

/// Applies one request's penalties.
pub(super) struct Processors {
    penalties: Penalties,
    /// Made with the first logits: \[1, vocabulary\].
    bias: Option<Array>,
}

impl Processors {
    pub(super) fn new(mut penalties: Penalties) -> Self {
        let unless = |neutral: f32| move |penalty: &Penalty| penalty.value != neutral;
        penalties.repetition = penalties.repetition.filter(unless(1.0));
        penalties.presence = penalties.presence.filter(unless(0.0));
        penalties.frequency = penalties.frequency.filter(unless(0.0));
        Self {
            penalties,
            bias: None,
        }
    }

    /// Logits \[1, vocabulary\] to changed ones.
    pub(super) fn apply(&mut self, logits: Array, history: &History<'_>) -> MlxResult {
        let mut logits = logits;
        if !self.penalties.logit_bias.is_empty() {
            logits = logits.add(self.bias(&logits)?)?;
        }
        if let Some(penalty) = self.penalties.repetition
            && let Some(tokens) = history.window(penalty.context_size, false)?
        {
            logits = repetition(&logits, &tokens, penalty.value)?;
        }
        if let Some(penalty) = self.penalties.presence
            && let Some(tokens) = history.window(penalty.context_size, true)?
        {
            logits = presence(&logits, &tokens, penalty.value)?;
        }
        if let Some(penalty) = self.penalties.frequency
            && let Some(tokens) = history.window(penalty.context_size, true)?
        {
            logits = frequency(&logits, &tokens, penalty.value)?;
        }
        Ok(logits)
    }

    fn bias(&mut self, logits: &Array) -> MlxResult {
        if let Some(bias) = &self.bias {
            return Ok(bias.clone());
        }
        let mut dense = vec![0.0; logits.dim(-1) as usize];
        for &(id, bias) in &self.penalties.logit_bias {
            dense[id as usize] += bias;
        }
        let bias = Array::from_slice(&dense, &[1, logits.dim(-1)]).as_dtype(logits.dtype())?;
        self.bias = Some(bias.clone());
        Ok(bias)
    }
}

fn repetition(logits: &Array, tokens: &Array, penalty: f32) -> MlxResult {
    let seen = logits.take_axis(tokens, 1)?;
    let penalty = scalar(penalty, logits.dtype())?;
    let changed = ops::select(
        seen.lt(scalar(0.0, logits.dtype())?)?,
        seen.multiply(&penalty)?,
        seen.divide(&penalty)?,
    )?;
    logits.put_along_axis(tokens.reshape(&[1, -1])?, changed, 1)
}

fn presence(logits: &Array, tokens: &Array, penalty: f32) -> MlxResult {
    let changed = logits
        .take_axis(tokens, 1)?
        .subtract(scalar(penalty, logits.dtype())?)?;
    logits.put_along_axis(tokens.reshape(&[1, -1])?, changed, 1)
}

fn frequency(logits: &Array, tokens: &Array, penalty: f32) -> MlxResult {
    let each = scalar(-penalty, logits.dtype())?;
    let updates = ops::broadcast_to(each, &[tokens.dim(0), 1])?;
    let flat = logits.reshape(&[-1])?;
    ops::indexing::scatter_add_single(flat, tokens, updates, 0)?.reshape(&[1, -1])
}
