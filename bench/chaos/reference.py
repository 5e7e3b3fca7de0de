"""The undisturbed run that every schedule is compared with, and digests of what a run has left."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import simgen
from bench.chaos.schedule import EPOCHS
from courant.experiment import Experiment
from courant.runs.directory import RunDirectory
from simgen.store.read import Dataset
from tests.end_to_end.tiny import tiny_recipe

EXPERIMENT = "experiment.json"


@dataclass(frozen=True)
class Result:
    """What a finished job has left, without what may differ from one run to the next."""

    cases: dict[str, str]
    """Digest of the arrays of each accepted case"""
    splits: dict[str, str]
    weights: str
    evaluation: dict[str, Any]

    @property
    def trained_on(self) -> str:
        """What decides the weights: cases and splits."""
        return digest(json.dumps([self.cases, self.splits], sort_keys=True).encode())


def chaos_experiment() -> Experiment:
    """The tests' tiny recipe with more samples, and more points at which it can be struck."""
    return tiny_recipe(EPOCHS).derive(
        name="chaos",
        data={"stride_s": 2.0},
        training={"samples_per_epoch": 96, "validate_every": 1, "checkpoint_every": 2},
    )


def read_result(base: str) -> Result:
    """Of the newest version of the dataset under `base`, and the run that was trained on it."""
    dataset = simgen.open_dataset(f"{base}/store/cylinder-flow")
    run = RunDirectory(f"{base}/runs") / chaos_experiment().run_id(dataset.snapshot_id)
    return Result(
        {case.id: _content(dataset, case.id) for case in dataset},
        {case.id: case.split or "" for case in dataset},
        digest(run.read_bytes("model.safetensors")),
        figures(run),
    )


def figures(run: RunDirectory) -> dict[str, Any]:
    """What an evaluation has measured, without where, when and how fast."""
    evaluation = run.read_object("evaluation.json")
    return {name: evaluation[name] for name in ("overall", "by_component", "num_windows")}


def _content(dataset: Dataset, case: str) -> str:
    """Over the bytes of all arrays of a case."""
    found = hashlib.sha256()
    for name, values in sorted(dataset[case].read().items()):
        found.update(f"{name} {values.dtype} {values.shape}".encode())
        found.update(np.ascontiguousarray(values).tobytes())
    return found.hexdigest()


def digest(content: bytes) -> str:
    """As hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True)
class References:
    """Results of undisturbed runs, kept in a folder."""

    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / "result.json"

    @property
    def experiment(self) -> Path:
        return self.folder / EXPERIMENT

    def write_experiment(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.experiment.write_text(chaos_experiment().model_dump_json())

    def write(self, result: Result) -> None:
        self.file.write_text(json.dumps(asdict(result)))

    def read(self) -> Result:
        return Result(**json.loads(self.file.read_text()))

    def for_training_on(
        self, result: Result, dataset: str, environment: Mapping[str, str]
    ) -> Result:
        """The undisturbed result of the same cases in the same splits.

        A case that failed at first is published later, and its split is dealt out later. Where the
        splits are others than in the undisturbed run, the training is repeated without Ray and
        without faults; once for each way that splits fall.
        """
        plain = self.read()
        if plain.splits == result.splits:
            return plain
        folder = self.folder / result.trained_on[:16]
        if not (folder / "result.json").exists():
            weights, evaluation = _train_alone(dataset, folder, environment)
            found = Result(plain.cases, result.splits, weights, evaluation)
            part = folder / "result.part"
            part.write_text(json.dumps(asdict(found)))
            part.replace(folder / "result.json")
        return Result(**json.loads((folder / "result.json").read_text()))


def _train_alone(
    dataset: str, folder: Path, environment: Mapping[str, str]
) -> tuple[str, dict[str, Any]]:
    """Weights and figures of a training in one plain process."""
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "bench.chaos.train_alone", dataset, str(folder / "runs")],
        env={**environment, "LD_PRELOAD": ""}, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"the undisturbed training failed: {done.stderr[-2000:]}")
    told = json.loads(done.stdout.splitlines()[-1])
    return told["weights"], told["evaluation"]
