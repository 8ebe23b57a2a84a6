"""Run many sequences: ``python -m tests.chaos --sequences 1000 --seed 0``."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests import servers
from tests.chaos.run import Run
from tests.chaos.scene import catalog, load_all
from tests.chaos.sequence import draw


def main() -> int:
    """Run and tell; 1 when anything was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--sequences", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="of the first one; the next has the next seed")
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="begin no sequence after this time"
    )
    chosen = parser.parse_args()
    begun = time.perf_counter()
    met: Counter[str] = Counter()
    n_wrong = n_run = n_ticks = n_failed = 0
    with tempfile.TemporaryDirectory() as name, servers.victoria_metrics(Path(name) / "vm") as server:
        load_all(server)
        compared = catalog()
        for seed in range(chosen.seed, chosen.seed + chosen.sequences):
            if time.perf_counter() - begun > 60 * chosen.minutes:
                break
            with tempfile.TemporaryDirectory() as folder:
                run = Run(draw(seed), server.url, Path(folder), compared)
                wrong = run.go()
            n_run += 1
            n_ticks += run.n_ticks
            n_failed += run.n_failed
            n_wrong += bool(wrong)
            met += run.met
            for sentence in wrong[:3]:
                print(sentence, flush=True)
    print(
        f"{n_run} sequences from seed {chosen.seed}, {n_ticks} ticks, of which {n_failed} failed in order, "
        f"{n_wrong} sequences with something wrong, {time.perf_counter() - begun:.0f} s, "
        f"load {os.getloadavg()[0]:.1f}"
    )
    print("requests met: " + ", ".join(f"{kind} {n}" for kind, n in met.most_common()))
    return 1 if n_wrong or (n_run < chosen.sequences and chosen.minutes == float("inf")) else 0


if __name__ == "__main__":
    sys.exit(main())
