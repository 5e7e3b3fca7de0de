"""What a run has left, what has to hold of it once a schedule's job is done, and the undisturbed
run that it is compared with. Each breach is a line.

    python -m bench.chaos.check DATASET RUNS      trains the campaign's experiment in one plain
                                                  process, evaluates it, and prints digests
"""

import contextlib
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import fsspec
import numpy as np
import torch

import simgen
from bench.chaos.attempt import Attempt, Watch, descendants
from bench.chaos.schedule import CASES, EPOCHS
from bench.chaos.site import Site
from courant.evaluation.evaluate import evaluate
from courant.experiment import Experiment
from courant.runs.directory import RunDirectory
from courant.runs.summary import list_runs
from courant.training.train import fit
from simgen.errors import SimgenError
from simgen.store.verify import verify
from tests.end_to_end.conftest import tiny_recipe
from tests.end_to_end.processes import command_line, listeners

#: For the last processes to go.
PATIENCE_S = 30.0
#: In the temporary folder, of a user and not of a run: folders that a killed worker of Prefect
#: leaves.
CACHES = re.compile(r"runner_storage$|prefect-workspace-attempt-|tmp\w+prefect$")
#: Kinds that end the command, and in how many seconds: 5 at most on two quiet cores.
ENDS_AT_ONCE, ENDS_S = {"Ctrl-C", "driver terminated"}, 15.0
ENDS_THE_DRIVER = {"driver killed", "driver terminated"}
#: Exit codes after signals, and the word of the last line.
ENDINGS = {130: "interrupted", 143: "terminated"}
#: The line of a command that failed; `prefect deployment run` has one of its own.
ERROR = re.compile(r"^\s*error: |^Flow run finished in state", re.MULTILINE)


@dataclass(frozen=True)
class Result:
    """What a finished job has left, without what may differ from one run to the next."""

    cases: dict[str, str]
    """Digest of the arrays of each accepted case"""
    splits: dict[str, str]
    weights: str
    evaluation: dict[str, Any]


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
    cases = {}
    for case in dataset:
        content = hashlib.sha256()
        for name, values in sorted(case.read().items()):
            content.update(f"{name} {values.dtype} {values.shape}".encode())
            content.update(np.ascontiguousarray(values).tobytes())
        cases[case.id] = content.hexdigest()
    return Result(cases, {case.id: case.split or "" for case in dataset}, *trained(run))


def trained(run: RunDirectory) -> tuple[str, dict[str, Any]]:
    """Digest of the weights, and what the evaluation has measured but for where, when and how
    fast.
    """
    evaluation = run.read_object("evaluation.json")
    figures = {name: evaluation[name] for name in ("overall", "by_component", "num_windows")}
    return hashlib.sha256(run.read_bytes("model.safetensors")).hexdigest(), figures


