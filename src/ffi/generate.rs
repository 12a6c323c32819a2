//! Generation.

use std::{
    ffi::{c_char, c_void},
    sync::Arc,
};

use super::{
    CBool, Callback, SizedStruct, array, guard, init_struct, mlxb_cache, mlxb_cancel, mlxb_error,
    mlxb_event, mlxb_event_fn, mlxb_event_kind, mlxb_kv, mlxb_model, mlxb_status, read_struct,
    required, string, text, write_struct,
};
use crate::{
    cancel::Flow,
    error::{Error, Kind, Result},
    generate::{
        CacheUse, DEFAULT_PENALTY_CONTEXT, DEFAULT_PREFILL_CHUNK, Event, Finish, GenerateOptions,
        Generated, Penalties, Penalty, Sampling,
    },
    model::Model,
};

/// Why a generation ended. New values may appear in later versions.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum mlxb_finish {
    /// The model ended its answer.
    MLXB_FINISH_EOS = 1,
    /// max_tokens or the context is used up.
    MLXB_FINISH_LENGTH = 2,
    /// A stop string appeared.
    MLXB_FINISH_STOP_STRING = 3,
    /// The callback returned MLXB_STOP.
    MLXB_FINISH_CALLER = 4,
    /// The cancel object was used.
    MLXB_FINISH_CANCELLED = 5,
}

/// What to generate from, and how. Prepare it with mlxb_generate_options_init, then set what you
/// need. Everything in it is read during the call only.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct mlxb_generate_options {
    /// sizeof(mlxb_generate_options).
    pub struct_size: usize,
    /// The prompt as token ids, each below the model's vocab_size; or NULL with `prompt`.
    pub tokens: *const u32,
    /// Ids at `tokens`.
    pub token_count: usize,
    /// The prompt as UTF-8; or NULL with `tokens`. A begin token that the tokenizer adds by
    /// itself is not added twice, nor in the middle of a kv's sequence.
    pub prompt: *const c_char,
    /// Bytes at `prompt`.
    pub prompt_len: usize,
    /// The most tokens to generate; -1: as many as fit into the context; 0: none, and of the
    /// prompt all is run but the last token. A number set here must fit into the memory budget
    /// beforehand.
    pub max_tokens: i64,
    /// Divides the log-probabilities before a token is drawn; 0 takes the most likely one. NaN,
    /// as for every number below that is not set: what mlxb_model_generation_defaults tells.
    pub temperature: f32,
    /// Keeps the smallest set of most likely tokens whose probabilities sum to this, from 0 to
    /// 1; 1 keeps all.
    pub top_p: f32,
    /// Drops tokens less likely than this times the most likely one, from 0 to 1; 0 keeps all.
    pub min_p: f32,
    /// Tokens that min_p never drops, at least 1; -1 for unset.
    pub min_tokens_to_keep: i32,
    /// How often XTC drops the most likely tokens, from 0 to 1; 0 is never.
    pub xtc_probability: f32,
    /// XTC drops all tokens more likely than this but for the least likely of them, and never an
    /// end token or the newline. From 0 to 0.5; 0 drops nothing.
    pub xtc_threshold: f32,
    /// Keeps this many of the most likely tokens; 0 keeps all; -1 for unset.
    pub top_k: i32,
    /// Divides the positive logits and multiplies the negative ones of tokens in the prompt, the
    /// kv and the answer. Above 0; 1 does nothing.
    pub repetition_penalty: f32,
    /// Tokens that it looks back on; 0 is all of them; -1: 20.
    pub repetition_context_size: i32,
    /// Subtracted from the logits of tokens in the answer, once.
    pub presence_penalty: f32,
    /// Tokens that it looks back on; 0 is all of the answer; -1: 20.
    pub presence_context_size: i32,
    /// Subtracted from the logits of tokens in the answer, for each time they are there.
    pub frequency_penalty: f32,
    /// Tokens that it looks back on; 0 is all of the answer; -1: 20.
    pub frequency_context_size: i32,
    /// Ids whose logits are changed; may be NULL with logit_bias_count 0.
    pub logit_bias_tokens: *const u32,
    /// What is added to them; -INFINITY forbids a token.
    pub logit_bias_values: *const f32,
    /// Ids at logit_bias_tokens, and numbers at logit_bias_values.
    pub logit_bias_count: usize,
    /// Whether `seed` is set; otherwise each call draws differently.
    pub has_seed: CBool,
    /// Makes the draws repeatable; every number is a seed, 0 too.
    pub seed: u64,
    /// Ends the answer where one of these NUL-terminated strings appears in its text; no part of
    /// it is emitted. May be NULL with stop_count 0.
    pub stop: *const *const c_char,
    /// Strings at `stop`.
    pub stop_count: usize,
    /// Ids that end the answer like an end token of the model; may be NULL with count 0.
    pub stop_tokens: *const u32,
    /// Ids at `stop_tokens`.
    pub stop_token_count: usize,
    /// 0, and -1 for unset: MLXB_EVENT_TOKEN tells no log-probabilities; 1: that of the token;
    /// k + 1: those of the k most likely tokens too. They are what the log-softmax gives after
    /// bias and penalties and before the filters.
    pub logprobs: i32,
    /// Prompt tokens that are run at once, the grain of progress, fairness and cancelling; -1:
    /// 2048.
    pub prefill_chunk: i32,
    /// Looked at before each step and each event. May be NULL.
    pub cancel: *const mlxb_cancel,
    /// Where the state of the prompt's first tokens is looked for, and the state at the end is
    /// put, however the generation ends. May be NULL; not together with a kv.
    pub cache: *const mlxb_cache,
    /// The cache's namespace to use; NULL is "".
    pub cache_namespace: *const c_char,
}

