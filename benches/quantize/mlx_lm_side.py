"""Converts a model with mlx-lm as shipped, and prints the seconds that convert() took.

    mlx_lm_side.py SOURCE TARGET RECIPE    (4 or 8 bits, or the name of a recipe)
"""

import contextlib
import sys
import time

from mlx_lm.convert import convert

source, target, recipe = sys.argv[1:]
options = {"q_group_size": 64}
if recipe.isdigit():
    options["q_bits"] = int(recipe)
else:
    options["quant_predicate"] = recipe
start = time.perf_counter()
with contextlib.redirect_stdout(sys.stderr):
    convert(source, target, quantize=True, **options)
print(time.perf_counter() - start)
