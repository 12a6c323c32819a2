//! A model's chat templates, compiled.

use std::path::Path;

use minijinja::value::Serde;
use minijinja::{Environment, ErrorKind};
use serde_json::Value;

use super::clock::Clock;
use super::continuation::Continuation;
use super::environment::{Refusal, environment};
use super::request::Request;
use super::source::{self, DEFAULT, Sources};
use super::tokens::{ChatTokens, Control, Prompt};
use super::{alternation, call_ids, effort, single_calls, stable, syntax};
use crate::error::{Error, Kind, Result};
use crate::escape::EscapedPath;
use crate::tokenizer::Tokenizer;

/// The longest prompt that a template may write, in bytes: several million tokens. More would
/// keep the tokenizer busy for minutes.
const OUTPUT_LIMIT_BYTES: usize = 64 << 20;

/// The stack on which templates are compiled and run. Only what is used of it takes memory.
const STACK_BYTES: usize = 64 << 20;

/// The longest source of a template, in bytes; the longest known have a fifteenth of it.
const SOURCE_LIMIT_BYTES: usize = 256 << 10;

/// The chat templates of a model, ready to render. Immutable; all threads may use it at once.
pub struct ChatTemplate {
    environment: Environment<'static>,
    templates: Vec<Named>,
    special_tokens: Vec<(String, String)>,
    tool_syntax: Option<String>,
}

/// One of a model's templates.
struct Named {
    name: String,
    source: String,
    control: Control,
}

impl ChatTemplate {
    /// Reads and compiles the templates of a model folder.
    ///
    /// # Errors
    /// `Template` if the model has no template or one does not compile, `ModelFormat` if a
    /// file is malformed.
    pub fn load(directory: &Path, tokenizer: &Tokenizer) -> Result<Self> {
        Self::load_with_clock(directory, tokenizer, Clock::System)
    }

    /// As [`load`](Self::load), with the time that templates are told.
    ///
    /// # Errors
    /// The same.
    pub fn load_with_clock(directory: &Path, tokenizer: &Tokenizer, clock: Clock) -> Result<Self> {
        let sources = source::load(directory)?;
        if sources.is_empty() {
            return Err(Error::new(
                Kind::Template,
                format!("model has no chat template: {}", EscapedPath(directory)),
            ));
        }
        let mut templates = Self::compile(sources, tokenizer, clock)?;
        templates.tool_syntax = source::tool_syntax(directory)?;
        Ok(templates)
    }

    pub(super) fn compile(sources: Sources, tokenizer: &Tokenizer, clock: Clock) -> Result<Self> {
        let mut environment = environment(clock);
        let mut templates = Vec::with_capacity(sources.len());
        for (name, source) in sources {
            if source.len() > SOURCE_LIMIT_BYTES {
                return Err(Error::new(
                    Kind::Template,
                    format!("chat template is too long: {} bytes", source.len()),
                ));
            }
            on_deep_stack(|| {
                environment.add_template_owned(name.clone(), syntax::prepare(&source))
            })?
            .map_err(|error| template_error("chat template does not compile", &error))?;
            templates.push(Named {
                control: Control::new(tokenizer, &source),
                name,
                source,
            });
        }
        Ok(Self {
            environment,
            templates,
            special_tokens: tokenizer.named_tokens().to_vec(),
            tool_syntax: None,
        })
    }

    /// The prompt for a request: an object with `messages`, and optionally `tools`,
    /// `documents`, `add_generation_prompt` (true unless given), `continue_final_message`,
    /// `chat_template` (the name of one of several) and variables of the template, either
    /// beside these or in `chat_template_kwargs`.
    ///
    /// # Errors
    /// `InvalidArgument` if the request is malformed, `Template` with the template's own
    /// words if it refuses the conversation or fails.
    pub fn render(&self, request: &Value) -> Result<String> {
        self.render_request(&Request::parse(request)?)
    }

    /// The ids of the prompt for a request, as [`render`](Self::render) describes it. Where
    /// a message or a tool quotes a control token, the quote is encoded as plain text.
    ///
    /// # Errors
    /// Those of `render`.
    pub fn tokenize(&self, tokenizer: &Tokenizer, request: &Value) -> Result<ChatTokens> {
        self.tokenize_request(tokenizer, &Request::parse(request)?)
    }

    /// As [`tokenize`](Self::tokenize), of a conversation as clients of hosted models send it:
    /// where the template refuses or drops something for its form, it is given another.
    ///
    /// # Errors
    /// Those of `render`.
    pub(crate) fn tokenize_fitted(
        &self,
        tokenizer: &Tokenizer,
        request: &Value,
    ) -> Result<ChatTokens> {
        self.tokenize_request(tokenizer, &self.fitted(request)?)
    }