// SAFETY: repr(C), struct_size first, numbers, pointers, and a flag that takes any byte.
unsafe impl SizedStruct for mlxb_generate_options {
    fn unset() -> Self {
        Self {
            struct_size: size_of::<Self>(),
            tokens: std::ptr::null(),
            token_count: 0,
            prompt: std::ptr::null(),
            prompt_len: 0,
            max_tokens: -1,
            temperature: f32::NAN,
            top_p: f32::NAN,
            min_p: f32::NAN,
            min_tokens_to_keep: -1,
            xtc_probability: f32::NAN,
            xtc_threshold: f32::NAN,
            top_k: -1,
            repetition_penalty: f32::NAN,
            repetition_context_size: -1,
            presence_penalty: f32::NAN,
            presence_context_size: -1,
            frequency_penalty: f32::NAN,
            frequency_context_size: -1,
            logit_bias_tokens: std::ptr::null(),
            logit_bias_values: std::ptr::null(),
            logit_bias_count: 0,
            has_seed: CBool::FALSE,
            seed: 0,
            stop: std::ptr::null(),
            stop_count: 0,
            stop_tokens: std::ptr::null(),
            stop_token_count: 0,
            logprobs: -1,
            prefill_chunk: -1,
            cancel: std::ptr::null(),
            cache: std::ptr::null(),
            cache_namespace: std::ptr::null(),
        }
    }
}

/// How a generation went. Set struct_size, the library fills in the rest.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct mlxb_generate_result {
    /// sizeof(mlxb_generate_result).
    pub struct_size: usize,
    /// One of mlxb_finish; 0 when the generation failed.
    pub finish: i32,
    /// With MLXB_FINISH_STOP_STRING, which of the stop strings it was; -1 otherwise.
    pub stop_index: i32,
    /// Tokens before the answer: those of the kv and of the prompt.
    pub prompt_tokens: u64,
    /// How many of these needed not be run: the kv or the cache held their state.
    pub reused_tokens: u64,
    /// Tokens told by MLXB_EVENT_TOKEN, or that would have been told.
    pub generated_tokens: u64,
    /// From the start to the first token.
    pub prefill_seconds: f64,
    /// From the first token to the end.
    pub decode_seconds: f64,
    /// How many of the reused tokens were read from the cache's disk.
    pub restored_tokens: u64,
}

// SAFETY: repr(C), struct_size first, numbers only.
unsafe impl SizedStruct for mlxb_generate_result {
    fn unset() -> Self {
        Self {
            struct_size: size_of::<Self>(),
            finish: 0,
            stop_index: -1,
            prompt_tokens: 0,
            reused_tokens: 0,
            generated_tokens: 0,
            prefill_seconds: 0.0,
            decode_seconds: 0.0,
            restored_tokens: 0,
        }
    }
}

