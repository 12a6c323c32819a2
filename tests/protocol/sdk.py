"""The SDKs of OpenAI and Anthropic, talking to the library through this process's pipes.

Each request that an SDK makes is a line on stdout, the answer to it a line on stdin. Every object
and every event is checked against the SDK's own types; what the SDK's accumulators make of the
events is compared with the object that comes without a stream.
"""

import json
import re
import sys

import anthropic
import httpx2
import openai
import pydantic
from anthropic.types import Message, MessageStreamEvent, RawMessageStreamEvent
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from openai.types.responses import Response, ResponseStreamEvent
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming

COUNTS = {"scenarios": 0, "objects": 0, "events": 0}

# Fields that the library adds to the SDKs' types: what other servers call the reasoning, and
# what the hosted services send themselves.
ADDED = {"reasoning_content", "store", "name", "bytes", "index"}

WHOLE = {
    "/v1/chat/completions": ChatCompletion,
    "/v1/responses": Response,
    "/v1/messages": Message,
}
EVENT = {
    "/v1/chat/completions": pydantic.TypeAdapter(ChatCompletionChunk),
    "/v1/responses": pydantic.TypeAdapter(ResponseStreamEvent),
    "/v1/messages": pydantic.TypeAdapter(RawMessageStreamEvent),
}


def unknown_fields(value, found):
    """The fields that no type of the SDK has, of a validated object."""
    if isinstance(value, pydantic.BaseModel):
        found.update(value.__pydantic_extra__ or {})
        for name in type(value).model_fields:
            unknown_fields(getattr(value, name), found)
    elif isinstance(value, list):
        for item in value:
            unknown_fields(item, found)
    return found


def check(adapter, value, what):
    """Validates a JSON value, strictly but for what JSON cannot say."""
    unknown = unknown_fields(adapter.validate_python(value), set()) - ADDED
    assert not unknown, f"fields that {what} does not have: {unknown}"
    COUNTS[what] += 1

# What a server answers with an error of this type.
STATUS = {"invalid_request_error": 400, "server_error": 500, "api_error": 500}


class Library(httpx2.BaseTransport):
    """Passes requests on to the library."""

    def handle_request(self, request):
        body = json.loads(request.read())
        call = {"path": request.url.path, "body": body}
        if "x-cancel-after" in request.headers:
            call["cancel_after"] = int(request.headers["x-cancel-after"])
        print(json.dumps(call), flush=True)
        reply = json.loads(sys.stdin.readline())
        if "error" in reply and not reply["events"]:
            error = json.loads(reply["error"])
            return httpx2.Response(STATUS[error["error"]["type"]], json=error)
        if not body.get("stream"):
            check(pydantic.TypeAdapter(WHOLE[request.url.path]), json.loads(reply["response"]), "objects")
            return httpx2.Response(200, json=json.loads(reply["response"]))
        stream = ""
        for event in reply["events"]:
            if event["name"] != "error":
                check(EVENT[request.url.path], json.loads(event["data"]), "events")
            if request.url.path != "/v1/chat/completions":
                stream += f"event: {event['name']}\n"
            stream += f"data: {event['data']}\n\n"
        if request.url.path == "/v1/chat/completions":
            stream += "data: [DONE]\n\n"
        headers = {"content-type": "text/event-stream"}
        return httpx2.Response(200, headers=headers, content=stream.encode())


def http_client():
    return httpx2.Client(transport=Library())


OPENAI = openai.OpenAI(api_key="x", base_url="http://library/v1", http_client=http_client(), max_retries=0)
ANTHROPIC = anthropic.Anthropic(api_key="x", base_url="http://library", http_client=http_client(), max_retries=0)

PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "zone": {"type": "string"}},
}
NAMES = ["weather", "time"]
CHAT_TOOLS = [
    {"type": "function", "function": {"name": name, "description": "Tells it.", "parameters": PARAMETERS}}
    for name in NAMES
]
RESPONSES_TOOLS = [
    {"type": "function", "name": name, "description": "Tells it.", "parameters": PARAMETERS, "strict": False}
    for name in NAMES
] + [{"type": "web_search"}]
MESSAGES_TOOLS = [
    {"name": name, "description": "Tells it.", "input_schema": PARAMETERS} for name in NAMES
]

