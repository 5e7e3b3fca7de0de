"""Training on Ray: what a second CPU worker brings, and how long steps wait for data that are
streamed from S3.

The model is the paper's (1.3 million parameters) with the small recipe's samples (512 points, 10
steps), on travelling waves: the content of a sample costs nothing, its size is that of a trial
case.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.report import publish, show
from bench.synthetic_cases import publish_cases
from courant.experiment import Experiment
from courant.recipes import get_recipe
from courant.runs.directory import RunDirectory
from courant.runs.record import EpochRecord, read_records
from simgen.case import CaseResult
from simgen.cases import get_family
from simgen.point_cloud import PointCloud
from simgen.store.schema import Schema
from tests.conftest import SeaweedFS
from tests.world import design_point, travelling_wave

BAR_SPEEDUP, BAR_LOSS, BAR_WAIT = 1.6, 1e-3, 0.03
NUM_CASES = 10
BATCH = 32
"""Over all workers. A step has costs of its own beside those of its samples (about 60 ms, and 33 ms
a sample, on one core), which a second worker does not share: the small recipe's batches of 8 leave
it 1.7 at most, the paper's of 100 nearly 2.
"""
TRAIN = """
import sys
from courant.experiment import parse_experiment
from courant.training.workers import train
print(train(parse_experiment(open(sys.argv[3]).read()), sys.argv[1], None, sys.argv[2]))
"""


def main(out: Path, short: bool) -> None:
    """Print both tables, write training.json."""
    epochs, samples, frames = (3, 64, 151) if short else (6, 128, 301)
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="bench-training-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        dataset = publish_waves(f"{folder}/store/cylinder-flow", frames)
        curves = {
            workers: train(folder, dataset, recipe(epochs, samples, workers), workers)
            for workers in (1, 2)
        }
        streamed = streamed_curve(folder, recipe(epochs, samples, workers=1), frames, cores)
    # The first epoch warms up. Of the others the fastest counts: other work on the machine only
    # ever takes away.
    speed = {n: max(epoch.samples_per_s for epoch in curve[1:]) for n, curve in curves.items()}
    pairs = zip(*curves.values(), strict=True)
    rows = [
        {
            "workers, each with a core": workers,
            "samples/s": speed[workers],
            "speed-up": speed[workers] / speed[1],
            "loss of the last epoch": curve[-1].train_loss,
        }
        for workers, curve in curves.items()
    ]
    waits = [
        {
            "epoch": epoch.epoch,
            "seconds": epoch.seconds,
            "samples/s": epoch.samples_per_s,
            "share of waiting for data": epoch.data_wait_share or 0.0,
        }
        for epoch in streamed
    ]
    waited = sum((epoch.data_wait_share or 0.0) * epoch.seconds for epoch in streamed)
    show(waits, "Streamed from S3 on loopback, cold cache")
    publish(
        out,
        "training",
        rows,
        f"CPU workers, global batch {BATCH}",
        streaming=waits,
        cores_of_the_machine=cores,
        speedup=speed[2] / speed[1],
        bar_for_the_speedup=BAR_SPEEDUP,
        losses_apart=max(abs(one.train_loss - two.train_loss) for one, two in pairs),
        bar_for_losses_apart=BAR_LOSS,
        share_of_waiting=waited / sum(epoch.seconds for epoch in streamed),
        bar_for_the_share=BAR_WAIT,
    )


def streamed_curve(
    folder: Path, experiment: Experiment, frames: int, cores: int
) -> list[EpochRecord]:
    """One worker on all cores; the split is on S3, and nothing of it in the cache at the start."""
    server = SeaweedFS(folder / "s3")
    server.folder.mkdir()
    before = dict(os.environ)
    try:
        started = server.start()
        os.environ.update(started.environment)
        dataset = publish_waves(f"{started.url}/store/cylinder-flow", frames)
        data = {"resident_gb": 0.0, "cache_folder": str(folder / "cache")}
        return train(folder, dataset, experiment.derive(name="streamed", data=data), cores)
    finally:
        os.environ.clear()
        os.environ.update(before)
        server.stop()


def recipe(epochs: int, samples: int, workers: int) -> Experiment:
    return get_recipe("cylinder-flow-small").derive(
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


def train(folder: Path, dataset: str, experiment: Experiment, cores: int) -> list[EpochRecord]:
    """The epochs of a run in a process of its own, which stays on so many cores with all that it
    starts.
    """
    file = folder / f"{experiment.name}.json"
    file.write_text(experiment.model_dump_json())
    usable = sorted(os.sched_getaffinity(0))[:cores]
    done = subprocess.run(
        [sys.executable, "-c", TRAIN, dataset, f"{folder}/runs-{experiment.name}", str(file)],
        capture_output=True,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, usable),
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return read_records(RunDirectory(done.stdout.split()[-1]))


def publish_waves(url: str, frames: int) -> str:
    """Ten cases of 2,000 points, a snapshot a second."""

    def case(number: int) -> tuple[CaseResult, PointCloud]:
        provenance = {"wall_time_s": {"solve": 1.0}}
        result = CaseResult(design_point(number, frames), "accepted", provenance=provenance)
        return result, travelling_wave(2000, 0.2 + 0.1 * number, seed=number, num_frames=frames)

    schema = Schema.of(get_family("cylinder-flow"))
    return publish_cases(url, schema, map(case, range(NUM_CASES)), "waves")
