//! Anthropic Messages.

mod events;
mod request;

pub(super) use self::{events::Events, request::Request};
