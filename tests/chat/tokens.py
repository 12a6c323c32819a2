"""Tokenizes conversations and texts as transformers does.

    tokens.py FOLDER TEMPLATE    FOLDER holds a tokenizer.json and tokenizer_config.json

Writes a JSON list of {"conversation", "request", "ids"} or {"error"}, and of {"text", "ids"}.
"""

import json
import pathlib
import sys

from transformers import PreTrainedTokenizerFast

from conversations import CONVERSATIONS
from reference import render

TEXTS = [
    "",
    "Hello, world!",
    "  two  spaces\n\nand\tlines \n",
    "Größe 你好 नमस्ते 🦊🇫🇷 e\u0301 \u00a0x",
    "def f(x):\n    return x ** 2  # 12345\n",
    "don't we'll I'M 's",
]


def load(folder):
    folder = pathlib.Path(folder)
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    known = ("bos_token", "eos_token", "unk_token", "pad_token", "clean_up_tokenization_spaces")
    return PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"),
        **{key: config[key] for key in known if config.get(key) is not None},
    )


def rows(folder, template):
    tokenizer = load(folder)
    source = pathlib.Path(template).read_text(encoding="utf-8")
    for name, request in CONVERSATIONS.items():
        row = {"conversation": name, "request": request}
        try:
            prompt = render(source, {**request, **tokenizer.special_tokens_map})
            row["ids"] = tokenizer.encode(prompt, add_special_tokens=False)
        except Exception as error:
            row["error"] = str(error)
        yield row
    for text in TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=False)
        yield {"text": text, "ids": ids, "decoded": tokenizer.decode(ids)}


if __name__ == "__main__":
    json.dump(list(rows(*sys.argv[1:])), sys.stdout, ensure_ascii=True)
