"""mlx-lm's trie of prompts: trie.py ENTRIES TOKENS prints microseconds a look-up."""

import random
import statistics
import sys
import time

from mlx_lm.models.cache import LRUPromptCache


class Layers:
    """Of declared bytes."""

    nbytes = 1000

    def is_trimmable(self):
        return True

    def trim(self, count):
        return count

    def __deepcopy__(self, memo):
        return self


count, length = map(int, sys.argv[1:])
cache = LRUPromptCache(max_size=count + 1)
sequences = []
for number in range(count):
    draw = random.Random(number)
    sequence = [draw.randrange(40000) for _ in range(length)]
    if number % 2 == 0:
        shared = random.Random(10**6 + number // 2 % 10)
        sequence[: length // 2] = [shared.randrange(40000) for _ in range(length // 2)]
    sequences.append(sequence)
    cache.insert_cache("model", sequence, [Layers()])
times = []
for round in range(101):
    query = sequences[round * 7 % count] + [5]
    started = time.perf_counter()
    found, rest = cache.fetch_nearest_cache("model", query)
    times.append((time.perf_counter() - started) * 1e6)
    assert found is not None and len(rest) == 1
print(f"{statistics.median(times):.1f}")
