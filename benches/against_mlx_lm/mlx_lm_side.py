"""mlx-lm, answering the requests that side.rs sends: mlx_lm_side.py MODEL"""

import json
import sys
import time

import mlx.core as mx
from mlx_lm import load, stream_generate
from mlx_lm.generate import generate_step
from mlx_lm.sample_utils import make_sampler


def tokens_of(model, tokenizer, prompt, tokens, way):
    if way == "Text":
        for response in stream_generate(model, tokenizer, prompt, max_tokens=tokens):
            yield response.token
    else:
        sampler = make_sampler(temp=0.8, top_p=0.95, min_p=0.02, top_k=40)
        sampler = sampler if way == "Sampled" else None
        for token, _ in generate_step(
            mx.array(prompt), model, max_tokens=tokens, sampler=sampler
        ):
            yield token


def answer(model, tokenizer, prompt, tokens, way):
    started = time.perf_counter()
    ids, times = [], []
    for token in tokens_of(model, tokenizer, prompt, tokens, way):
        times.append(time.perf_counter())
        ids.append(token)
    return {
        "ids": ids,
        "first_seconds": times[0] - started,
        "rest_seconds": times[-1] - times[:2][-1],
    }


model, tokenizer = load(sys.argv[1])
for line in sys.stdin:
    request = json.loads(line)
    told = answer(model, tokenizer, **request)
    print(json.dumps(told), flush=True)