    /// A request with its messages and tool calls in the form that the template takes.
    pub(super) fn fitted(&self, request: &Value) -> Result<Request> {
        let mut request = Request::parse(request)?;
        let source = &self.choose(&request)?.source;
        alternation::apply(&mut request.messages, source);
        single_calls::apply(&mut request.messages, source);
        call_ids::apply(&mut request.messages, source);
        Ok(request)
    }

    fn tokenize_request(&self, tokenizer: &Tokenizer, request: &Request) -> Result<ChatTokens> {
        let prompt = Prompt::render(self, request)?;
        let ids = prompt.encode(self.control(request)?, tokenizer)?;
        let stable_count = stable::count(self, tokenizer, request, &prompt, &ids)?;
        Ok(ChatTokens { ids, stable_count })
    }

    pub(super) fn render_request(&self, request: &Request) -> Result<String> {
        let template = self.choose(request)?;
        match &request.continues {
            None => self.run(template, request),
            Some(field) => {
                let mut marked = request.clone();
                let continuation = Continuation::mark(&mut marked, field, &template.source)?;
                continuation.cut(self.run(template, &marked)?)
            }
        }
    }

    /// The syntax of tool calls, where the model's files name it.
    pub(super) fn tool_syntax(&self) -> Option<&str> {
        self.tool_syntax.as_deref()
    }

    /// The sources of all templates, the one for tools first.
    pub(super) fn sources(&self) -> impl Iterator<Item = &str> {
        let for_tools = |template: &&Named| template.name == "tool_use";
        let tools = self.templates.iter().filter(for_tools);
        let others = self
            .templates
            .iter()
            .filter(move |template| !for_tools(template));
        tools.chain(others).map(|template| template.source.as_str())
    }

    /// The control tokens of the template that a request uses.
    pub(super) fn control(&self, request: &Request) -> Result<&Control> {
        self.choose(request).map(|template| &template.control)
    }

    fn run(&self, template: &Named, request: &Request) -> Result<String> {
        on_deep_stack(|| self.run_here(template, request))?
    }

    fn run_here(&self, Named { name, source, .. }: &Named, request: &Request) -> Result<String> {
        let template = self
            .environment
            .get_template(name)
            .expect("compiled when the model was loaded");
        let mut context = request.context(&self.special_tokens);
        effort::apply(&mut context, source);
        let context = minijinja::Value::from(Serde(context));
        let mut output = BoundedOutput::default();
        template
            .render_captured_to(context, &mut output)
            .map_err(|error| template_error("chat template failed", &error))?;
        String::from_utf8(output.bytes)
            .map_err(|_| Error::new(Kind::Template, "chat template wrote invalid utf-8"))
    }

    /// The template that the request names, or the one for tools if there are tools.
    fn choose(&self, request: &Request) -> Result<&Named> {
        let named = |name: &str| self.templates.iter().find(|template| template.name == name);
        if let Some(name) = &request.template {
            return named(name).ok_or_else(|| {
                Error::new(
                    Kind::NotFound,
                    format!("model has no chat template of this name: {name}"),
                )
            });
        }
        let for_tools = request.tools.as_ref().and_then(|_| named("tool_use"));
        for_tools.or_else(|| named(DEFAULT)).ok_or_else(|| {
            let names = self.templates.iter().map(|template| template.name.as_str());
            Error::new(
                Kind::InvalidArgument,
                format!(
                    "chat_template must name one of: {}",
                    names.collect::<Vec<_>>().join(", ")
                ),
            )
        })
    }
}

/// Does work that a template can make recurse: more of the stack may be needed than the
/// caller's thread has.
fn on_deep_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
        let running = thread
            .spawn_scoped(scope, work)
            .map_err(|error| Error::io("thread for a chat template", error))?;
        // The engine's own faults stay on its thread: some mangled templates make it panic.
        running.join().map_err(|_| {
            Error::new(
                Kind::Template,
                "the chat template makes the template engine fail",
            )
        })
    })
}

/// Collects what a template writes up to a limit.
#[derive(Default)]
struct BoundedOutput {
    bytes: Vec<u8>,
}

impl std::io::Write for BoundedOutput {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.bytes.len() + bytes.len() > OUTPUT_LIMIT_BYTES {
            return Err(std::io::Error::other("output exceeds its limit"));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The engine's error in one line, or the template's own words.
fn template_error(what: &str, error: &minijinja::Error) -> Error {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = cause {
        if let Some(Refusal(message)) = current.downcast_ref() {
            return Error::new(Kind::Template, message.clone());
        }
        cause = current.source();
    }
    let line = error.line().map(|line| format!(" in line {line}"));
    let message = match error.kind() {
        ErrorKind::OutOfFuel => format!("{what}: too much work{}", line.unwrap_or_default()),
        kind => format!(
            "{what}{}: {kind}{}",
            line.unwrap_or_default(),
            error
                .detail()
                .map(|detail| format!(": {detail}"))
                .unwrap_or_default()
        ),
    };
    Error::new(Kind::Template, message)
}