ID = re.compile(r"^([a-z]+[-_])[0-9a-f]{36}$")


def alike(value):
    """A JSON value without what differs from answer to answer, and without what is unset."""
    if isinstance(value, dict):
        skip = {"created", "created_at", "completed_at", "parsed", "parsed_arguments", "parsed_output"}
        # The first of two answers leaves its state to the second.
        skip |= {"cached_tokens", "cache_read_input_tokens", "input_tokens"}
        return {k: alike(v) for k, v in value.items() if k not in skip and v is not None}
    if isinstance(value, list):
        return [alike(item) for item in value]
    if isinstance(value, str) and (match := ID.match(value)):
        return match[1]
    return value


def same(one, other):
    one, other = alike(one.to_dict(mode="json")), alike(other.to_dict(mode="json"))
    assert one == other, f"differ:\n{json.dumps(one)}\n{json.dumps(other)}"


def script(letter):
    return {"chat_template_kwargs": {"script": letter}}


def refused(kind, call, **request):
    """The error of this kind that a call meets."""
    try:
        call(**request)
    except kind as error:
        return error
    raise AssertionError(f"accepted: {request}")


# ---- Chat Completions ----

USER = [{"role": "user", "content": "Hi"}]


def chat(letter, messages=USER, **more):
    """Asks without a stream and with one; the completion."""
    COUNTS["scenarios"] += 1
    request = {"model": "scripted", "messages": messages, **more}
    pydantic.TypeAdapter(CompletionCreateParamsNonStreaming).validate_python(request)
    whole = OPENAI.chat.completions.create(**request, extra_body=script(letter))
    stream_options = {"include_usage": True}
    with OPENAI.chat.completions.stream(
        **request, stream_options=stream_options, extra_body=script(letter)
    ) as stream:
        for _ in stream:
            pass
        # The SDK refuses to parse an answer that was cut, but has it.
        is_cut = whole.choices[0].finish_reason == "length"
        streamed = stream.current_completion_snapshot if is_cut else stream.get_final_completion()
    for call in streamed.choices[0].message.tool_calls or []:
        del call.index  # a place in the stream, not in the completion
    same(whole, streamed)
    return whole


