"""Training on Ray: what a second CPU worker brings, and how long steps wait for data that are
streamed from S3.

The model is the paper's (1.3 million parameters) with the small recipe's samples (512 points, 10
steps), on travelling waves: the content of a sample costs nothing, its size is that of a trial
case.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from courant.experiment import Experiment
from courant.recipes.cylinder_flow import cylinder_flow_small
from courant.runs.directory import RunDirectory
from courant.runs.record import EpochRecord, read_records
from simgen.case import CaseResult
from simgen.cases import get_family
from simgen.store.schema import Schema
from simgen.store.write import DatasetWriter
from tests.conftest import SeaweedFS
from tests.training.waves import design_point, travelling_wave

BAR_SPEEDUP, BAR_LOSS, BAR_WAIT = 1.6, 1e-3, 0.03
NUM_CASES = 10
BATCH = 32
"""Over all workers. A step has costs of its own beside those of its samples (about 60 ms, and 33 ms
a sample, on one core), which a second worker does not share: the small recipe's batches of 8 leave
it 1.7 at most, the paper's of 100 nearly 2.
"""
ROOT = Path(__file__).parents[1]


def main(out: Path, short: bool) -> None:
    """Print both tables, write training.json."""
    epochs, samples, frames = (3, 64, 151) if short else (6, 128, 301)
    with tempfile.TemporaryDirectory(prefix="bench-training-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        record = {
            "cores_of_the_machine": len(os.sched_getaffinity(0)),
            "workers": compare_workers(folder, epochs, samples, frames),
            "streaming": measure_waits(folder, epochs, samples, frames),
        }
    (out / "training.json").write_text(json.dumps(record, indent=2))


def compare_workers(folder: Path, epochs: int, samples: int, frames: int) -> dict[str, object]:
    """One worker on one core beside two workers on two, with the same global batch."""
    dataset = publish(f"{folder}/store/cylinder-flow", frames)
    records = {
        workers: run(
            folder, dataset, recipe(epochs, samples, workers=workers), cores=workers, environment={}
        )
        for workers in (1, 2)
    }
    # The first epoch warms up. Of the others the fastest counts: other work on the machine only
    # ever takes away.
    speed = {
        workers: max(epoch.samples_per_s for epoch in curve[1:])
        for workers, curve in records.items()
    }
    apart = max(
        abs(one.train_loss - two.train_loss) for one, two in zip(*records.values(), strict=True)
    )
    table = Table(
        "workers",
        "cores",
        "samples/s",
        "speed-up",
        "loss of the last epoch",
        title=f"CPU workers, global batch {BATCH}",
    )
    for workers, curve in records.items():
        table.add_row(
            str(workers),
            str(workers),
            f"{speed[workers]:.2f}",
            f"{speed[workers] / speed[1]:.2f}",
            f"{curve[-1].train_loss:.5f}",
        )
    console = Console()
    console.print(table)
    console.print(
        f"speed-up {speed[2] / speed[1]:.2f} (bar {BAR_SPEEDUP}), losses at most {apart:.1e} apart"
        f" (bar {BAR_LOSS:.0e})"
    )
    return {
        "samples_per_s": speed,
        "speedup": speed[2] / speed[1],
        "speedup_bar": BAR_SPEEDUP,
        "losses": {
            workers: [epoch.train_loss for epoch in curve] for workers, curve in records.items()
        },
        "losses_apart": apart,
        "losses_bar": BAR_LOSS,
    }


def measure_waits(folder: Path, epochs: int, samples: int, frames: int) -> dict[str, object]:
    """One worker on all cores; the split lies on S3, and nothing of it in the cache when the run
    begins.
    """
    server = SeaweedFS(folder / "s3")
    server.folder.mkdir()
    before = dict(os.environ)
    try:
        started = server.start()
        os.environ.update(started.environment)
        dataset = publish(f"{started.url}/store/cylinder-flow", frames)
        streamed = recipe(epochs, samples, workers=1).derive(
            data={"resident_gb": 0.0, "cache_folder": str(folder / "cache")}
        )
        cores = len(os.sched_getaffinity(0))
        curve = run(folder, dataset, streamed, cores=cores, environment=started.environment)
    finally:
        os.environ.clear()
        os.environ.update(before)
        server.stop()
    waits = [epoch.data_wait_share or 0.0 for epoch in curve]
    seconds = [epoch.seconds for epoch in curve]
    share = sum(wait * length for wait, length in zip(waits, seconds, strict=True)) / sum(seconds)
    table = Table(
        "epoch",
        "seconds",
        "samples/s",
        "waiting for data",
        title="Streamed from S3 on loopback, cold cache",
    )
    for epoch, wait in zip(curve, waits, strict=True):
        table.add_row(
            str(epoch.epoch), f"{epoch.seconds:.1f}", f"{epoch.samples_per_s:.2f}", f"{wait:.2%}"
        )
    console = Console()
    console.print(table)
    console.print(f"waiting for data {share:.2%} of the run (bar {BAR_WAIT:.0%})")
    return {"share": share, "share_bar": BAR_WAIT, "share_of_each_epoch": waits, "seconds": seconds}


def recipe(epochs: int, samples: int, workers: int) -> Experiment:
    return cylinder_flow_small().derive(
        name=f"bench-{workers}",
        data={"start_s": 0.0},
        training={
            "epochs": epochs,
            "samples_per_epoch": samples,
            "batch_size": BATCH,
            "workers": workers,
            "warmup_steps": 4,
            "validate_every": epochs,
            "validation_windows": 2,
            "checkpoint_every": epochs,
        },
    )


def run(
    folder: Path, dataset: str, experiment: Experiment, cores: int, environment: dict[str, str]
) -> list[EpochRecord]:
    """The epochs of a run in a process of its own."""
    file = folder / f"{experiment.name}.json"
    file.write_text(experiment.model_dump_json())
    command = [
        sys.executable,
        "-m",
        "bench.train_once",
        dataset,
        str(folder / f"runs-{cores}"),
        str(file),
        str(cores),
    ]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return read_records(RunDirectory(done.stdout.split()[-1]))


def publish(url: str, frames: int) -> str:
    """Ten cases of 2,000 points, a snapshot a second."""
    writer = DatasetWriter.open(url, Schema.of(get_family("cylinder-flow")))
    fork = writer.fork()
    for number in range(NUM_CASES):
        cloud = travelling_wave(2000, speed=0.2 + 0.1 * number, seed=number, num_frames=frames)
        fork.write(
            CaseResult(
                design_point(number, frames), "accepted", provenance={"wall_time_s": {"solve": 1.0}}
            ),
            cloud,
        )
    writer.commit([fork])
    writer.publish("waves")
    return url
