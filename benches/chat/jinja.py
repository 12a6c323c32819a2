"""Jinja2's side of the chat benchmark, as transformers uses it: for each line on standard input, the
paths of a template and of a request, parses the request, renders it and answers with the seconds that
this took and the length of the text in bytes."""

import json
import pathlib
import sys
import time

from transformers.utils.chat_template_utils import render_jinja_template


def render(template, text):
    request = json.loads(text)
    prompts, _ = render_jinja_template(
        conversations=[request["messages"]],
        tools=request["tools"],
        chat_template=template,
        add_generation_prompt=True,
        bos_token="<s>",
        eos_token="</s>",
    )
    return prompts[0]


for line in sys.stdin:
    template, request = (pathlib.Path(path).read_text(encoding="utf-8") for path in line.rstrip("\n").split("\t"))
    start = time.perf_counter()
    prompt = render(template, request)
    seconds = time.perf_counter() - start
    print(seconds, len(prompt.encode()), flush=True)