impl From<Generated> for mlxb_generate_result {
    fn from(generated: Generated) -> Self {
        let (finish, stop_index) = match generated.finish {
            Finish::Eos => (mlxb_finish::MLXB_FINISH_EOS, -1),
            Finish::Length => (mlxb_finish::MLXB_FINISH_LENGTH, -1),
            Finish::StopString(index) => (
                mlxb_finish::MLXB_FINISH_STOP_STRING,
                i32::try_from(index).unwrap_or(i32::MAX),
            ),
            Finish::Caller => (mlxb_finish::MLXB_FINISH_CALLER, -1),
            Finish::Cancelled => (mlxb_finish::MLXB_FINISH_CANCELLED, -1),
        };
        Self {
            finish: finish as i32,
            stop_index,
            prompt_tokens: generated.prompt_tokens as u64,
            reused_tokens: generated.reused_tokens as u64,
            generated_tokens: generated.generated_tokens as u64,
            prefill_seconds: generated.prefill.as_secs_f64(),
            decode_seconds: generated.decode.as_secs_f64(),
            restored_tokens: generated.restored_tokens as u64,
            ..SizedStruct::unset()
        }
    }
}

/// Sets all fields to "unset".
///
/// @param struct_size    sizeof(mlxb_generate_options).
///
/// Thread: any. Since 0.1.0.
///
/// # Safety
/// `options` is NULL or writable for `struct_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_generate_options_init(
    options: *mut mlxb_generate_options,
    struct_size: usize,
) {
    // SAFETY: the caller's promise.
    unsafe { init_struct(options, struct_size) };
}

/// Generates an answer and returns when it has ended.
///
/// Events come in this order: MLXB_EVENT_PREFILL with 0 done, one after each chunk and one with
/// all done; then for each token MLXB_EVENT_TOKEN, and MLXB_EVENT_TEXT when it completes text.
/// None comes after a callback returned MLXB_STOP or the cancel object was used.
///
/// With a kv the prompt continues its tokens. Afterwards the kv holds those, the prompt and all
/// generated tokens but the last, which was sampled but not run: start the next prompt with it
/// to go on as if there had been no end. When the end comes during the prefill, the kv holds
/// the prompt tokens that were run. mlxb_kv_tokens tells which they are.
///
/// @param model        The model.
/// @param kv           The state to continue; NULL to start from nothing, or from what the
///                     options' cache holds, and keep nothing else.
/// @param options      The prompt, and how to generate.
/// @param on_event     Told what happens; may be NULL.
/// @param user_data    Passed to on_event.
/// @param out          Filled in; may be NULL.
/// @return MLXB_OK, also when cancelled or stopped: out->finish says which. Before anything is
///         run, with the kv unchanged: MLXB_INVALID_ARGUMENT, MLXB_INVALID_UTF8 or
///         MLXB_VERSION_MISMATCH for the arguments (no prompt or two, a token id that the model
///         does not have, a kv of another model or together with a cache, a number out of range);
///         MLXB_CONTEXT_FULL when the prompt does not fit; MLXB_OVER_BUDGET; MLXB_BUSY when the
///         kv is in use; MLXB_MODEL_FORMAT when the tokenizer fails; MLXB_POISONED;
///         MLXB_UNSUPPORTED in a forked process. While running: MLXB_BACKEND, which leaves the kv
///         without tokens; MLXB_PANIC, which leaves it unusable; MLXB_CANCELLED when the process
///         exits meanwhile.
///
/// Thread: any; several generations take turns, a token or a chunk each. Callbacks run on the
/// calling thread. Since 0.1.0.
///
/// # Safety
/// `model` and `kv` are NULL or alive; `options` is NULL or a struct of struct_size bytes with
/// valid pointers; `on_event` may be called with `user_data`; `out` is NULL or a struct of
/// struct_size bytes; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_generate(
    model: *const mlxb_model,
    kv: *mut mlxb_kv,
    options: *const mlxb_generate_options,
    on_event: mlxb_event_fn,
    user_data: *mut c_void,
    out: *mut mlxb_generate_result,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise, for all pointers.
    unsafe {
        guard(error, || {
            if !out.is_null() {
                write_struct(out, SizedStruct::unset(), "out")?;
            }
            let model = required(model, "model")?.model.clone();
            // A copy, so that a callback that frees the kv does no harm.
            let kv = kv.as_ref().map(|kv| Arc::clone(&kv.0));
            required(options, "options")?;
            let options = read_struct(options, "options")?;
            let callback = Callback::new(on_event, user_data);
            let prompt = if options.prompt.is_null() {
                array(options.tokens, options.token_count, "options.tokens")?.to_vec()
            } else if options.tokens.is_null() {
                let text = text(options.prompt, options.prompt_len, "options.prompt")?;
                model.encode_prompt(kv.as_deref(), text)?
            } else {
                return Err(Error::new(
                    Kind::InvalidArgument,
                    "options has both tokens and prompt",
                ));
            };
            let generated = model.generate(
                kv.as_deref(),
                &prompt,
                &convert(&options, &model)?,
                &mut |event| tell(callback, event),
            )?;
            if !out.is_null() {
                write_struct(out, generated.into(), "out")?;
            }
            Ok(())
        })
    }
}

