"""Write and read a run's record, and find out whether a process is training it.

experiment.json, dataset.json and normaliser.json are all that a predictor needs beside the weights.
metrics.jsonl has a line for each epoch, status.json the state. It stays `running` after a kill -9:
the first worker writes heartbeat.json, and a run whose worker is gone is *interrupted*.
"""

from __future__ import annotations

import json
import math
import os
import platform
import posixpath
import shlex
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pydantic
from filelock import FileLock
from fsspec.implementations.local import LocalFileSystem
from pydantic import Field, FiniteFloat, StringConstraints

from courant.experiment import Experiment
from courant.runs.directory import RunDirectory, absolute_url
from courant.runs.weights import WEIGHTS
from simgen.errors import InputError, SimgenError, StoreError
from simgen.machine import start_of
from simgen.provenance import DISTRIBUTION, source_revision
from simgen.whole_file import not_there

if TYPE_CHECKING:
    import torch

    from courant.data.normalisation import Normaliser
    from simgen.store.read import Dataset

EXPERIMENT, DATASET, NORMALISER = "experiment.json", "dataset.json", "normaliser.json"
ENVIRONMENT, METRICS, STATUS = "environment.json", "metrics.jsonl", "status.json"
HEARTBEAT = "heartbeat.json"
# Of what is calibrated after the training: `courant.prediction` has their contents.
MONITOR, BANDS, ANSWERS = "monitor.json", "bands.json", "answers.json"
MOST_NAMED = 5  # Runs of a folder that are named
State = Literal["running", "finished", "failed", "stopped"]
EVERY_S = 60.0  # between two heartbeats
ENDING_S = 15.0  # in which a process that was interrupted has ended
SILENT = timedelta(minutes=5)  # after which a worker on another machine is considered gone
PACKAGES = ("torch", "numpy", "ray", "zarr", "icechunk", DISTRIBUTION)


@dataclass(frozen=True)
class EpochRecord:
    """One epoch: losses in standardised space, NMAE in physical units; None if not validated."""

    epoch: int  # Number of the epoch, from 1
    epochs: int
    train_loss: float
    validation_loss: float | None
    validation_nmae: float | None
    """Mean absolute error over mean absolute value, over all validation windows, points, steps"""
    learning_rate: float
    seconds: float  # Time of training, without validation and checkpoint
    samples_per_s: float
    eta_s: float  # Estimated time for the remaining epochs, with validation and checkpoints
    data_wait_share: float
    """Share of the training time spent waiting for the next batch (first worker)"""
    processor_s: float
    """CPU seconds of the first worker's threads; on a GPU the time for which it was held"""
    flops_per_s: float | None = None
    """Floating-point operations of all workers together, forward and backward"""
    peak_memory_gb: float | None = None
    """Peak memory of the first worker so far: on the GPU, or of the whole process on a CPU"""
    skipped_batches: int = 0  # Number of batches left out because loss or gradient was not finite

    def line(self) -> str:
        """Format a line for a log, such as `epoch 12/60  loss 0.2310  NMAE 0.183 ...`."""
        parts = [f"epoch {self.epoch}/{self.epochs}", f"loss {self.train_loss:.4f}"]
        if self.validation_loss is not None and self.validation_nmae is not None:
            parts += [f"validation {self.validation_loss:.4f}", f"NMAE {self.validation_nmae:.3f}"]
        minutes, seconds = divmod(round(self.eta_s), 60)
        speed = f"{self.samples_per_s:.{0 if self.samples_per_s >= 10 else 2}f} samples/s"
        parts += [f"lr {self.learning_rate:.1e}", speed, f"{minutes} min {seconds:02d} s left"]
        if self.skipped_batches:
            parts.append(f"{self.skipped_batches} batches skipped")
        return "  ".join(parts)


_EPOCH = pydantic.TypeAdapter(EpochRecord)


def read_records(run: RunDirectory) -> list[EpochRecord]:
    """Read the run's epochs so far, in order; empty before the first."""
    if not run.exists(METRICS):
        return []
    try:
        return [_EPOCH.validate_json(line) for line in run.read_bytes(METRICS).splitlines()]
    except ValueError as error:
        raise StoreError(f"{run.url}/{METRICS} is damaged; remove it and train again") from error


