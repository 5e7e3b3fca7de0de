"""How soon commands answer: what is done already, what cannot be done, and the first progress.

Each command is a process of its own in a terminal, as a person starts it, with its own store and
scratch folder. Beside the seconds of wall time, which other work on the machine prolongs, are the
core-seconds of the command and all processes below it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.measure import Tree
from bench.report import publish
from courant.runs.directory import RunDirectory
from courant.runs.record import read_records
from tests.end_to_end.conftest import BIN, tiny_recipe
from tests.end_to_end.terminal import in_a_terminal

#: Seconds of flow on a coarse mesh: little to solve, all the rest as ever.
COARSE = ("--set", "end_time=12", "--set", "mesh_size=2")
CASES, MANY_CASES = 4, 10_000
LOOK_S, LIMIT_S = 0.1, 900.0
SOLVER = "icoFoam"


def main(out: Path, short: bool) -> None:
    """Print the table, write starts.json."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder, many = Path(name), 100 if short else MANY_CASES
        environment = {**os.environ, "COURANT_SCRATCH": f"{folder}/scratch"}

        def run(
            *arguments: str, expected: int = 0, until: Callable[[str, Tree], bool] | None = None
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
                        return took, tree.core_seconds()
                    if time.monotonic() - began > LIMIT_S:
                        raise TimeoutError(f"courant {arguments}: {terminal.printed[-500:]}")
                    time.sleep(LOOK_S)
                took, code = time.monotonic() - began, terminal.process.returncode
                if code != expected:
                    raise RuntimeError(f"courant {arguments}: {code}: {terminal.printed[-500:]}")
            return took, tree.core_seconds()

        place, experiment, runs = f"{folder}/out", f"{folder}/tiny.json", f"{folder}/runs"
        Path(experiment).write_text(tiny_recipe(epochs=4).model_dump_json())
        around = ("--experiment", experiment)
        job = ("run", "cylinder-flow", "--cases", str(CASES), *COARSE, *around, "--out", place)
        generate = ("generate", "cylinder-flow", "--cases", str(many), "--store")
        run(*job)
        finished = run(*job)
        trained = run("train", f"{place}/store/cylinder-flow", *around, "--runs", runs)
        (made,) = Path(runs).iterdir()
        own_s = sum(record.seconds for record in read_records(RunDirectory(str(made))))
        first_line = run(*generate, f"{folder}/a", until=lambda shown, _: bool(shown))
        first_case = run(*generate, f"{folder}/b", until=lambda _, tree: tree.has(SOLVER))
        programs = folder / "programs"
        programs.mkdir()
        (programs / "sh").symlink_to(shutil.which("sh") or "/bin/sh")
        environment["PATH"] = f"{BIN}:{programs}"
        missing = run(*generate, f"{folder}/none", expected=1)
    starts = {
        "finished `courant run`": (finished, 5.0),
        "`courant train`, beside its epochs": ((trained[0] - own_s, trained[1]), 8.0),
        "missing OpenFOAM reported": (missing, 5.0),
        "first line of progress": (first_line, 1.0),
        f"first solver of {many:,} designs": (first_case, 10.0),
    }
    rows = [
        {"": name, "seconds": wall_s, "aim": aim_s, "core-seconds": core_s}
        for name, ((wall_s, core_s), aim_s) in starts.items()
    ]
    publish(out, "starts", rows, "Starts of commands")
