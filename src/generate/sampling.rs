//! From logits to a token: processors, log-softmax, filters, a draw.
//!
//! The chain and its order are mlx-lm's: bias and penalties, log-softmax, top-p, min-p, XTC,
//! top-k, then a draw at the temperature. Everything stays on the device; only the chosen id, and
//! the log-probabilities that were asked for, cross to the host.

use mlx_rs::{Array, Dtype, ops, random};

use super::{
    filters,
    penalties::{History, Penalties, Processors},
};
use crate::{
    engine::mlx::MlxResult,
    error::{Error, Kind, Result},
};

/// How tokens are drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Divides the log-probabilities before the draw; 0 takes the most likely token.
    pub temperature: f32,
    /// Keeps the smallest set of most likely tokens whose probabilities sum to this; 1 keeps all,
    /// 0 the most likely one.
    pub top_p: f32,
    /// Drops tokens less likely than this times the most likely one; 0 keeps all.
    pub min_p: f32,
    /// Tokens that `min_p` never drops; at least 1.
    pub min_tokens_to_keep: u32,
    /// How often XTC drops the most likely tokens; 0 never does.
    pub xtc_probability: f32,
    /// XTC drops all tokens more likely than this but for the least likely of them, and never
    /// the end tokens and the newline. From 0 to 0.5; 0 drops nothing.
    pub xtc_threshold: f32,
    /// Keeps this many of the most likely tokens; 0 keeps all.
    pub top_k: u32,
    /// Draws are a function of the seed and of the token's place in the answer: the same seed
    /// gives the same tokens, whatever else runs. None takes a new one each time.
    pub seed: Option<u64>,
    /// What changes the logits first.
    pub penalties: Penalties,
    /// Tells the log-probability of each token, and of so many of the most likely ones.
    pub logprobs: Option<u32>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_p: 1.0,
            min_p: 0.0,
            min_tokens_to_keep: 1,
            xtc_probability: 0.0,
            xtc_threshold: 0.1,
            top_k: 0,
            seed: None,
            penalties: Penalties::default(),
            logprobs: None,
        }
    }
}

impl Sampling {
    /// Refuses values that mean nothing.
    pub(super) fn check(&self, vocab_size: usize) -> Result<()> {
        let refuse = |what: String| Err(Error::new(Kind::InvalidArgument, what));
        if !(self.temperature.is_finite() && self.temperature >= 0.0) {
            return refuse(format!(
                "temperature must be a finite number, at least 0: {}",
                self.temperature
            ));
        }
        for (name, value, most) in [
            ("top_p", self.top_p, 1.0),
            ("min_p", self.min_p, 1.0),
            ("xtc_probability", self.xtc_probability, 1.0),
            ("xtc_threshold", self.xtc_threshold, 0.5),
        ] {
            if !(0.0..=most).contains(&value) {
                return refuse(format!("{name} must be between 0 and {most}: {value}"));
            }
        }
        if self.min_tokens_to_keep == 0 {
            return refuse("min_tokens_to_keep must be at least 1: 0".into());
        }
        self.penalties.check(vocab_size)
    }
}

/// The log-probabilities that go with a token: those of the log-softmax after bias and
/// penalties, before the filters. Always finite.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Logprobs {
    /// The token's own.
    pub chosen: f32,
    /// The most likely ids and theirs, best first. Fewer than asked for where the vocabulary or
    /// the bias leaves fewer that are possible at all.
    pub top: Vec<(u32, f32)>,
}

impl Logprobs {
    /// Stands for what is not finite: an impossible token, or logits that are no numbers.
    pub const LEAST: f32 = -9999.0;

    /// Of what was computed, in any order.
    fn new(chosen: f32, mut top: Vec<(u32, f32)>) -> Self {
        top.retain(|(_, value)| value.is_finite());
        // Ties in the order of ids, so that the same logits always read the same.
        top.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        Self {
            chosen: if chosen.is_finite() {
                chosen
            } else {
                Self::LEAST
            },
            top,
        }
    }
}

/// A token that is computed or being computed.
pub(super) struct Drawn {
    /// \[1\].
    pub(super) token: Array,
    /// The chosen one's log-probability \[1, 1\], and the most likely ids and theirs \[1, k\].
    logprobs: Option<(Array, Option<(Array, Array)>)>,
}

impl Drawn {
    /// All that is to be computed.
    pub(super) fn arrays(&self) -> impl Iterator<Item = &Array> {
        let logprobs = self.logprobs.iter().flat_map(|(chosen, top)| {
            let top = top.iter().flat_map(|(ids, values)| [ids, values]);
            std::iter::once(chosen).chain(top)
        });
        std::iter::once(&self.token).chain(logprobs)
    }

    /// Waits for the log-probabilities, where they were asked for.
    pub(super) fn read_logprobs(&self) -> Result<Option<Logprobs>> {
        let Some((chosen, top)) = &self.logprobs else {
            return Ok(None);
        };
        let failed = |error: &dyn std::fmt::Display| {
            Error::new(Kind::Backend, format!("reading log-probabilities: {error}"))
        };
        let floats = |array: &Array| array.to_vec_exact::<f32>().map_err(|error| failed(&error));
        let chosen = floats(chosen)?.first().copied().unwrap_or(f32::NAN);
        let top = match top {
            None => Vec::new(),
            Some((ids, values)) => {
                let ids = ids.to_vec_exact::<u32>().map_err(|error| failed(&error))?;
                ids.into_iter().zip(floats(values)?).collect()
            }
        };
        Ok(Some(Logprobs::new(chosen, top)))
    }
}