fn tell(callback: Callback, event: Event<'_>) -> Flow {
    match event {
        Event::Prefill { done, total } => callback.tell(&mlxb_event {
            done: done as u64,
            total: total as u64,
            ..mlxb_event::new(mlxb_event_kind::MLXB_EVENT_PREFILL)
        }),
        Event::Token { id, logprobs } => {
            let top = logprobs.map_or(&[][..], |logprobs| &logprobs.top);
            let (top_tokens, top_logprobs): (Vec<u32>, Vec<f32>) = top.iter().copied().unzip();
            callback.tell(&mlxb_event {
                token: id,
                logprob: logprobs.map_or(f32::NAN, |logprobs| logprobs.chosen),
                top_tokens: pointer_to(&top_tokens),
                top_logprobs: pointer_to(&top_logprobs),
                top_count: top.len(),
                ..mlxb_event::new(mlxb_event_kind::MLXB_EVENT_TOKEN)
            })
        }
        Event::Text(text) => callback.tell(&mlxb_event {
            text: text.into(),
            ..mlxb_event::new(mlxb_event_kind::MLXB_EVENT_TEXT)
        }),
    }
}

/// Where the values are; NULL for none.
fn pointer_to<T>(values: &[T]) -> *const T {
    if values.is_empty() {
        std::ptr::null()
    } else {
        values.as_ptr()
    }
}

/// # Safety
/// The pointers in `options` are valid.
unsafe fn convert(options: &mlxb_generate_options, model: &Model) -> Result<GenerateOptions> {
    // SAFETY: the caller's promise, for all pointers.
    let (stop, stop_tokens, bias_tokens, bias_values, cancel, cache, namespace) = unsafe {
        (
            array(options.stop, options.stop_count, "options.stop")?,
            array(
                options.stop_tokens,
                options.stop_token_count,
                "options.stop_tokens",
            )?,
            array(
                options.logit_bias_tokens,
                options.logit_bias_count,
                "options.logit_bias_tokens",
            )?,
            array(
                options.logit_bias_values,
                options.logit_bias_count,
                "options.logit_bias_values",
            )?,
            options.cancel.as_ref(),
            options.cache.as_ref(),
            super::cache::namespace(options.cache_namespace)?,
        )
    };
    let defaults = model.default_sampling();
    let default_penalties = defaults.penalties;
    let number = |value: f32, default: f32| if value.is_nan() { default } else { value };
    let count = |value: i32, default: u32, name: &str| -> Result<u32> {
        Ok(unset_or(value.into(), name)?.map_or(default, |value| value as u32))
    };
    let penalty = |value: f32,
                   context_size: i32,
                   name: &str,
                   default: Option<Penalty>|
     -> Result<Option<Penalty>> {
        let context_size = unset_or(context_size.into(), name)?.map(|size| size as usize);
        let value = if value.is_nan() {
            default.map(|penalty| penalty.value)
        } else {
            Some(value)
        };
        Ok(value.map(|value| Penalty {
            value,
            context_size: context_size.unwrap_or(DEFAULT_PENALTY_CONTEXT),
        }))
    };
    Ok(GenerateOptions {
        max_tokens: unset_or(options.max_tokens, "options.max_tokens")?,
        reserves_max_tokens: true,
        sampling: Sampling {
            temperature: number(options.temperature, defaults.temperature),
            top_p: number(options.top_p, defaults.top_p),
            min_p: number(options.min_p, defaults.min_p),
            min_tokens_to_keep: count(
                options.min_tokens_to_keep,
                defaults.min_tokens_to_keep,
                "options.min_tokens_to_keep",
            )?,
            xtc_probability: number(options.xtc_probability, defaults.xtc_probability),
            xtc_threshold: number(options.xtc_threshold, defaults.xtc_threshold),
            top_k: count(options.top_k, defaults.top_k, "options.top_k")?,
            seed: options.has_seed.get().then_some(options.seed),
            penalties: Penalties {
                logit_bias: bias_tokens
                    .iter()
                    .copied()
                    .zip(bias_values.iter().copied())
                    .collect(),
                repetition: penalty(
                    options.repetition_penalty,
                    options.repetition_context_size,
                    "options.repetition_context_size",
                    default_penalties.repetition,
                )?,
                presence: penalty(
                    options.presence_penalty,
                    options.presence_context_size,
                    "options.presence_context_size",
                    default_penalties.presence,
                )?,
                frequency: penalty(
                    options.frequency_penalty,
                    options.frequency_context_size,
                    "options.frequency_context_size",
                    default_penalties.frequency,
                )?,
            },
            logprobs: count(options.logprobs, 0, "options.logprobs")?.checked_sub(1),
        },
        stop: stop
            .iter()
            // SAFETY: the caller's promise.
            .map(|&stop| unsafe { string(stop, "options.stop") }.map(str::to_owned))
            .collect::<Result<_>>()?,
        stop_tokens: stop_tokens.to_vec(),
        prefill_chunk: match unset_or(options.prefill_chunk.into(), "options.prefill_chunk")? {
            Some(chunk) => chunk as usize,
            None => DEFAULT_PREFILL_CHUNK,
        },
        cancel: cancel.map(|cancel| cancel.0.clone()),
        cache: cache.map(|cache| CacheUse {
            cache: cache.0.clone(),
            namespace: namespace.to_owned(),
        }),
    })
}

