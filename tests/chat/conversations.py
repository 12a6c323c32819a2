"""The conversations that every template renders, as requests of the library. Run as a script, it
writes them as a JSON list."""

import json
import sys

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": 'Current weather in a "city" <now>.',
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "The city's name, e.g. Zürich"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                "days": {"type": "integer", "minimum": 1, "default": 3},
                "hours": {"type": "array", "items": {"type": "number"}, "description": "Which hours"},
                "near": {
                    "type": "object",
                    "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}},
                    "required": ["lat"],
                },
            },
            "required": ["city"],
        },
    },
}
SEARCH = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Search the web.\nReturns the first pages.",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    },
}
TIME = {
    "type": "function",
    "function": {"name": "now", "description": "The time.", "parameters": {"type": "object", "properties": {}}},
}


def system(content):
    return {"role": "system", "content": content}


def user(content):
    return {"role": "user", "content": content}


def assistant(content, **fields):
    return {"role": "assistant", "content": content, **fields}


def call(name, arguments, number=1):
    identifier = f"call{number:05}"
    return {"id": identifier, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(content, name="get_weather", number=1):
    return {"role": "tool", "name": name, "tool_call_id": f"call{number:05}", "content": content}


TOOL_TURN = [
    user("Weather in Paris?"),
    assistant("", tool_calls=[call("get_weather", {"city": "Paris", "days": 2, "near": {"lat": 48.85}})]),
    result('{"temperature": 21.5, "sky": "clear"}'),
]

CONVERSATIONS = {
    "one question": {"messages": [user("Hello, who are you?")]},
    "system and question": {"messages": [system("You are terse."), user("What is 2 + 2?")]},
    "several turns": {
        "messages": [
            system("You are a helpful assistant.\n\nBe kind."),
            user("Hi"),
            assistant("Hello! How can I help?"),
            user("  Tell me a joke.\n"),
            assistant("Why did the chicken cross the road?\n\n"),
            user("Why?"),
        ]
    },
    "finished turns": {
        "messages": [user("Hi"), assistant("Hello!"), user("Bye"), assistant("Goodbye!")],
        "add_generation_prompt": False,
    },
    "tools": {
        "messages": [system("Use tools."), user("Weather in Zürich and the time?")],
        "tools": [WEATHER, SEARCH, TIME],
    },
    "tool result": {"messages": TOOL_TURN, "tools": [WEATHER]},
    "tool result and answer": {
        "messages": [system("Use tools."), *TOOL_TURN, assistant("It is clear, 21.5 °C."), user("And in Rome?")],
        "tools": [WEATHER, SEARCH],
    },
    "parallel calls": {
        "messages": [
            user("Compare Oslo and Rome."),
            assistant(
                "Let me look.",
                tool_calls=[
                    call("get_weather", {"city": "Oslo", "hours": [6, 12.5], "unit": None, "now": True}, 1),
                    call("search", {"query": "Rome \"weather\" <today> & more"}, 2),
                ],
            ),
            result("5 degrees", "get_weather", 1),
            result("25 degrees", "search", 2),
        ],
        "tools": [WEATHER, SEARCH],
    },
    "reasoning": {
        "messages": [
            user("What is 17 * 3?"),
            assistant("It is 51.", reasoning_content="17 * 3 = 51.\nSimple."),
            user("And plus 4?"),
        ],
        "enable_thinking": True,
    },
    "inline thinking switched off": {
        "messages": [
            user("What is 17 * 3?"),
            assistant("<think>\n17 * 3 = 51.\n</think>\n\nIt is 51."),
            user("And plus 4?"),
        ],
        "enable_thinking": False,
        "thinking": False,
    },
    "reasoning between tools": {
        "messages": [
            system("Use tools."),
            user("Weather in Paris?"),
            assistant(
                "",
                reasoning_content="I should look it up.",
                tool_calls=[call("get_weather", {"city": "Paris"})],
            ),
            result("sunny"),
        ],
        "tools": [WEATHER],
        # What the library makes of the effort is written out for the reference.
        "reasoning_effort": "low",
        "enable_thinking": True,
        "thinking": True,
        "thinking_mode": "enabled",
        "thinking_effort": "low",
    },
    "empty contents": {"messages": [system(""), user(""), assistant(""), user("Still there?")]},
    "other scripts": {
        "messages": [
            system("Réponds en français. 你好 👋🏽"),
            user("Что такое «любовь»? <b>&amp;</b> \u00a0 {{ x }} {% y %} 'quotes' \"double\" \\ \t tab"),
            assistant("愛とは…\r\nनमस्ते"),
            user("🦊🇫🇷 e\u0301"),
        ]
    },
    "content parts": {
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
            {
                "role": "user",
                "content": [{"type": "text", "text": "First part."}, {"type": "text", "text": "Second part."}],
            },
            {"role": "assistant", "content": [{"type": "text", "text": "Yes."}]},
            {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is this?"}]},
        ]
    },
    "documents": {
        "messages": [user("What do the documents say?")],
        "documents": [{"title": "One", "text": "First text."}, {"title": "Two", "text": "Second\ntext."}],
    },
    "answer without question": {"messages": [assistant("I begin."), user("Go on."), user("Please.")]},
    "developer": {"messages": [{"role": "developer", "content": "Speak like a pirate."}, user("Hi")]},
    "answer to continue": {
        "messages": [user("Count to five."), assistant("One, two, ")],
        "continue_final_message": True,
    },
    "calls without text": {
        "messages": [
            user("Weather in Paris?"),
            {"role": "assistant", "tool_calls": [call("get_weather", {"city": "Paris"})]},
            result("[1, 2, {\"a\": null}]"),
            assistant("Done."),
            user("Thanks"),
        ],
        "tools": [WEATHER],
    },
}

if __name__ == "__main__":
    json.dump(list(CONVERSATIONS.values()), sys.stdout)
