"""What mlx-lm's samplers and logits processors make of random logits.

    samplers.py OUT

writes OUT/samplers.safetensors and OUT/samplers.json, a list of cases:

    name        vocabulary, type, and what was done
    input       the tensor that was given: logits or log-probabilities, [1, vocabulary]
    step        "top_p", "min_p", "top_k", "xtc", "processors" or "chain"
    parameters  as mlx-lm names them
    history     the tokens so far, for processors
    output      the tensor that came out; none for a chain
    draws       for "xtc" and "chain": {"keys", "token"}: the random keys in the order
                of use ([high, low] each), and for a chain the id drawn with them

mlx-lm draws from MLX's global state, which is split once for each number drawn:
a key here is the half that the draw got, so that it can be given to a sampler that
takes keys. "xtc" has one case for each key.

MLX's compile is off, as in reference.py: as shipped, one of these 768 draws is
another id, since the compiled product with 1/temp differs in its last bit.
"""

import json
import sys
from pathlib import Path

import mlx.core as mx
from mlx_lm import sample_utils

VOCABULARIES = (32, 1000, 49152, 152064)
DTYPES = ("float32", "bfloat16")
# Spread of the logits: nearly flat, like a model's, and with one id nearly certain.
SPREADS = {"flat": 0.5, "usual": 3.0, "peaked": 9.0}
SEEDS = (0, 1, 7, 123456789)


def keys_of(seed, count):
    """The keys that the next `count` draws get after `seed`, and the state put so."""
    mx.random.seed(seed)
    state, keys = mx.random.state[0], []
    for _ in range(count):
        state, key = mx.random.split(state)
        keys.append(key.tolist())
    mx.random.seed(seed)
    return keys


class Table:
    def __init__(self):
        self.cases, self.tensors = [], {}

    def add(self, name, step, given, came_out=None, **more):
        case = {"name": name, "step": step, "input": given} | more
        if came_out is not None:
            case["output"] = name
            self.tensors[name] = came_out
        self.cases.append(case)

    def samplers(self, name, log_probabilities):
        """Each step of the chain alone, and chains."""
        given = f"{name} log-probabilities"
        self.tensors[given] = log_probabilities
        size = log_probabilities.shape[-1]

        def step(kind, function, **parameters):
            told = " ".join(f"{k}={v}" for k, v in parameters.items())
            came_out = function(log_probabilities, *parameters.values())
            self.add(f"{name} {told}", kind, given, came_out, parameters=parameters)

        for top_p in (1e-8, 0.1, 0.5, 0.9, 0.95, 0.999):
            step("top_p", sample_utils.apply_top_p, top_p=top_p)
        for min_p in (0.001, 0.05, 0.3, 1.0):
            for keep in (1, 2, min(50, size - 1)):
                step("min_p", sample_utils.apply_min_p, min_p=min_p, min_tokens_to_keep=keep)
        for top_k in (1, 2, 20, size - 1):
            step("top_k", sample_utils.apply_top_k, top_k=top_k)
        likely = mx.argsort(-log_probabilities[0])[:4].tolist()
        for seed, probability, threshold, special in (
            (0, 1.0, 0.1, []),
            (0, 1.0, 0.01, []),
            (0, 1.0, 0.0005, likely[1:3]),
            (0, 1.0, 0.5, []),
            (1, 0.5, 0.02, []),
            (2, 0.5, 0.02, likely[:1]),
            (3, 0.5, 0.02, []),
            (4, 0.5, 0.02, []),
        ):
            keys = keys_of(seed, 1)
            parameters = {
                "xtc_probability": probability,
                "xtc_threshold": threshold,
                "xtc_special_tokens": special,
            }
            came_out = sample_utils.apply_xtc(log_probabilities, *parameters.values())
            told = f"{name} xtc {probability} {threshold} {special} seed {seed}"
            self.add(
                told, "xtc", given, came_out, parameters=parameters, draws=[{"keys": keys}]
            )
        for parameters in (
            {"temp": 1.0},
            {"temp": 0.3},
            {"temp": 1.7},
            {"temp": 0.8, "top_p": 0.9},
            {"temp": 0.8, "min_p": 0.05, "min_tokens_to_keep": 3},
            {"temp": 0.8, "top_k": 20},
            {"temp": 1.2, "top_p": 0.95, "min_p": 0.02, "top_k": 10},
            {
                "temp": 0.9,
                "top_p": 0.99,
                "min_p": 0.001,
                "top_k": 25,
                "xtc_probability": 0.5,
                "xtc_threshold": 0.02,
                "xtc_special_tokens": likely[:1],
            },
        ):
            sampler = sample_utils.make_sampler(**parameters)
            draws = []
            for seed in SEEDS:
                keys = keys_of(seed, 1 + ("xtc_probability" in parameters))
                draws.append({"keys": keys, "token": sampler(log_probabilities).item()})
            told = f"{name} chain {parameters}"
            self.add(told, "chain", given, parameters=parameters, draws=draws)

    def processors(self, name, logits):
        given = f"{name} logits"
        self.tensors[given] = logits
        size = logits.shape[-1]
        # Ids that come again, near and far, the first and the last one among them.
        history = [(7 * i * i + 3 * i) % size for i in range(60)]
        history += [0, size - 1, 5, 5, 5, 9, size - 1, 9, 5]
        for parameters in (
            {"logit_bias": {0: 1.5, 3: -100.0, size - 1: 0.1}},
            {"repetition_penalty": 1.3},
            {"repetition_penalty": 0.5, "repetition_context_size": 3},
            {"repetition_penalty": 1.5, "repetition_context_size": 0},
            {"repetition_penalty": 1.5, "repetition_context_size": 1000},
            {"presence_penalty": 0.7},
            {"presence_penalty": -0.7, "presence_context_size": 0},
            {"frequency_penalty": 0.3},
            {"frequency_penalty": 0.3, "frequency_context_size": 5},
            {"frequency_penalty": -0.2, "frequency_context_size": 0},
            {
                "logit_bias": {5: 2.0, 9: -1.0},
                "repetition_penalty": 1.1,
                "presence_penalty": 0.5,
                "frequency_penalty": 0.25,
                "frequency_context_size": 0,
            },
        ):
            # Processors write into what they are given.
            came_out = mx.array(logits)
            for processor in sample_utils.make_logits_processors(**parameters):
                came_out = processor(mx.array(history), came_out)
            told = f"{name} {parameters}"
            self.add(
                told, "processors", given, came_out, parameters=parameters, history=history
            )


def main():
    mx.disable_compile()
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    table = Table()
    mx.random.seed(42)
    for size in VOCABULARIES:
        for dtype in DTYPES:
            for kind, spread in SPREADS.items():
                logits = spread * mx.random.normal((1, size), key=mx.random.key(size))
                logits = logits.astype(getattr(mx, dtype))
                name = f"{size} {dtype} {kind}"
                table.samplers(name, logits - mx.logsumexp(logits, keepdims=True))
                table.processors(name, logits)
    mx.save_safetensors(str(out / "samplers.safetensors"), table.tensors)
    (out / "samplers.json").write_text(json.dumps(table.cases))


if __name__ == "__main__":
    main()