class References:
    """Results of undisturbed runs, kept in a folder, with the experiment."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "result.json"
        self.experiment = folder / "experiment.json"
        folder.mkdir(parents=True, exist_ok=True)
        self.experiment.write_text(chaos_experiment().model_dump_json())

    def write(self, result: Result) -> None:
        part = self.file.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(asdict(result)))
        part.replace(self.file)

    def read(self) -> Result:
        return Result(**json.loads(self.file.read_text()))

    def for_training_on(
        self, result: Result, dataset: str, environment: Mapping[str, str]
    ) -> Result:
        """The undisturbed result of the same cases in the same splits.

        A case that failed at first is published later, and its split is dealt out later. Where the
        splits are others than in the undisturbed run, the training is repeated without faults in
        one plain process; once for each way that splits fall.
        """
        plain = self.read()
        if plain.splits == result.splits:
            return plain
        content = json.dumps([result.cases, result.splits], sort_keys=True).encode()
        own = References(self.folder / hashlib.sha256(content).hexdigest()[:16])
        if not own.file.exists():
            done = subprocess.run(
                [sys.executable, "-m", "bench.chaos.check", dataset, str(own.folder / "runs")],
                env={**environment, "LD_PRELOAD": ""},
                capture_output=True,
                text=True,
                timeout=600,
            )
            if done.returncode:
                raise RuntimeError(f"the undisturbed training failed: {done.stderr[-2000:]}")
            weights, evaluation = json.loads(done.stdout.splitlines()[-1])
            own.write(Result(plain.cases, result.splits, weights, evaluation))
        return own.read()


@contextlib.contextmanager
def reading(site: Site) -> Iterator[None]:
    """This process reads what is behind the proxy as the commands do."""
    names = ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION")
    variables = {name: site.environment[name] for name in names if name in site.environment}
    with patch.dict(os.environ, variables):
        # A file system that was made for an earlier schedule has that one's proxy.
        fsspec.get_filesystem_class("s3").clear_instance_cache()
        yield


def is_complete(site: Site) -> bool:
    """Whether every design is accepted; a case that a fault made fail is to be asked for again."""
    with reading(site):
        return len(simgen.open_dataset(f"{site.base}/store/cylinder-flow")) == CASES


def check(
    site: Site, watch: Watch, attempts: list[Attempt], references: References, flows: set[str]
) -> list[str]:
    """All breaches; `flows` are the flow runs that had not ended before the schedule began."""
    breaches = [line for number, each in enumerate(attempts, 1) for line in _endings(number, each)]
    breaches += [
        f"solved again: case {case} was on record when a solver of it started"
        for case in watch.solved_again
    ]
    site.end_worker()
    breaches += _left_behind(site)
    if site.schedule.deployed:
        unfinished = site.servers.unfinished_flows(site.schedule.server) - flows
        breaches += [f"running for ever: flow run {flow}" for flow in sorted(unfinished)]
    if attempts[-1].code != 0:
        return [*breaches, f"not done: the last attempt ended with {attempts[-1].code}"]
    with reading(site):
        for looked_at in (_dataset(site, references), _runs(site)):
            try:
                breaches += looked_at
            except SimgenError as error:
                breaches.append(f"unreadable: {error}")
    return breaches


def _endings(number: int, attempt: Attempt) -> Iterator[str]:
    """A command ends in time, and prints how in a line, with the exit code that belongs to it."""
    struck = {fault.kind for fault, _ in attempt.struck}
    if not attempt.in_time:
        yield f"unbounded: attempt {number} had not ended in time"
    elif attempt.code > 0 and attempt.struck:
        kind, took = attempt.struck[-1][0].kind, attempt.took_to_end_s or 0.0
        if kind in ENDS_AT_ONCE and took > ENDS_S:
            yield f"unbounded: attempt {number} ended {took:.0f} s after {kind}"
    for terminal in attempt.terminals:
        code, printed = terminal.process.returncode, terminal.printed
        if "Traceback (most recent call last)" in printed:
            yield f"printed: attempt {number} printed a traceback"
        if code in ENDINGS and ENDINGS[code] not in terminal.last_line:
            yield f"printed: attempt {number} ended with {code}, last: {terminal.last_line}"
        if code > 0 and code not in ENDINGS and not ERROR.search(printed):
            yield f"printed: attempt {number} ended with {code} and no error line"
        if code < 0 and not struck & ENDS_THE_DRIVER:
            yield f"printed: attempt {number} died of signal {-code}"
    if struck == {"Ctrl-C"} and attempt.code not in (0, 130):
        yield f"printed: attempt {number} ended with {attempt.code} after Ctrl-C"


def _left_behind(site: Site) -> Iterator[str]:
    deadline = time.monotonic() + PATIENCE_S
    while (left := descendants(site.spared)) and time.monotonic() < deadline:
        time.sleep(0.2)
    for process in left:
        with contextlib.suppress(OSError):
            ports = sorted({listener.port for listener in listeners([process])})
            yield f"left behind: process {process} {command_line(process)} {ports or ''}".rstrip()
    for folder in filter(Path.exists, (site.scratch, site.temporary)):
        for path in sorted(folder.iterdir()):
            if not CACHES.match(path.name):
                yield f"left behind: {path}"


def _dataset(site: Site, references: References) -> Iterator[str]:
    url = f"{site.base}/store/cylinder-flow"
    dataset = simgen.open_dataset(url)
    for case, count in Counter(dataset.design.index).items():
        if count > 1:
            yield f"double: case {case} is {count} times in the design table"
    if len(dataset) != CASES:
        status = dataset.design["status"].to_dict()
        yield f"lost or incomplete: {len(dataset)} cases of {CASES} are accepted: {status}"
        return
    for finding in verify(dataset).findings:
        yield f"verify: {finding.case} {finding.place}: {finding.problem}"
    found, plain = read_result(site.base), references.read()
    if found.cases.keys() != plain.cases.keys():
        yield f"designs: {sorted(found.cases)} are not {sorted(plain.cases)}"
        return
    for case, content in plain.cases.items():
        if found.cases[case] != content:
            yield f"content: case {case} is not what an undisturbed run gives"
            return
    expected = references.for_training_on(found, url, site.environment)
    if found.weights != expected.weights:
        yield "weights: not those of an undisturbed training"
    elif found.evaluation != expected.evaluation:
        yield "evaluation: not that of an undisturbed run"


def _runs(site: Site) -> Iterator[str]:
    runs, unreadable = list_runs(f"{site.base}/runs")
    for damaged in unreadable:
        yield f"unreadable run: {damaged}"
    for run in runs:
        if run.state == "running":
            yield f"running for ever: {run.name} on {run.version}"


if __name__ == "__main__":
    url, runs = sys.argv[1:]
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    experiment, dataset = chaos_experiment(), simgen.open_dataset(url)
    run = RunDirectory(runs) / experiment.run_id(dataset.snapshot_id)
    fit(experiment, dataset, run)
    evaluate(run.url, split="test")
    print(json.dumps(trained(run)))
