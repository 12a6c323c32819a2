//! An answer as the chain of events of Responses, and as their sum.

use serde_json::{Map, Value, json};

use super::request::Request;
use crate::{
    error::Error,
    protocol::output::{
        Encoder, Ending, Envelope, Part, TokenLogprob, Usage, WireEvent, decimal, unix_time,
    },
};

/// Makes the events.
pub(crate) struct Events {
    envelope: Envelope,
    /// Fields of the response that do not change.
    fields: Map<String, Value>,
    /// Whether reasoning is told as a summary.
    summarizes: bool,
    /// The items that are whole.
    output: Vec<Value>,
    open: Option<Open>,
    sequence_number: u64,
}

/// An item that goes on.
struct Open {
    id: String,
    kind: Kind,
    text: String,
    logprobs: Vec<Value>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Reasoning,
    Message,
}

impl Events {
    /// Nothing is told yet.
    pub(crate) fn new(mut envelope: Envelope, request: &Request) -> Self {
        let mut fields = Map::new();
        fields.insert("id".into(), envelope.ids.next("resp_").into());
        fields.insert("object".into(), "response".into());
        fields.insert("created_at".into(), envelope.created.into());
        fields.insert("model".into(), envelope.model.clone().into());
        fields.extend(request.echo.clone());
        fields.insert("temperature".into(), decimal(envelope.temperature));
        fields.insert("top_p".into(), decimal(envelope.top_p));
        Self {
            envelope,
            fields,
            summarizes: request.summarizes,
            output: Vec::new(),
            open: None,
            sequence_number: 0,
        }
    }

    fn response(&self, status: &str, changes: Value) -> Value {
        let mut response = self.fields.clone();
        response.insert("status".into(), status.into());
        for key in ["completed_at", "error", "incomplete_details", "usage"] {
            response.insert(key.into(), Value::Null);
        }
        response.insert("output".into(), self.output.clone().into());
        if let Value::Object(changes) = changes {
            response.extend(changes);
        }
        Value::Object(response)
    }

    fn tell(&mut self, name: &'static str, data: Value, events: &mut Vec<WireEvent>) {
        let mut fields = Map::new();
        fields.insert("type".into(), name.into());
        fields.insert("sequence_number".into(), self.sequence_number.into());
        if let Value::Object(data) = data {
            fields.extend(data);
        }
        self.sequence_number += 1;
        events.push(WireEvent {
            name,
            data: Value::Object(fields),
        });
    }

    /// An event about the item that goes on, or about one with this id.
    fn tell_of(&mut self, id: &str, name: &'static str, data: Value, events: &mut Vec<WireEvent>) {
        let mut fields = Map::new();
        fields.insert("item_id".into(), id.into());
        fields.insert("output_index".into(), self.output.len().into());
        if let Value::Object(data) = data {
            fields.extend(data);
        }
        self.tell(name, Value::Object(fields), events);
    }

    fn tell_item(&mut self, name: &'static str, item: &Value, events: &mut Vec<WireEvent>) {
        let data = json!({"output_index": self.output.len(), "item": item});
        self.tell(name, data, events);
    }

    /// Appends to the item that goes on, which a new one of this kind becomes where there is
    /// none.
    fn append(
        &mut self,
        kind: Kind,
        text: &str,
        tokens: &[TokenLogprob],
        events: &mut Vec<WireEvent>,
    ) {
        let mut open = match self.open.take() {
            Some(open) if open.kind == kind => open,
            other => {
                self.open = other;
                self.close("completed", events);
                self.open(kind, events)
            }
        };
        let logprobs: Vec<Value> = tokens.iter().map(TokenLogprob::to_json).collect();
        open.text += text;
        open.logprobs.extend_from_slice(&logprobs);
        let (name, data) = match (kind, self.summarizes) {
            (Kind::Message, _) => (
                "response.output_text.delta",
                json!({"content_index": 0, "delta": text, "logprobs": logprobs}),
            ),
            (Kind::Reasoning, false) => (
                "response.reasoning_text.delta",
                json!({"content_index": 0, "delta": text}),
            ),
            (Kind::Reasoning, true) => (
                "response.reasoning_summary_text.delta",
                json!({"summary_index": 0, "delta": text}),
            ),
        };
        self.tell_of(&open.id, name, data, events);
        self.open = Some(open);
    }

    fn open(&mut self, kind: Kind, events: &mut Vec<WireEvent>) -> Open {
        let open = Open {
            id: self.envelope.ids.next(match kind {
                Kind::Reasoning => "rs_",
                Kind::Message => "msg_",
            }),
            kind,
            text: String::new(),
            logprobs: Vec::new(),
        };
        let item = self.item(&open, "in_progress", &[]);
        self.tell_item("response.output_item.added", &item, events);
        let (name, data) = match (kind, self.summarizes) {
            (Kind::Reasoning, true) => (
                "response.reasoning_summary_part.added",
                json!({"summary_index": 0, "part": self.part_of(&open)}),
            ),
            _ => (
                "response.content_part.added",
                json!({"content_index": 0, "part": self.part_of(&open)}),
            ),
        };
        self.tell_of(&open.id, name, data, events);
        open
    }

