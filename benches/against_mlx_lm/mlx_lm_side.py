"""mlx-lm, answering the requests that side.rs sends: mlx_lm_side.py MODEL"""

import json
import sys
import time

from mlx_lm import load, stream_generate


def answer(model, tokenizer, prompt, tokens):
    started = time.perf_counter()
    ids, times = [], []
    for response in stream_generate(model, tokenizer, prompt, max_tokens=tokens):
        times.append(time.perf_counter())
        ids.append(response.token)
    return {
        "ids": ids,
        "first_seconds": times[0] - started,
        "rest_seconds": times[-1] - times[0],
    }


model, tokenizer = load(sys.argv[1])
for line in sys.stdin:
    request = json.loads(line)
    told = answer(model, tokenizer, request["prompt"], request["tokens"])
    print(json.dumps(told), flush=True)
