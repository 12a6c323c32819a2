//! Answering a request: the model between the two directions of a protocol.

use serde_json::Value;

use super::{
    Protocol, Request,
    failure::{self, Cause, Mistake},
    ids::Ids,
    output::{Encoder, Ending, Envelope, Part, TokenLogprob, Usage, WireEvent, unix_time},
    tools::ToolChoice,
    turn::ChatTurn,
};
use crate::{
    cancel::{Cancel, Flow},
    chat::output::{OutputFormat, OutputParser, Piece},
    error::{Error, Kind, Result},
    escape::Escaped,
    generate::{CacheUse, Event, Finish, GenerateOptions, Generated, Logprobs},
    model::Model,
    tokenizer::Tokenizer,
};

/// Tokens at the end of a prompt among which a template opens the reasoning.
const PROMPT_END_TOKENS: usize = 256;

/// What an answer may use, besides the model.
#[derive(Clone, Debug, Default)]
pub struct RespondOptions {
    /// Where states are looked for and kept, and conversations for `previous_response_id`.
    pub cache: Option<CacheUse>,
    /// Ends the answer in the protocol's own way.
    pub cancel: Option<Cancel>,
}

/// Told of each event: its name, and its JSON.
pub type OnWireEvent<'a> = dyn FnMut(&str, &str) -> Flow + 'a;

impl Model {
    /// Answers a request in the JSON of a protocol with its final object, telling `on_event` what
    /// a client that streams is told. Both say the same, and whether the request asks for a
    /// stream changes nothing.
    ///
    /// None of the events comes after a callback returned [`Flow::Stop`]. Cancelling ends the
    /// answer as if it had been cut, with the events that belong to an end.
    ///
    /// # Errors
    /// Before any event: [`Kind::Protocol`] naming what is malformed or not supported,
    /// [`Kind::Unsupported`] for an adapter, and for a tool that must be called where the model's
    /// family has no mark for calls; [`Kind::Template`], and the errors of
    /// [`generate`](Self::generate). After the first one, which the protocol's event of a failure
    /// tells too: [`Kind::OverBudget`], [`Kind::Backend`], and [`Kind::Protocol`] when the model
    /// does not call the tool that it must. The detail of all of them is what a hosted model would
    /// answer instead, as JSON.
    pub fn respond(
        &self,
        protocol: Protocol,
        request: &str,
        options: &RespondOptions,
        on_event: Option<&mut OnWireEvent<'_>>,
    ) -> Result<String> {
        self.answer(protocol, request, options, on_event)
            .map_err(|error| {
                let body = failure::body(protocol, &error);
                error.with_detail(body.to_string())
            })
    }

    fn answer(
        &self,
        protocol: Protocol,
        request: &str,
        options: &RespondOptions,
        on_event: Option<&mut OnWireEvent<'_>>,
    ) -> Result<String> {
        let request = Request::read(protocol, request, options.cache.as_ref())?;
        let turn = request.turn();
        if let Some(adapter) = &turn.adapter {
            return Err(Error::new(
                Kind::Unsupported,
                format!("adapters are not supported: {}", Escaped(adapter)),
            )
            .with_source(Cause::Field {
                place: "adapter".into(),
                mistake: Mistake::UnsupportedField,
            }));
        }
        let prompt = Prompt::new(self, turn)?;
        let generate_options = GenerateOptions {
            max_tokens: turn.max_tokens,
            // Clients name a limit far above what they expect, where they must name one.
            reserves_max_tokens: false,
            sampling: turn.sampling.over(self.default_sampling(), turn.logprobs),
            stop: turn.stop.clone(),
            cancel: options.cancel.clone(),
            cache: options.cache.clone(),
            ..GenerateOptions::default()
        };
        let envelope = Envelope {
            ids: Ids::new(),
            created: unix_time(),
            model: turn
                .model
                .clone()
                .unwrap_or_else(|| self.info().model_type.clone()),
            temperature: generate_options.sampling.temperature,
            top_p: generate_options.sampling.top_p,
        };
        let mut answer = Answer {
            parser: prompt.parser,
            encoder: request.encoder(envelope),
            sink: Sink {
                on_event,
                is_stopped: false,
            },
            tokenizer: self.tokenizer(),
            prompt_tokens: prompt.ids.len(),
            calls_once: !turn.parallel_tool_calls,
            has_begun: false,
            call_count: 0,
            reasoning_tokens: 0,
            untold: Vec::new(),
        };
        let generated = self.generate(None, &prompt.ids, &generate_options, &mut |event| {
            answer.hear(event)
        });
        let generated = match generated {
            Ok(generated) => generated,
            Err(error) => return Err(answer.fail(error)),
        };
        let response = answer.end(&generated, turn)?;
        if let (Request::Responses(request), Some(used)) = (&request, &options.cache)
            && request.is_stored
            && let Some((id, output)) = answer.encoder.kept()
        {
            let items = [&request.items, output].concat();
            used.cache.responses().put(&used.namespace, id, items);
        }
        Ok(response.to_string())
    }
}

