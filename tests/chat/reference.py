"""Renders templates as transformers does and writes what came out.

    reference.py cells FOLDER      every template of the folder with every conversation
    reference.py snippets FILE     the templates in a JSON list, each with its variables

Writes JSON to standard output. An outcome is {"text": ...}, {"refusal": ...} for the template's own
raise_exception, or {"error": ...}.
"""

import datetime
import json
import pathlib
import sys

import jinja2
from transformers.utils import chat_template_utils

from conversations import CONVERSATIONS

SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


class FixedTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2025, 3, 7, 9, 5, 2, tzinfo=tz)


chat_template_utils.datetime = FixedTime


def outcome(render):
    try:
        return {"text": render()}
    except jinja2.exceptions.TemplateError as error:
        if type(error) is jinja2.exceptions.TemplateError:
            return {"refusal": str(error)}
        return {"error": f"{type(error).__name__}: {error}"}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def render(template, request):
    request = dict(request)
    messages = chat_template_utils._normalize_chat_messages(request.pop("messages"))
    continues = request.pop("continue_final_message", False)
    prompts, _ = chat_template_utils.render_jinja_template(
        conversations=[messages],
        tools=request.pop("tools", None),
        documents=request.pop("documents", None),
        chat_template=template,
        add_generation_prompt=request.pop("add_generation_prompt", not continues),
        continue_final_message=continues,
        **{**SPECIAL_TOKENS, **request},
    )
    return prompts[0]


def cells(folder):
    for path in sorted(pathlib.Path(folder).glob("*.jinja")):
        # As transformers reads it: line ends become "\n".
        template = path.read_text(encoding="utf-8")
        for name, request in CONVERSATIONS.items():
            yield {
                "template": path.stem,
                "conversation": name,
                "request": request,
                "outcome": outcome(lambda: render(template, request)),
            }


def snippets(file):
    for template, variables in json.loads(pathlib.Path(file).read_text(encoding="utf-8")):
        request = {"messages": [{"role": "user", "content": "Hi"}], **variables}
        yield {"template": template, "request": request, "outcome": outcome(lambda: render(template, request))}


if __name__ == "__main__":
    mode, argument = sys.argv[1:]
    rows = {"cells": cells, "snippets": snippets}[mode](argument)
    sys.stdout.reconfigure(encoding="utf-8")
    json.dump(list(rows), sys.stdout, ensure_ascii=False)
