"""A place with a dataset that is being solved, trainings and a sweep, made of their own records."""

from dataclasses import replace
from pathlib import Path

import pytest

from courant.runs.directory import RunDirectory
from courant.runs.record import HEARTBEAT, EpochRecord, write_records, write_status
from flows.settings import Settings, load_settings
from flows.terminal import write_progress
from simgen.case import Progress
from simgen.store.write import DatasetWriter
from tests.store.conftest import SCHEMA, make_cloud, make_result, record


def solve_some(store: str, num_cases: int = 2, num_left: int = 6) -> str:
    """A dataset with so many cases on record and so many on their way; its URL."""
    writer = DatasetWriter.open(f"{store}/cylinder-flow", SCHEMA)
    for number in range(num_cases):
        left = num_left + num_cases - 1 - number
        record(writer, make_result(number), make_cloud(number), left)
    return writer.url


def make_run(run: RunDirectory, state: str, epochs: int, nmae: float = 0.25) -> None:
    """A run as its first worker leaves it after so many of eight epochs."""
    run.write_json("experiment.json", {"name": "demo", "training": {"epochs": 8}})
    run.write_json("dataset.json", {"url": "store/cylinder-flow"})
    records = [
        EpochRecord(
            epoch=epoch,
            epochs=8,
            train_loss=0.5,
            validation_loss=1 / epoch,
            validation_nmae=nmae,
            learning_rate=1e-3,
            seconds=2.0,
            samples_per_s=100.0,
            eta_s=40.0,
            data_wait_share=0.125,
            processor_s=2.0,
        )
        for epoch in range(1, epochs + 1)
    ]
    write_records(run, records)
    write_status(run, "running" if state == "interrupted" else state, best_epoch=epochs)
    if state == "running":
        run.write_json(HEARTBEAT, {"host": "elsewhere", "seen": "2999-01-01T00:00:00+00:00"})


@pytest.fixture
def places(tmp_path: Path) -> Settings:
    store, runs = tmp_path / "store", RunDirectory(tmp_path / "runs")
    solve_some(str(store))
    make_run(runs / "demo-0123456789", "running", 3)
    make_run(runs / "demo-9876543210", "interrupted", 1)
    make_run(runs / "demo-1111111111", "finished", 8)
    sweep = runs / "demo-anchors-0123456789"
    make_run(sweep / "trials" / "one", "finished", 8, nmae=0.125)
    make_run(sweep / "trials" / "two", "running", 2)
    sweep.write_json("trials.json", [{}, {}, {}])
    scratch = tmp_path / "scratch"
    for case in ("aaaa00000001", "bbbb00000002"):
        (scratch / case).mkdir(parents=True)
        write_progress(Progress(case, "solving", 0.5, "t = 30 of 60 s", 12.0), scratch / case)
    return replace(load_settings(), store=str(store), runs=runs.url, scratch=str(scratch))