/// A prompt, and what reads the answer to it.
struct Prompt {
    ids: Vec<u32>,
    parser: OutputParser,
}

impl Prompt {
    fn new(model: &Model, turn: &ChatTurn) -> Result<Self> {
        let (template, tokenizer) = (model.chat_template()?, model.tokenizer());
        let format = OutputFormat::of(template, tokenizer);
        let mut ids = template.tokenize_fitted(tokenizer, &turn.to_chat())?.ids;
        // What a call that must be made begins with.
        let name = match &turn.tool_choice {
            ToolChoice::Auto | ToolChoice::None => None,
            ToolChoice::Required => Some(None),
            ToolChoice::Named(name) => Some(Some(name.as_str())),
        };
        let mut end = end_of(&ids, tokenizer);
        if let Some(name) = name {
            let opening = format.tool_call_opening(name).ok_or_else(|| {
                Error::new(
                    Kind::Unsupported,
                    "a model of this family cannot be made to call a tool: tool_choice",
                )
                .with_source(Cause::Field {
                    place: "tool_choice".into(),
                    mistake: Mistake::UnsupportedValue,
                })
            })?;
            let closing = format.reasoning_closing(&end).unwrap_or_default();
            let opening = closing.to_owned() + &opening;
            ids.extend(tokenizer.encode(&opening, false)?);
            end += &opening;
        }
        Ok(Self {
            parser: OutputParser::new(&format, &turn.tools, &end),
            ids,
        })
    }
}

/// The text at the end of a prompt.
fn end_of(ids: &[u32], tokenizer: &Tokenizer) -> String {
    let end = &ids[ids.len().saturating_sub(PROMPT_END_TOKENS)..];
    tokenizer.decode(end, false)
}

/// Where events go.
struct Sink<'a, 'b> {
    on_event: Option<&'a mut OnWireEvent<'b>>,
    /// The callback wants no more.
    is_stopped: bool,
}

impl Sink<'_, '_> {
    fn tell(&mut self, events: &[WireEvent]) {
        let Some(on_event) = &mut self.on_event else {
            return;
        };
        for event in events {
            if self.is_stopped {
                return;
            }
            self.is_stopped = on_event(event.name, &event.data.to_string()) == Flow::Stop;
        }
    }
}

/// An answer while it is made.
struct Answer<'a, 'b> {
    parser: OutputParser,
    encoder: Box<dyn Encoder>,
    sink: Sink<'a, 'b>,
    tokenizer: &'a Tokenizer,
    prompt_tokens: usize,
    /// Whether the answer ends with its first tool call.
    calls_once: bool,
    has_begun: bool,
    call_count: usize,
    reasoning_tokens: usize,
    /// Tokens whose text has not settled yet.
    untold: Vec<TokenLogprob>,
}

