"""One training run in a process of its own, on a given number of cores: what bench_training
compares.

python -m bench.train_once DATASET RUNS EXPERIMENT.json CORES
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

CORES = int(sys.argv[4])
# Before torch is loaded: all that this process starts stays on these cores.
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])

from courant.experiment import parse_experiment  # noqa: E402
from courant.training.train import train  # noqa: E402

if __name__ == "__main__":
    print(train(parse_experiment(Path(sys.argv[3]).read_text()), sys.argv[1], None, sys.argv[2]))
