"""mlx-lm's side of KV states in files.

states.py save MODEL FILE "IDS": runs the ids and saves the cache.
states.py load MODEL FILE COUNT: continues a file with its last token, as the metadata says which.
It prints the ids that follow, COUNT of them.
"""

import json
import sys

import mlx.core as mx
from mlx_lm import load
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import load_prompt_cache, make_prompt_cache, save_prompt_cache


def answer(model, cache, ids, count):
    steps = generate_step(mx.array(ids), model, max_tokens=count, prompt_cache=cache)
    return [token for token, _ in steps]


way, folder, file, rest = sys.argv[1:]
model, _ = load(folder)
if way == "save":
    ids, following, count = json.loads(rest)
    cache = make_prompt_cache(model)
    answer(model, cache, ids, 0)
    save_prompt_cache(file, cache, {"made": "by the test"})
    print(json.dumps(answer(model, cache, following, count)))
else:
    following, count = json.loads(rest)
    cache, metadata = load_prompt_cache(file, return_metadata=True)
    ids = [int(number) for number in metadata["mlxb_tokens"].split()]
    assert all(layer.offset == len(ids) for layer in cache)
    print(json.dumps(answer(model, cache, following, count)))