impl Answer<'_, '_> {
    fn hear(&mut self, event: Event<'_>) -> Flow {
        self.begin();
        match event {
            Event::Prefill { .. } => {}
            Event::Token { id, logprobs } => {
                self.reasoning_tokens += usize::from(self.parser.reasoning_is_open());
                if let Some(logprobs) = logprobs {
                    self.untold
                        .push(token_logprob(self.tokenizer, id, logprobs));
                }
            }
            Event::Text(text) => {
                let pieces = self.parser.push(text);
                self.tell(pieces);
            }
        }
        if self.sink.is_stopped || self.has_called() {
            Flow::Stop
        } else {
            Flow::Continue
        }
    }

    fn begin(&mut self) {
        if !std::mem::replace(&mut self.has_begun, true) {
            let mut events = Vec::new();
            self.encoder.begin(self.prompt_tokens, &mut events);
            self.sink.tell(&events);
        }
    }

    /// Whether the one call that is allowed has been made.
    fn has_called(&self) -> bool {
        self.calls_once && self.call_count > 0
    }

    fn tell(&mut self, pieces: Vec<Piece>) {
        if pieces.is_empty() {
            return;
        }
        // The tokens since the last piece are those of the text, where there is any.
        let mut tokens = std::mem::take(&mut self.untold);
        let mut events = Vec::new();
        for piece in pieces {
            if self.has_called() {
                break;
            }
            let part = match piece {
                Piece::Reasoning(text) => Part::Reasoning(text),
                Piece::Text(text) => Part::Text(text, std::mem::take(&mut tokens)),
                Piece::ToolCall(call) => {
                    self.call_count += 1;
                    Part::ToolCall {
                        name: call.name,
                        arguments: call.arguments,
                    }
                }
            };
            self.encoder.part(part, &mut events);
        }
        self.sink.tell(&events);
    }

    fn end(&mut self, generated: &Generated, turn: &ChatTurn) -> Result<Value> {
        self.begin();
        let ending = self.ending(generated, turn);
        let is_cut = !matches!(ending, Ending::Complete | Ending::StopString(_));
        let (pieces, _) = self.parser.clone().finish(is_cut);
        self.tell(pieces);
        let must_call = matches!(
            turn.tool_choice,
            ToolChoice::Required | ToolChoice::Named(_)
        );
        if must_call && self.call_count == 0 && ending != Ending::Cancelled {
            let error = Error::new(
                Kind::Protocol,
                "the model made no valid call of the tool that it had to: tool_choice",
            );
            return Err(self.fail(error.with_source(Cause::Model)));
        }
        let usage = Usage {
            input: generated.prompt_tokens,
            cached: generated.reused_tokens,
            output: generated.generated_tokens,
            reasoning: self.reasoning_tokens,
        };
        let mut events = Vec::new();
        let response = self.encoder.end(&ending, usage, &mut events);
        self.sink.tell(&events);
        Ok(response)
    }

    fn ending(&self, generated: &Generated, turn: &ChatTurn) -> Ending {
        match generated.finish {
            Finish::Eos => Ending::Complete,
            Finish::StopString(index) => match turn.stop.get(index) {
                Some(text) => Ending::StopString(text.clone()),
                None => Ending::Complete,
            },
            Finish::Length => match turn.max_tokens {
                Some(most) if generated.generated_tokens as u64 >= most => Ending::MaxTokens,
                _ => Ending::ContextFull,
            },
            Finish::Caller if self.has_called() => Ending::Complete,
            Finish::Caller | Finish::Cancelled => Ending::Cancelled,
        }
    }

    /// Tells of a failure, if anything was told before.
    fn fail(&mut self, error: Error) -> Error {
        if self.has_begun {
            let mut events = Vec::new();
            self.encoder.fail(&error, &mut events);
            self.sink.tell(&events);
        }
        error
    }
}

fn token_logprob(tokenizer: &Tokenizer, id: u32, logprobs: &Logprobs) -> TokenLogprob {
    let top = logprobs.top.iter();
    TokenLogprob {
        bytes: tokenizer.token_bytes(id),
        logprob: logprobs.chosen,
        top: top
            .map(|&(id, logprob)| (tokenizer.token_bytes(id), logprob))
            .collect(),
    }
}
