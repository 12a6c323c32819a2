//! OpenAI Responses.

mod events;
mod items;
mod request;

pub(super) use self::{events::Events, request::Request};