def write_records(run: RunDirectory, records: Sequence[EpochRecord]) -> None:
    """Replace the run's epochs: the file is small, and complete at every moment."""
    lines = "".join(json.dumps(asdict(record)) + "\n" for record in records)
    run.write_bytes(METRICS, lines.encode())


def best_record(records: Sequence[EpochRecord]) -> EpochRecord | None:
    """Return the epoch whose weights a run keeps; None before the first finite validation."""
    losses = [(each.validation_loss, each) for each in records if each.validation_loss is not None]
    finite = [pair for pair in losses if math.isfinite(pair[0])]
    return min(finite, key=lambda pair: pair[0])[1] if finite else None


class _Record(pydantic.BaseModel):
    """Part of a run's record; further entries are ignored."""

    model_config = pydantic.ConfigDict(extra="ignore", frozen=True)


class RunStatus(_Record):
    """The recorded state of a run; all but the state and the reason are those of a finished one."""

    state: State
    reason: str = ""
    best_epoch: int | None = None  # The epoch whose weights are kept
    seconds: dict[str, float] = {}
    """Time spent by part of the run: load, train, validation, checkpoint"""
    different_samples: int | None = None  # Number of training samples that the split has


def write_status(run: RunDirectory, state: State, **details: Any) -> None:
    """Write status.json: the run's state, and details of that state."""
    run.write_json(STATUS, {"state": state, **details})


def read_status(run: RunDirectory) -> RunStatus:
    """Read status.json; StoreError where it is none."""
    return run.read_record(STATUS, RunStatus, "remove it and train again to go on")


def is_finished(run: RunDirectory) -> bool:
    return run.exists(STATUS) and read_status(run).state == "finished"


def environment(device: torch.device, workers: int) -> dict[str, Any]:
    """Describe where the run takes place, for its record."""
    import torch  # takes seconds, which those who read records need not wait for

    is_gpu = device.type == "cuda"
    processor = platform.processor() or platform.machine()
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {each.name: each.version for each in distributions() if each.name in PACKAGES},
        "source_revision": source_revision(),
        "device": torch.cuda.get_device_name(device) if is_gpu else processor,
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "workers": workers,
        "host": platform.node(),
        "process": os.getpid(),
    }


def find_run(url: str | Path) -> RunDirectory:
    """Return the run at a URL, the only one in it or its runs/, or of a name that begins so.

    InputError where there are several, with their names.
    """
    run = RunDirectory(url)
    if run.exists(EXPERIMENT):
        return run
    above, _, beginning = run.url.rpartition("/")
    for folder, start in ((run, ""), (run / "runs", ""), (RunDirectory(above or "/"), beginning)):
        names = [name for name in folder.names() if name.startswith(start)]
        found = [name for name in names if (folder / name).exists(EXPERIMENT)]
        if len(found) > 1:
            more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
            raise InputError(
                f"{run.url} is the place of several runs; give one:"
                f" {', '.join(found[:MOST_NAMED])}{more}"
            )
        if found:
            return folder / found[0]
    return run


def check_trained(run: RunDirectory, has_weights: bool = True) -> None:
    """Raise InputError if there is no run or, with `has_weights`, one that has none yet."""
    if not run.exists(EXPERIMENT):
        if run.exists("refs"):
            raise InputError(f"{run.url} is a dataset, no run: courant train {run.url} makes one")
        raise InputError(
            not_there(run.url)
            or f"{run.url} has no {EXPERIMENT}; give the folder of a run, <runs>/<name>-<hash>"
        )
    if has_weights and not run.exists(WEIGHTS):
        raise InputError(
            f"{run.url} has no {WEIGHTS}: it has not come to its first validation yet; train it"
            " further with the same command"
        )


def warn_of_unfinished(run: RunDirectory, epochs: int) -> None:
    state = run_state(run) if run.exists(STATUS) else "finished"
    if state != "finished":
        done = max((record.epoch for record in read_records(run)), default=0)
        text = f"{run.url} is {state} after epoch {done} of {epochs}; its best weights are used"
        warnings.warn(text, stacklevel=3)


