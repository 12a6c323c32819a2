"""huggingface_hub's side of the registry's benchmark: for each line on standard input, a hub's
folder, scans it and answers with the seconds that this took."""

import sys
import time

from huggingface_hub import scan_cache_dir

for line in sys.stdin:
    start = time.perf_counter()
    info = scan_cache_dir(line.rstrip("\n"))
    seconds = time.perf_counter() - start
    assert not info.warnings, info.warnings
    print(seconds, sum(len(repo.revisions) for repo in info.repos), flush=True)
