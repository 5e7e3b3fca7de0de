"""What has to hold once a schedule's job is done; each breach is a line."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import fsspec

import simgen
from bench.chaos.attempt import Attempt
from bench.chaos.reference import References, Result, read_result
from bench.chaos.schedule import CASES
from bench.chaos.site import Site
from bench.chaos.watching import Watch, descendants
from courant.runs.summary import list_runs
from simgen.errors import SimgenError
from simgen.store.verify import verify
from tests.end_to_end.processes import command_line, listeners

#: For the last processes to go.
PATIENCE_S = 30.0
#: In the temporary folder, of a user and not of a run: folders that a killed worker of Prefect
#: leaves.
CACHES = re.compile(r"runner_storage$|prefect-workspace-attempt-|tmp\w+prefect$")
#: Kinds that end the command, and in how many seconds: 5 at most on two quiet cores.
ENDS_AT_ONCE, ENDS_S = {"Ctrl-C", "driver terminated"}, 15.0
#: The exit code after Ctrl-C.
INTERRUPTED = 130
TERMINATED = 143
ERROR = re.compile(r"^\s*error: ", re.MULTILINE)
ENDS_THE_DRIVER = {"driver killed", "driver terminated"}


@contextlib.contextmanager
def reading(site: Site) -> Iterator[None]:
    """This process reads what lies behind the proxy as the commands do."""
    names = ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION")
    variables = {name: site.environment[name] for name in names if name in site.environment}
    with patch.dict(os.environ, variables):
        # A file system that was made for an earlier schedule has that one's proxy.
        fsspec.get_filesystem_class("s3").clear_instance_cache()
        yield


def check(
    site: Site, watch: Watch, attempts: list[Attempt], references: References, flows: set[str]
) -> list[str]:
    """All breaches; `flows` are the flow runs that had not ended before the schedule began."""
    breaches = [*_in_time(attempts), *_told(attempts), *_once(watch)]
    site.end_worker()
    breaches += _nothing_left(site)
    if site.schedule.deployed:
        breaches += sorted(
            f"running for ever: flow run {flow}"
            for flow in site.servers.unfinished_flows(site.server) - flows
        )
    if attempts[-1].code != 0:
        return [*breaches, f"not done: the last attempt ended with {attempts[-1].code}"]
    with reading(site):
        for looked_at in (_dataset(site, references), _runs(site)):
            try:
                breaches += looked_at
            except SimgenError as error:
                breaches.append(f"unreadable: {error}")
    return breaches


def is_complete(site: Site) -> bool:
    """Whether every design is accepted; a case that a fault made fail is to be asked for again."""
    with reading(site):
        dataset = simgen.open_dataset(f"{site.base}/store/cylinder-flow")
        return len(dataset) == CASES


def _in_time(attempts: list[Attempt]) -> Iterator[str]:
    for number, attempt in enumerate(attempts, 1):
        if not attempt.in_time:
            yield f"unbounded: attempt {number} had not ended in time"
        elif attempt.code > 0 and attempt.struck:
            kind, took = attempt.struck[-1][0].kind, attempt.took_to_end_s or 0.0
            if kind in ENDS_AT_ONCE and took > ENDS_S:
                yield f"unbounded: attempt {number} ended {took:.0f} s after {kind}"


def _told(attempts: list[Attempt]) -> Iterator[str]:
    """How a command ended is told in a line, with the exit code that belongs to it."""
    for number, attempt in enumerate(attempts, 1):
        struck = {fault.kind for fault, _ in attempt.struck}
        for terminal in attempt.terminals:
            code, printed = terminal.process.returncode, terminal.printed
            if "Traceback (most recent call last)" in printed:
                yield f"told: attempt {number} printed a traceback"
            if code == INTERRUPTED and "interrupted" not in terminal.last_line:
                yield f"told: attempt {number} was interrupted, its last line: {terminal.last_line}"
            if code == TERMINATED and "terminated" not in terminal.last_line:
                yield f"told: attempt {number} was terminated, its last line: {terminal.last_line}"
            if code > 0 and code not in (INTERRUPTED, TERMINATED) and not ERROR.search(printed):
                yield f"told: attempt {number} ended with {code} and no error line"
            if code < 0 and not struck & ENDS_THE_DRIVER:
                yield f"told: attempt {number} died of signal {-code}"
        if struck == {"Ctrl-C"} and attempt.code not in (0, INTERRUPTED):
            yield f"told: attempt {number} ended with {attempt.code} after Ctrl-C"


def _once(watch: Watch) -> Iterator[str]:
    for case in watch.solved_again:
        yield f"solved again: case {case} was on record when a solver of it started"


def _dataset(site: Site, references: References) -> Iterator[str]:
    dataset = simgen.open_dataset(f"{site.base}/store/cylinder-flow")
    design = list(dataset.design.index)
    for case, count in Counter(design).items():
        if count > 1:
            yield f"double: case {case} is {count} times in the design table"
    if len(dataset) != CASES:
        status = dataset.design["status"].to_dict()
        yield f"lost or incomplete: {len(dataset)} cases of {CASES} are accepted: {status}"
        return
    for finding in verify(dataset).findings:
        yield f"verify: {finding.case} {finding.place}: {finding.problem}"
    yield from _differences(site, references, read_result(site.base))


def _differences(site: Site, references: References, found: Result) -> Iterator[str]:
    plain = references.read()
    if found.cases.keys() != plain.cases.keys():
        yield f"designs: {sorted(found.cases)} are not {sorted(plain.cases)}"
        return
    for case, content in plain.cases.items():
        if found.cases[case] != content:
            yield f"content: case {case} is not what an undisturbed run gives"
            return
    dataset = f"{site.base}/store/cylinder-flow"
    expected = references.for_training_on(found, dataset, site.environment)
    if found.weights != expected.weights:
        yield "weights: not those of an undisturbed training"
    elif found.evaluation != expected.evaluation:
        yield "evaluation: not that of an undisturbed run"


def _runs(site: Site) -> Iterator[str]:
    runs, unreadable = list_runs(f"{site.base}/runs")
    for damaged in unreadable:
        yield f"unreadable run: {damaged.reason}"
    for run in runs:
        if run.state == "running":
            yield f"running for ever: {run.name} on {run.version}"


def _nothing_left(site: Site) -> Iterator[str]:
    deadline = time.monotonic() + PATIENCE_S
    while (left := descendants(site.spared)) and time.monotonic() < deadline:
        time.sleep(0.2)
    for process in left:
        with contextlib.suppress(OSError):
            ports = sorted({listener.port for listener in listeners([process])})
            yield f"left behind: process {process} {command_line(process)} {ports or ''}".rstrip()
    for folder in (site.scratch, site.temporary):
        for path in _files(folder):
            yield f"left behind: {path}"


def _files(folder: Path) -> list[Path]:
    if not folder.exists():
        return []
    return sorted(path for path in folder.iterdir() if not CACHES.match(path.name))