/// Draws one request's tokens.
pub(super) struct Sampler {
    sampling: Sampling,
    seed: u64,
    processors: Processors,
    /// Ids that XTC never drops.
    spared_ids: Vec<u32>,
    /// The same, \[vocabulary\], made with the first logits.
    spared: Option<Array>,
}

impl Sampler {
    pub(super) fn new(mut sampling: Sampling, spared_ids: Vec<u32>) -> Self {
        let seed = sampling.seed.unwrap_or_else(fresh_seed);
        let processors = Processors::new(std::mem::take(&mut sampling.penalties));
        Self {
            sampling,
            seed,
            processors,
            spared_ids,
            spared: None,
        }
    }

    /// Logits \[1, vocabulary\] to the token that follows `history`, the answer's `step`-th.
    pub(super) fn draw(
        &mut self,
        logits: Array,
        history: &History<'_>,
        step: u64,
    ) -> MlxResult<Drawn> {
        let logits = self.processors.apply(logits, history)?;
        let log_probabilities = logits.subtract(logits.logsumexp(true)?)?;
        let token = if self.sampling.temperature == 0.0 {
            ops::indexing::argmax_axis(&log_probabilities, -1, false)?
        } else {
            self.choose(&log_probabilities, &Keys::new(self.seed, step)?)?
        };
        let logprobs = match self.sampling.logprobs {
            None => None,
            Some(count) => Some(read_out(&log_probabilities, &token, count)?),
        };
        Ok(Drawn { token, logprobs })
    }

    /// Log-probabilities \[1, vocabulary\] to an id \[1\]: nothing but these and the keys decides.
    /// Another sampler would be another function like this one.
    pub(super) fn choose(&mut self, log_probabilities: &Array, keys: &Keys) -> MlxResult {
        let Sampling {
            temperature,
            top_p,
            min_p,
            xtc_probability,
            xtc_threshold,
            top_k,
            ..
        } = self.sampling;
        let vocabulary = log_probabilities.dim(-1);
        let mut kept = log_probabilities.clone();
        if top_p < 1.0 {
            // 0 means the most likely token alone, as every tiny number does.
            kept = filters::keep_top_p(&kept, top_p.max(f32::MIN_POSITIVE))?;
        }
        if min_p > 0.0 {
            let least = i32::try_from(self.sampling.min_tokens_to_keep).unwrap_or(i32::MAX);
            kept = filters::keep_min_p(&kept, min_p, least)?;
        }
        if xtc_probability > 0.0 && xtc_threshold > 0.0 {
            let spared = self.spared(vocabulary);
            kept = filters::exclude_top_choices(
                &kept,
                xtc_probability,
                xtc_threshold,
                spared,
                &keys.xtc,
            )?;
        }
        if top_k > 0 && i64::from(top_k) < i64::from(vocabulary) {
            kept = filters::keep_top_k(&kept, top_k as i32)?;
        }
        filters::draw(&kept, temperature, &keys.draw)
    }

    /// The ids that XTC never drops, as \[vocabulary\], true or false; None for none.
    pub(super) fn spared(&mut self, vocabulary: i32) -> Option<&Array> {
        if self.spared.is_none() && !self.spared_ids.is_empty() {
            let mut spared = vec![false; vocabulary as usize];
            for &id in &self.spared_ids {
                if let Some(spared) = spared.get_mut(id as usize) {
                    *spared = true;
                }
            }
            self.spared = Some(Array::from_slice(&spared, &[vocabulary]));
        }
        self.spared.as_ref()
    }
}

/// Random keys for one token, one for each number that is drawn.
pub(super) struct Keys {
    pub(super) xtc: Array,
    pub(super) draw: Array,
}

impl Keys {
    /// For the answer's `step`-th token. Steps draw independently of one another, and of what
    /// other requests draw.
    pub(super) fn new(seed: u64, step: u64) -> MlxResult<Self> {
        Ok(Self {
            xtc: random::key(mix(seed, 2 * step + 1))?,
            draw: random::key(mix(seed, 2 * step))?,
        })
    }
}

type ReadOut = (Array, Option<(Array, Array)>);

fn read_out(log_probabilities: &Array, token: &Array, count: u32) -> MlxResult<ReadOut> {
    let log_probabilities = log_probabilities.as_dtype(Dtype::Float32)?;
    let chosen = log_probabilities.take_axis(token, -1)?;
    let vocabulary = log_probabilities.dim(-1);
    let count = i32::try_from(count).unwrap_or(i32::MAX).min(vocabulary);
    if count == 0 {
        return Ok((chosen, None));
    }
    let order = ops::argpartition_axis(&log_probabilities, vocabulary - count, -1)?;
    let ids = order.take_axis(filters::range(vocabulary - count, vocabulary)?, -1)?;
    let values = log_probabilities.take_along_axis(&ids, -1)?;
    Ok((chosen, Some((ids, values))))
}

/// A seed that differs from call to call and from run to run.
fn fresh_seed() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(0_u8)
}

/// One well-mixed number of two (SplitMix64, Steele et al. 2014).
fn mix(seed: u64, draw: u64) -> u64 {
    let mut z = seed.wrapping_add(draw.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