/// Tells how a model is sampled from where the caller sets nothing: what its
/// generation_config.json says, and the library's own defaults for the rest.
///
/// @param out    Its numbers for sampling are set; the rest of it is "unset".
/// @return MLXB_OK; MLXB_INVALID_ARGUMENT for NULL or a wrong struct_size, which leave `out`
///         unchanged.
///
/// Thread: any. Since 0.1.0.
///
/// # Safety
/// `model` is NULL or alive; `out` is NULL or a struct of struct_size bytes; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_model_generation_defaults(
    model: *const mlxb_model,
    out: *mut mlxb_generate_options,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise, for all pointers.
    unsafe {
        guard(error, || {
            let defaults = required(model, "model")?.model.default_sampling();
            let count = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
            let (value, size) = (
                |penalty: Option<Penalty>, none: f32| penalty.map_or(none, |penalty| penalty.value),
                |penalty: Option<Penalty>| {
                    let size = penalty.map_or(DEFAULT_PENALTY_CONTEXT, |p| p.context_size);
                    i32::try_from(size).unwrap_or(i32::MAX)
                },
            );
            let penalties = defaults.penalties;
            let filled = mlxb_generate_options {
                temperature: defaults.temperature,
                top_p: defaults.top_p,
                min_p: defaults.min_p,
                min_tokens_to_keep: count(defaults.min_tokens_to_keep),
                xtc_probability: defaults.xtc_probability,
                xtc_threshold: defaults.xtc_threshold,
                top_k: count(defaults.top_k),
                repetition_penalty: value(penalties.repetition, 1.0),
                repetition_context_size: size(penalties.repetition),
                presence_penalty: value(penalties.presence, 0.0),
                presence_context_size: size(penalties.presence),
                frequency_penalty: value(penalties.frequency, 0.0),
                frequency_context_size: size(penalties.frequency),
                ..SizedStruct::unset()
            };
            write_struct(out, filled, "out")
        })
    }
}

/// A number, or None for -1.
fn unset_or(value: i64, name: &str) -> Result<Option<u64>> {
    if value == -1 {
        return Ok(None);
    }
    u64::try_from(value).map(Some).map_err(|_| {
        Error::new(
            Kind::InvalidArgument,
            format!("{name} must not be negative, but for -1: {value}"),
        )
    })
}
