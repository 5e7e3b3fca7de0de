"""What the options of training cost and bring: bfloat16, compile, accumulation and weight averaging
beside the default.

The demo recipe for cylinder flow, shortened, on travelling waves; on a cylinder dataset of your own
from seeds 42 and 43 with

    python -m bench.bench_options demo-run/store/cylinder-flow bench-out 42 43

Every run has a process of its own, on all cores. Options take turns within each seed, so that a
busy spell weighs on all of them. An averaging run goes through the same weights as the default of
its seed: the difference in NMAE is the averaging's alone.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import nn

import simgen
from bench.bench_training import publish_waves
from bench.measure import CPU, peak_bytes
from bench.report import publish
from courant.experiment import parse_experiment
from courant.models import build
from courant.recipes import get_recipe
from courant.runs.directory import RunDirectory
from courant.runs.record import read_records
from courant.training.step import backward
from courant.training.train import Task, fit

OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "optimiser: muon": {"optimiser": "muon"},
    "precision: bfloat16": {"precision": "bfloat16"},
    "compile: true": {"compile": True},
    "accumulate: 4": {"accumulate": 4},
    "ema_decay: 0.99": {"ema_decay": 0.99},
}


class Measured(NamedTuple):
    """One run: the fastest epoch after the first, since other work only ever takes away; the first,
    of which compiling is most; the memory that forward and backward pass of one batch hold, weights
    and data aside; and errors on the validation split, halfway and after the last epoch.
    """

    samples_per_s: float
    first_epoch_s: float
    step_mb: float
    nmae_halfway: float
    nmae: float


def main(out: Path, short: bool) -> None:
    """Print the table, write options.json."""
    with tempfile.TemporaryDirectory(prefix="bench-options-", ignore_cleanup_errors=True) as folder:
        dataset = publish_waves(f"{folder}/store/cylinder-flow", 301)
        compare(dataset, out, (42,) if short else (42, 43), 2 if short else 12)


def compare(dataset: str, out: Path, seeds: Sequence[int], epochs: int) -> None:
    """Train with every option from every seed, validated halfway and at the end on 32 windows."""
    # Read when the runs' processes load torch; see courant.training.ray_train.
    os.environ["OMP_WAIT_POLICY"] = "passive"
    measured: dict[str, list[Measured]] = {option: [] for option in OPTIONS}
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="bench-options-", ignore_cleanup_errors=True) as folder:
        # What was compiled before would hide what compiling costs.
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{folder}/compiled"
        for seed in seeds:
            for option, values in OPTIONS.items():
                experiment = get_recipe("cylinder-flow-demo").derive(
                    name="bench-options",
                    training={
                        "epochs": epochs,
                        "validate_every": max(1, epochs // 2),
                        "checkpoint_every": epochs,
                        "validation_windows": 32,
                        "seed": seed,
                        "optimiser": "adamw",
                        **values,
                    },
                )
                with ProcessPoolExecutor(1, mp_context=spawn) as pool:
                    content = experiment.model_dump_json()
                    measured[option].append(pool.submit(train, dataset, content, folder).result())
                print(f"seed {seed}, {option}: {measured[option][-1]}", file=sys.stderr, flush=True)
    rows: list[dict[str, Any]] = []
    for option, runs in measured.items():
        # Speeds are the best of the seeds, ratios are to the default; NMAE of each seed.
        speed = max(run.samples_per_s for run in runs)
        memory = statistics.median(run.step_mb for run in runs)
        row = {"option": option, "samples/s": speed, "first epoch, s": runs[0].first_epoch_s}
        default = rows[0] if rows else {"samples/s": speed, "MB": memory}
        row |= {"speed over the default's": speed / default["samples/s"], "MB": memory}
        row |= {"memory over the default's": memory / default["MB"]}
        for name in ("nmae_halfway", "nmae"):
            row[name] = " ".join(f"{getattr(run, name):.3f}" for run in runs)
        rows.append(row)
    publish(
        out,
        "options",
        rows,
        cores_of_the_machine=len(os.sched_getaffinity(0)),
        epochs=epochs,
        seeds=list(seeds),
        runs={option: [run._asdict() for run in runs] for option, runs in measured.items()},
    )


def train(dataset_url: str, content: str, runs: str) -> Measured:
    """The run of an experiment given as JSON."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    experiment, dataset = parse_experiment(content), simgen.open_dataset(dataset_url)
    run = RunDirectory(runs) / experiment.run_id(dataset.snapshot_id)
    fit(experiment, dataset, run)
    curve = read_records(run)
    validated = [each.validation_nmae for each in curve if each.validation_nmae is not None]
    return Measured(
        samples_per_s=max(record.samples_per_s for record in curve[1:]),
        first_epoch_s=curve[0].seconds,
        step_mb=step_bytes(Task.load(experiment, dataset, CPU)) / 1e6,
        nmae_halfway=validated[0],
        nmae=validated[-1],
    )


def step_bytes(task: Task) -> int:
    """Of the second step: the first one compiles, where asked to."""
    training = task.experiment.training
    bare = build(task.experiment.model)
    model = cast(nn.Module, torch.compile(bare)) if training.compile else bare
    batches = task.train.epoch(1)
    for _ in range(2):
        _, batch = next(batches)
        bare.zero_grad(set_to_none=True)
        held = peak_bytes(partial(backward, task, model, batch, training.accumulate), CPU)
    return held


if __name__ == "__main__":
    compare(sys.argv[1], Path(sys.argv[2]), [int(seed) for seed in sys.argv[3:]], epochs=12)