def chat_completions():
    done = chat("a")
    assert done.choices[0].message.content == "Hello, wörld! 🙂", done
    assert done.choices[0].finish_reason == "stop"
    assert done.usage.completion_tokens == 4, done.usage  # the end token is one of them
    assert done.usage.total_tokens == done.usage.prompt_tokens + 4

    done = chat("b")
    assert done.choices[0].message.reasoning_content.strip() == "Let me see."
    assert done.choices[0].message.content.strip() == "It is noon."
    assert done.usage.completion_tokens_details.reasoning_tokens > 0

    done = chat("c", tools=CHAT_TOOLS, parallel_tool_calls=True, n=1, store=True, user="u")
    message = done.choices[0].message
    assert done.choices[0].finish_reason == "tool_calls"
    assert message.content.strip() == "I will look."
    calls = [(call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls]
    assert calls == [("weather", {"city": "Oslo", "days": 2}), ("time", {})], calls
    results = [
        {"role": "tool", "tool_call_id": call.id, "content": "fine"} for call in message.tool_calls
    ]
    history = [*USER, message.model_dump(exclude_none=True), *results]
    done = chat("a", history, tools=CHAT_TOOLS)
    assert done.choices[0].message.content.startswith("Hello")

    done = chat("c", tools=CHAT_TOOLS, parallel_tool_calls=False)
    assert len(done.choices[0].message.tool_calls) == 1
    assert done.choices[0].finish_reason == "tool_calls"

    done = chat("c", tools=CHAT_TOOLS, tool_choice="none")
    assert done.choices[0].message.tool_calls is None
    assert "<tool_call>" in done.choices[0].message.content

    for choice in ["required", {"type": "function", "function": {"name": "weather"}}]:
        done = chat("", tools=CHAT_TOOLS, tool_choice=choice)
        (call,) = done.choices[0].message.tool_calls
        assert call.function.name == ("time" if choice == "required" else "weather"), call

    done = chat("d", tools=CHAT_TOOLS)
    assert done.choices[0].message.reasoning_content.strip() == "Two tools"
    assert len(done.choices[0].message.tool_calls) == 1

    done = chat("a", max_completion_tokens=2)
    assert (done.choices[0].message.content, done.choices[0].finish_reason) == ("Hello, wörld", "length")
    done = chat("c", tools=CHAT_TOOLS, max_tokens=4)
    assert done.choices[0].finish_reason == "length"
    assert done.choices[0].message.tool_calls is None
    assert '{"name": "weather", "arguments":' in done.choices[0].message.content

    done = chat("a", stop=["wör"], logprobs=True, top_logprobs=2, seed=1, temperature=0)
    assert (done.choices[0].message.content, done.choices[0].finish_reason) == ("Hello, ", "stop")
    done = chat("a", logprobs=True, top_logprobs=2)
    tokens = done.choices[0].logprobs.content
    assert [token.token for token in tokens] == ["Hello", ", wörld", "! 🙂"]
    assert all(token.logprob == token.top_logprobs[0].logprob for token in tokens)
    assert all(bytes(token.bytes).decode() == token.token for token in tokens)

    stream = OPENAI.chat.completions.create(
        model="m", messages=USER, stream=True, extra_body=script("a"), extra_headers={"x-cancel-after": "2"}
    )
    chunks = list(stream)
    assert chunks[-1].choices[0].finish_reason == "length"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Hello"

    for wrong, param, code in [
        ({"n": 2}, "n", "unsupported_value"),
        ({"response_format": {"type": "json_object"}}, "response_format.type", "unsupported_value"),
        ({"web_search_options": {}}, "web_search_options", "unsupported_parameter"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "missing_required_parameter"),
        ({"messages": [{"role": "user", "content": "word " * 2000}]}, "messages", "context_length_exceeded"),
    ]:
        request = {"model": "m", "messages": USER, **wrong}
        error = refused(openai.BadRequestError, OPENAI.chat.completions.create, **request)
        assert (error.type, error.param, error.code) == ("invalid_request_error", param, code), error

    # A call that must be made and is not whole is a failure of the model, not of the request.
    forced = {"model": "m", "messages": USER, "tools": CHAT_TOOLS, "tool_choice": "required", "max_tokens": 1}
    error = refused(openai.InternalServerError, OPENAI.chat.completions.create, **forced)
    assert error.type == "server_error", error
    error = refused(openai.APIError, lambda: list(OPENAI.chat.completions.create(**forced, stream=True)))
    assert error.type == "server_error" and "tool_choice" in error.message, error


# ---- Responses ----


def responses(letter, input="Hi", **more):
    """Asks without a stream and with one; the response."""
    COUNTS["scenarios"] += 1
    request = {"model": "scripted", "input": input, **more}
    pydantic.TypeAdapter(ResponseCreateParamsNonStreaming).validate_python(request)
    request["extra_body"] = script(letter)
    whole = OPENAI.responses.create(**request)
    with OPENAI.responses.stream(**request) as stream:
        events = list(stream)
        last = events[-1]
        streamed = stream.get_final_response() if last.type == "response.completed" else last.response
    assert [event.sequence_number for event in events] == list(range(len(events)))
    same(whole, streamed)
    return whole


def openai_responses():
    done = responses("a", instructions="Be kind.", metadata={"a": "b"}, user="u", truncation="disabled")
    assert (done.output_text, done.status) == ("Hello, wörld! 🙂", "completed")
    assert done.usage.output_tokens == 4
    assert (done.instructions, done.metadata) == ("Be kind.", {"a": "b"})

    assert responses("a", instructions="Be kind.").usage.input_tokens_details.cached_tokens > 0

    # A conversation by its last response, without a word of the ones before.
    before = done.usage.input_tokens
    for turn in range(2):
        done = responses("a", f"More {turn}", previous_response_id=done.id)
        assert done.usage.input_tokens > before
        before = done.usage.input_tokens

    done = responses("b", reasoning={"effort": "low"})
    reasoning, message = done.output
    assert reasoning.content[0].text.strip() == "Let me see."
    assert message.content[0].text.strip() == "It is noon."
    assert done.usage.output_tokens_details.reasoning_tokens > 0
    done = responses("b", reasoning={"summary": "auto"}, include=["reasoning.encrypted_content"])
    assert done.output[0].summary[0].text.strip() == "Let me see."

    done = responses("d", tools=RESPONSES_TOOLS)
    calls = [item for item in done.output if item.type == "function_call"]
    assert [(call.name, json.loads(call.arguments)) for call in calls] == [("time", {"zone": "UTC"})]
    outputs = [
        {"type": "function_call_output", "call_id": call.call_id, "output": "noon"} for call in calls
    ]
    items = [item.to_dict(mode="json") for item in done.output]
    user = {"role": "user", "content": "Hi"}
    by_items = responses("a", [user, *items, *outputs], tools=RESPONSES_TOOLS, store=False)
    by_id = responses("a", outputs, tools=RESPONSES_TOOLS, previous_response_id=done.id)
    assert by_items.usage.input_tokens == by_id.usage.input_tokens
    references = [{"type": "item_reference", "id": item.id} for item in done.output]
    by_reference = responses("a", [user, *references, *outputs], tools=RESPONSES_TOOLS)
    assert by_reference.usage.input_tokens == by_id.usage.input_tokens
    for request, param, code in [
        ({"previous_response_id": by_items.id}, "previous_response_id", "previous_response_not_found"),
        ({"input": [{"type": "item_reference", "id": by_items.output[0].id}]}, "input[0].id", "invalid_value"),
    ]:
        error = refused(openai.BadRequestError, OPENAI.responses.create, model="m", **{"input": "Hi", **request})
        assert (error.param, error.code) == (param, code), error

    for choice in ["required", {"type": "function", "name": "weather"}]:
        done = responses("", tools=RESPONSES_TOOLS, tool_choice=choice)
        (call,) = done.output
        assert call.name == ("time" if choice == "required" else "weather"), call

    forced = {"model": "m", "input": "Hi", "tools": RESPONSES_TOOLS, "tool_choice": "required"}
    forced["max_output_tokens"] = 1
    error = refused(openai.InternalServerError, OPENAI.responses.create, **forced)
    assert error.type == "server_error", error
    failed = list(OPENAI.responses.create(**forced, stream=True))[-1]
    assert (failed.type, failed.response.error.code) == ("response.failed", "server_error")

    done = responses("a", max_output_tokens=2)
    assert (done.status, done.output_text) == ("incomplete", "Hello, wörld")
    assert done.incomplete_details.reason == "max_output_tokens"
    done = responses("a", top_logprobs=2, include=["message.output_text.logprobs"])
    assert [token.token for token in done.output[0].content[0].logprobs] == ["Hello", ", wörld", "! 🙂"]

    cancelled = list(
        OPENAI.responses.create(
            model="m", input="Hi", stream=True, extra_body=script("a"), extra_headers={"x-cancel-after": "5"}
        )
    )
    assert cancelled[-1].type == "response.incomplete"
    assert cancelled[-1].response.status == "cancelled"
    assert cancelled[-1].response.output_text == "Hello"
    assert cancelled[-2].type == "response.output_item.done"


# ---- Messages ----


def messages(letter, messages=USER, max_tokens=64, **more):
    """Asks without a stream and with one; the message."""
    COUNTS["scenarios"] += 1
    request = {"model": "scripted", "messages": messages, "max_tokens": max_tokens, **more}
    pydantic.TypeAdapter(MessageCreateParamsNonStreaming).validate_python(request)
    request["extra_body"] = script(letter)
    whole = ANTHROPIC.messages.create(**request)
    with ANTHROPIC.messages.stream(**request) as stream:
        for _ in stream:
            pass
        streamed = stream.get_final_message()
    same(whole, streamed)
    return whole


def anthropic_messages():
    done = messages("a", system=[{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}])
    assert (done.content[0].text, done.stop_reason) == ("Hello, wörld! 🙂", "end_turn")
    assert done.usage.output_tokens == 4

    again = messages("a", system="Be kind.").usage
    assert again.cache_read_input_tokens > 0
    assert again.input_tokens + again.cache_read_input_tokens == done.usage.input_tokens + done.usage.cache_read_input_tokens

    done = messages("b", max_tokens=2000, thinking={"type": "enabled", "budget_tokens": 1024})
    thinking, text = done.content
    assert thinking.thinking.strip() == "Let me see." and thinking.signature
    assert text.text.strip() == "It is noon."

    done = messages("c", tools=MESSAGES_TOOLS, tool_choice={"type": "auto"})
    assert done.stop_reason == "tool_use"
    calls = [block for block in done.content if block.type == "tool_use"]
    assert [(call.name, call.input) for call in calls] == [
        ("weather", {"city": "Oslo", "days": 2}),
        ("time", {}),
    ]
    results = [
        {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "fine"}]}
        for call in calls
    ]
    history = [*USER, done.to_param(), {"role": "user", "content": results}]
    assert messages("a", history, tools=MESSAGES_TOOLS).stop_reason == "end_turn"

    for choice in [{"type": "any"}, {"type": "tool", "name": "weather", "disable_parallel_tool_use": True}]:
        done = messages("", tools=MESSAGES_TOOLS, tool_choice=choice)
        (call,) = done.content
        assert call.name == ("time" if choice["type"] == "any" else "weather"), call

    done = messages("a", max_tokens=2)
    assert (done.content[0].text, done.stop_reason) == ("Hello, wörld", "max_tokens")
    done = messages("a", stop_sequences=["wör"])
    assert (done.content[0].text, done.stop_reason, done.stop_sequence) == ("Hello, ", "stop_sequence", "wör")

    # The prompt goes into the cache, and nothing is said.
    unheard = [{"role": "user", "content": "Nobody has said this before."}]
    done = messages("a", unheard, max_tokens=0)
    assert (done.content, done.stop_reason, done.usage.output_tokens) == ([], "max_tokens", 0)
    usage = messages("a", unheard).usage
    assert usage.cache_read_input_tokens > usage.input_tokens

    edits = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
    done = ANTHROPIC.beta.messages.create(
        model="m", max_tokens=9, messages=USER, context_management=edits, extra_body=script("a")
    )
    assert done.content[0].text == "Hello, wörld! 🙂"

    request = {"model": "m", "max_tokens": 9, "messages": USER, "container": "c"}
    error = refused(anthropic.BadRequestError, ANTHROPIC.messages.create, **request)
    assert error.body["error"]["message"] == "not supported: container c", error.body

    forced = {"model": "m", "max_tokens": 1, "messages": USER, "tools": MESSAGES_TOOLS}
    forced["tool_choice"] = {"type": "any"}
    error = refused(anthropic.InternalServerError, ANTHROPIC.messages.create, **forced)
    assert error.body["error"]["type"] == "api_error", error.body
    error = refused(anthropic.APIStatusError, lambda: list(ANTHROPIC.messages.create(**forced, stream=True)))
    assert error.body["error"]["type"] == "api_error", error.body

    # The client begins the answer itself.
    done = messages("a", [*USER, {"role": "assistant", "content": "Helloa"}])
    assert done.content[0].text == "Hello, wörld! 🙂"

    events = list(
        ANTHROPIC.messages.create(
            model="m", messages=USER, max_tokens=9, stream=True, extra_body=script("a"),
            extra_headers={"x-cancel-after": "3"},
        )
    )
    assert [event.type for event in events[-3:]] == ["content_block_stop", "message_delta", "message_stop"]
    assert events[-2].delta.stop_reason == "max_tokens"


chat_completions()
openai_responses()
anthropic_messages()
print(json.dumps({"summary": COUNTS}), flush=True)
