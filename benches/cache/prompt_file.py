"""mlx-lm's prompt caches in files.

prompt_file.py save MODEL FILE "IDS": runs the ids and saves the cache.
prompt_file.py load MODEL FILE "IDS": prints the seconds from loading it to the next token.
"""

import sys
import time

import mlx.core as mx
from mlx_lm import load
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import load_prompt_cache, make_prompt_cache, save_prompt_cache

way, model, file, ids = sys.argv[1:]
model, _ = load(model)
ids = [int(one) for one in ids.split()]
if way == "save":
    cache = make_prompt_cache(model)
    for _ in generate_step(mx.array(ids), model, max_tokens=0, prompt_cache=cache):
        pass
    save_prompt_cache(file, cache)
else:
    started = time.perf_counter()
    cache = load_prompt_cache(file)
    next(generate_step(mx.array([1999]), model, max_tokens=1, prompt_cache=cache))
    print(time.perf_counter() - started)