    /// Ends the item that goes on.
    fn close(&mut self, status: &str, events: &mut Vec<WireEvent>) {
        let Some(open) = self.open.take() else {
            return;
        };
        let part = self.part_of(&open);
        let (text_done, part_done, place) = match (open.kind, self.summarizes) {
            (Kind::Message, _) => (
                "response.output_text.done",
                "response.content_part.done",
                "content_index",
            ),
            (Kind::Reasoning, false) => (
                "response.reasoning_text.done",
                "response.content_part.done",
                "content_index",
            ),
            (Kind::Reasoning, true) => (
                "response.reasoning_summary_text.done",
                "response.reasoning_summary_part.done",
                "summary_index",
            ),
        };
        let mut text = json!({place: 0, "text": open.text});
        if open.kind == Kind::Message {
            text["logprobs"] = json!(open.logprobs);
        }
        self.tell_of(&open.id, text_done, text, events);
        self.tell_of(&open.id, part_done, json!({place: 0, "part": part}), events);
        let item = self.item(&open, status, &[part]);
        self.tell_item("response.output_item.done", &item, events);
        self.output.push(item);
    }

    fn part_of(&self, open: &Open) -> Value {
        match (open.kind, self.summarizes) {
            (Kind::Message, _) => json!({
                "type": "output_text",
                "text": open.text,
                "annotations": [],
                "logprobs": open.logprobs,
            }),
            (Kind::Reasoning, false) => json!({"type": "reasoning_text", "text": open.text}),
            (Kind::Reasoning, true) => json!({"type": "summary_text", "text": open.text}),
        }
    }

    fn item(&self, open: &Open, status: &str, parts: &[Value]) -> Value {
        let (id, none): (_, &[Value]) = (&open.id, &[]);
        match (open.kind, self.summarizes) {
            (Kind::Message, _) => json!({
                "id": id,
                "type": "message",
                "role": "assistant",
                "status": status,
                "content": parts,
            }),
            (Kind::Reasoning, summarizes) => json!({
                "id": id,
                "type": "reasoning",
                "status": status,
                "summary": if summarizes { parts } else { none },
                "content": if summarizes { none } else { parts },
                "encrypted_content": null,
            }),
        }
    }

    fn tool_call(
        &mut self,
        name: &str,
        arguments: Map<String, Value>,
        events: &mut Vec<WireEvent>,
    ) {
        self.close("completed", events);
        let arguments = Value::Object(arguments).to_string();
        let id = self.envelope.ids.next("fc_");
        let mut item = json!({
            "id": id,
            "type": "function_call",
            "status": "in_progress",
            "call_id": self.envelope.ids.next("call_"),
            "name": name,
            "arguments": "",
        });
        self.tell_item("response.output_item.added", &item, events);
        self.tell_of(
            &id,
            "response.function_call_arguments.delta",
            json!({"delta": arguments}),
            events,
        );
        self.tell_of(
            &id,
            "response.function_call_arguments.done",
            json!({"name": name, "arguments": arguments}),
            events,
        );
        item["status"] = json!("completed");
        item["arguments"] = json!(arguments);
        self.tell_item("response.output_item.done", &item, events);
        self.output.push(item);
    }
}

impl Encoder for Events {
    fn begin(&mut self, _: usize, events: &mut Vec<WireEvent>) {
        for name in ["response.created", "response.in_progress"] {
            let response = self.response("in_progress", Value::Null);
            self.tell(name, json!({"response": response}), events);
        }
    }

    fn part(&mut self, part: Part, events: &mut Vec<WireEvent>) {
        match part {
            Part::Reasoning(text) => self.append(Kind::Reasoning, &text, &[], events),
            Part::Text(text, tokens) => self.append(Kind::Message, &text, &tokens, events),
            Part::ToolCall { name, arguments } => self.tool_call(&name, arguments, events),
        }
    }

    fn end(&mut self, ending: &Ending, usage: Usage, events: &mut Vec<WireEvent>) -> Value {
        let (name, status, reason) = match ending {
            Ending::Complete | Ending::StopString(_) => ("response.completed", "completed", None),
            Ending::MaxTokens | Ending::ContextFull => (
                "response.incomplete",
                "incomplete",
                Some("max_output_tokens"),
            ),
            Ending::Cancelled => ("response.incomplete", "cancelled", None),
        };
        // An answer without anything is a message without text.
        if self.output.is_empty() && self.open.is_none() {
            let open = self.open(Kind::Message, events);
            self.open = Some(open);
        }
        let is_whole = status == "completed";
        self.close(if is_whole { status } else { "incomplete" }, events);
        let changes = json!({
            "completed_at": is_whole.then(unix_time),
            "incomplete_details": reason.map(|reason| json!({"reason": reason})),
            "usage": {
                "input_tokens": usage.input,
                "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
                "output_tokens": usage.output,
                "output_tokens_details": {"reasoning_tokens": usage.reasoning},
                "total_tokens": usage.input + usage.output,
            },
        });
        let response = self.response(status, changes);
        self.tell(name, json!({"response": response}), events);
        response
    }

    fn fail(&mut self, error: &Error, events: &mut Vec<WireEvent>) {
        self.close("incomplete", events);
        let error = json!({"code": "server_error", "message": error.message()});
        let response = self.response("failed", json!({"error": error}));
        self.tell("response.failed", json!({"response": response}), events);
    }
    fn kept(&self) -> Option<(&str, &[Value])> {
        Some((self.fields["id"].as_str()?, &self.output))
    }
}