class InUseError(InputError):
    """A run, or a search, that another process is at work on."""


def run_state(run: RunDirectory) -> str:
    """Return the state: recorded, `waiting` for a first worker, or `interrupted` without any."""
    if not run.exists(STATUS):
        return "waiting"
    state = read_status(run).state
    if state != "running":
        return state
    beat = _read_heartbeat(run)
    is_alive = _is_process(beat)
    if is_alive is None:
        with suppress(ValueError, TypeError):
            is_alive = datetime.now(UTC) - datetime.fromisoformat(str(beat.get("seen"))) < SILENT
    return "running" if is_alive else "interrupted"


@contextmanager
def heartbeat(run: RunDirectory) -> Iterator[None]:
    """Write a heartbeat every minute while the body runs; InUseError as `check_unused`."""

    def write() -> None:
        beat = {
            "host": platform.node(),
            "process": os.getpid(),
            "process_started": start_of(os.getpid()),
            "seen": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        run.write_json(HEARTBEAT, beat)

    is_local, folder = isinstance(run.filesystem, LocalFileSystem), Path(run.path(""))
    if is_local:
        folder.mkdir(parents=True, exist_ok=True)
    # Of two that start at the same moment neither would find the other's heartbeat.
    with FileLock(folder / "heartbeat.lock") if is_local else nullcontext() as lock:
        try:
            check_unused(run)
            write()
        finally:
            if lock is not None:  # those that wait for a removed file make it anew
                Path(lock.lock_file).unlink(missing_ok=True)
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(EVERY_S):
            # A store that is briefly unreachable is no reason to stop training.
            with suppress(SimgenError):
                write()

    beating = threading.Thread(target=beat, name="heartbeat", daemon=True)
    beating.start()
    try:
        yield
    finally:
        ended.set()
        beating.join()
        with suppress(SimgenError):
            run.remove(HEARTBEAT)


def check_unused(run: RunDirectory, ending_s: float = ENDING_S) -> None:
    """Raise InUseError unless the process of this machine at work on the run ends in that time."""
    until = time.monotonic() + ending_s
    while True:
        beat = _read_heartbeat(run)
        if beat.get("process") == os.getpid() or not _is_process(beat):
            return
        if time.monotonic() > until:
            raise InUseError(
                f"{run.url} is in use by process {beat['process']} of this machine; wait"
                " for it, or end it"
            )
        time.sleep(0.2)


def _read_heartbeat(run: RunDirectory) -> dict[str, Any]:
    try:
        return run.read_object(HEARTBEAT) if run.exists(HEARTBEAT) else {}
    except StoreError:
        return {}


def _is_process(beat: dict[str, Any]) -> bool | None:
    """Whether it is a live process of this machine's; None for others, and outside of Linux."""
    process, started = beat.get("process"), beat.get("process_started")
    if beat.get("host") != platform.node() or not isinstance(process, int) or started is None:
        return None
    return start_of(process) == started


# No control characters, which a terminal would take for commands.
_Text = Annotated[str, StringConstraints(max_length=1000, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]
_Url = Annotated[
    str,
    StringConstraints(max_length=1000, pattern=r"^(s3://|file://|/|[A-Z]:)[^\x00-\x1f\x7f-\x9f]+$"),
]
_Name = Annotated[str, StringConstraints(max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]


class _ParameterRecord(_Record):
    name: _Name
    unit: _Text
    low: FiniteFloat
    high: FiniteFloat
    description: _Text = ""


class _DatasetRecord(_Record):
    url: _Url
    relative: _Text | None  # The place as seen from the run; None where they share no folder
    version: _Name
    snapshot_id: _Text
    family: _Name
    parameters: list[_ParameterRecord] = Field(max_length=1000)
    settings: Annotated[dict[_Name, FiniteFloat], Field(max_length=1000)]
    """Solver settings of its first case, by which further designs are meshed"""
    family_revision: int  # Of the family's mesher and solver
    quantities: list[dict[_Name, _Text]] = Field(max_length=1000)  # Name, unit and meaning of each


def describe_run(
    run: RunDirectory, experiment: Experiment, dataset: Dataset, normaliser: Normaliser
) -> None:
    """Write experiment.json, dataset.json and normaliser.json."""
    run.write_json(EXPERIMENT, experiment.model_dump(mode="json"))
    run.write_json(NORMALISER, normaliser.to_json())
    schema, url = dataset.schema, absolute_url(dataset.url)
    (root, path), (run_root, run_path) = _split(url), _split(run.url)
    # One folder or bucket that holds both.
    is_shared = root == run_root and (root or posixpath.commonpath([path, run_path]) != "/")
    description = {
        "url": url,
        "relative": posixpath.relpath(path, run_path) if is_shared else None,
        "version": dataset.version,
        "snapshot_id": dataset.snapshot_id,
        "family": schema.family,
        "parameters": [asdict(parameter) for parameter in schema.parameters],
        "settings": dataset[0].settings,
        "family_revision": schema.family_revision,
        "quantities": [asdict(quantity) for quantity in schema.quantities],
    }
    run.write_json(DATASET, description)


def read_dataset_record(run: RunDirectory) -> dict[str, Any]:
    """Read dataset.json, with the keys of `_DatasetRecord`; StoreError where it is invalid."""
    return run.read_record(DATASET, _DatasetRecord).model_dump()


def predict_command(run: RunDirectory, name: str, dataset: Dataset | None) -> str:
    """Return the command that predicts the middle of the design space; empty where none does."""
    if dataset is not None and dataset.schema.source:
        sizes = {dataset.records[case].get("num_points") for case in dataset.cases()}
        if len(sizes) > 1 or any(of.changes_mesh for of in dataset.schema.parameters):
            return ""  # nothing meshes designs of cases that were imported on several meshes
    out = name + (".pvd" if "step_s" in run.read_object(EXPERIMENT)["data"] else ".vtu")
    space = read_dataset_record(run)["parameters"]
    design = ",".join(f"{of['name']}={(of['low'] + of['high']) / 2:g}" for of in space)
    return design and f"courant predict {shlex.quote(run.url)} --design {design} --out {out}"


def open_recorded(run_url: str, record: Mapping[str, Any], place: str | None = None) -> Dataset:
    """Open the dataset version of a run's record, at `place` or else where the record points.

    InputError where another version lies there, and where it is found nowhere; StoreError where a
    store cannot be read.
    """
    from simgen import open_dataset  # takes a while, which a prediction from a mesh need not wait

    places = [record["url"]] if place is None else [absolute_url(place)]
    if place is None and record["relative"] is not None:
        root, path = _split(run_url)
        places.insert(0, root + posixpath.normpath(posixpath.join(path, record["relative"])))
    failures: list[SimgenError] = []
    for url in dict.fromkeys(places):
        try:
            dataset = open_dataset(url, record["version"])
            if dataset.snapshot_id == record["snapshot_id"]:
                return dataset
            raise InputError(
                f"{url}: its {record['version']} is not the one that {run_url} was trained on"
                f" (snapshot {dataset.snapshot_id} in place of {record['snapshot_id']})"
            )
        except SimgenError as error:
            failures.append(error)
    # A store that cannot be read is worse than one that is gone, and has a way out of its own.
    failures.sort(key=lambda failure: isinstance(failure, InputError))
    if place is not None or not isinstance(failures[0], InputError):
        raise failures[0]
    raise InputError(
        f"{failures[-1]}; {run_url} was trained on {record['family']} {record['version']}: if that"
        " lies elsewhere now, name its place with --dataset URL (in Python: open_dataset(URL))"
    ) from failures[-1]


def _split(url: str) -> tuple[str, str]:
    """Split s3://bucket/prefix into s3://bucket and /prefix; a local path has no root."""
    if "://" not in url:
        return "", url
    scheme, _, rest = url.partition("://")
    bucket, _, path = rest.partition("/")
    return f"{scheme}://{bucket}", f"/{path}"
