"""How soon commands answer: what is done already, what cannot be done, and the first progress.

Each command is a process of its own in a terminal, as a person starts it, with its own store and
scratch folder. Beside the seconds of wall time, which other work on the machine prolongs, stand the
core-seconds of the command and all processes below it.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.core_seconds import Tree
from courant.runs.directory import RunDirectory
from courant.runs.record import read_records
from tests.end_to_end.conftest import BIN
from tests.end_to_end.terminal import Terminal, in_a_terminal
from tests.end_to_end.tiny import tiny_recipe

#: Seconds of flow on a coarse mesh: little to solve, all the rest as ever.
COARSE = ("--set", "end_time=12", "--set", "mesh_size=2")
CASES, MANY_CASES = 4, 10_000
LOOK_S = 0.1
LIMIT_S = 900.0
SOLVER = "icoFoam"


@dataclass(frozen=True)
class Start:
    """One row of the table; the aim is for the wall time."""

    name: str
    wall_s: float
    core_s: float
    aim_s: float


def main(out: Path, short: bool) -> None:
    """Print the table, write starts.json."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        starts = _measure(Path(folder), 100 if short else MANY_CASES)
    (out / "starts.json").write_text(json.dumps([asdict(each) for each in starts], indent=2))
    table = Table("", "seconds", "aim", "core-seconds", title="Starts of commands")
    for each in starts:
        table.add_row(each.name, f"{each.wall_s:.1f}", f"{each.aim_s:g}", f"{each.core_s:.1f}")
    Console().print(table)


def _measure(folder: Path, many: int) -> list[Start]:
    environment = {**os.environ, "COURANT_SCRATCH": f"{folder}/scratch"}
    place, experiment = f"{folder}/out", folder / "tiny.json"
    experiment.write_text(tiny_recipe(epochs=4).model_dump_json())
    job: tuple[str, ...] = ("run", "cylinder-flow", "--cases", str(CASES), *COARSE)
    job += ("--experiment", str(experiment), "--out", place)
    dataset, runs = f"{place}/store/cylinder-flow", f"{folder}/runs"
    train = ("train", dataset, "--experiment", str(experiment), "--runs", runs)
    without_solver = {**environment, "PATH": f"{BIN}:{_empty(folder)}"}
    generate = ("generate", "cylinder-flow", "--cases", str(many), "--store")

    _run(environment, *job)
    finished = _run(environment, *job)
    trained = _run(environment, *train)
    (run,) = Path(runs).iterdir()
    own_s = sum(record.seconds for record in read_records(RunDirectory(str(run))))
    missing = _run(without_solver, *generate, f"{folder}/none", expected=1)
    first_line = _run(environment, *generate, f"{folder}/a", until=lambda shown, _: bool(shown))
    first_case = _run(environment, *generate, f"{folder}/b", until=lambda _, tree: tree.has(SOLVER))
    return [
        Start("finished `courant run`", *finished, aim_s=5.0),
        Start("`courant train`, beside its epochs", trained[0] - own_s, trained[1], aim_s=8.0),
        Start("missing OpenFOAM told", *missing, aim_s=5.0),
        Start("first line of progress", *first_line, aim_s=1.0),
        Start(f"first solver of {many:,} designs", *first_case, aim_s=10.0),
    ]


def _run(
    environment: Mapping[str, str],
    *arguments: str,
    expected: int = 0,
    until: Callable[[str, Tree], bool] | None = None,
) -> tuple[float, float]:
    """Wall time and core-seconds until the command ends, or until a moment of it."""
    began = time.monotonic()
    with in_a_terminal(environment, *arguments) as terminal:
        tree = Tree(terminal.process.pid)
        while terminal.process.poll() is None:
            tree.look()
            if until is not None and until(terminal.printed.strip(), tree):
                took = time.monotonic() - began
                terminal.interrupt()
                return took, tree.core_seconds
            if time.monotonic() - began > LIMIT_S:
                raise TimeoutError(f"courant {' '.join(arguments)}: {terminal.printed[-500:]}")
            time.sleep(LOOK_S)
        took = time.monotonic() - began
        _check(terminal, expected, arguments)
    return took, tree.core_seconds


def _check(terminal: Terminal, expected: int, arguments: tuple[str, ...]) -> None:
    code = terminal.process.returncode
    if code != expected:
        raise RuntimeError(f"courant {' '.join(arguments)} gave {code}: {terminal.printed[-500:]}")


def _empty(folder: Path) -> Path:
    """A folder of programs with the shell alone, which Prefect's server is started through."""
    programs = folder / "programs"
    programs.mkdir()
    (programs / "sh").symlink_to(shutil.which("sh") or "/bin/sh")
    return programs
