//! Conversations as prompts: chat templates and what they need.
//!
//! [`ChatTemplate`] renders a request, the JSON that a client would send to a hosted API,
//! through the model's own Jinja template, as transformers does with Jinja2.
//!
//! ```no_run
//! # fn main() -> mlxb::Result<()> {
//! use serde_json::json;
//!
//! let directory = "models/smol".as_ref();
//! let tokenizer = mlxb::Tokenizer::load(directory)?;
//! let template = mlxb::ChatTemplate::load(directory, &tokenizer)?;
//! let prompt = template.render(&json!({"messages": [{"role": "user", "content": "Hi"}]}))?;
//! # Ok(())
//! # }
//! ```

mod alternation;
mod builder;
mod call_ids;
mod clock;
mod continuation;
mod effort;
mod environment;
mod filters;
mod literals;
mod methods;
pub(crate) mod output;
mod python;
mod request;
mod single_calls;
mod source;
mod stable;
mod syntax;
mod template;
mod tokens;
mod tools;

#[cfg(test)]
mod agent_tests;
#[cfg(test)]
mod random_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod token_tests;

pub use self::builder::Chat;
pub use self::clock::Clock;
pub use self::template::ChatTemplate;
pub use self::tokens::ChatTokens;
