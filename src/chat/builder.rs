//! A request put together message by message.

use serde_json::{Value, json};

use crate::error::{Error, Kind, Result};

/// A conversation for callers that write no JSON themselves.
///
/// ```
/// let mut chat = mlxb::Chat::default();
/// chat.add("user", "Hi")?;
/// assert_eq!(chat.json(), r#"{"messages":[{"role":"user","content":"Hi"}]}"#);
/// # Ok::<(), mlxb::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chat {
    messages: Vec<Value>,
}

impl Chat {
    /// Adds a message with any role that the model's template knows.
    ///
    /// # Errors
    /// `InvalidArgument` for an empty role.
    pub fn add(&mut self, role: &str, text: &str) -> Result<()> {
        if role.is_empty() {
            return Err(Error::new(Kind::InvalidArgument, "role is empty"));
        }
        self.messages.push(json!({"role": role, "content": text}));
        Ok(())
    }

    /// The request that [`ChatTemplate::render`](crate::ChatTemplate::render) takes.
    pub fn json(&self) -> String {
        json!({"messages": self.messages}).to_string()
    }
}
