"""Write the commands of the runs that made a version, from what each publication recorded."""

from __future__ import annotations

import shlex

from simgen.store.read import Dataset
from simgen.store.versions import VersionInfo

STORE = "made-again"


def how_to_make(dataset: Dataset, store: str = STORE) -> list[str]:
    """Return the commands that make the version in another store, in order.

    A version without a run on record adds none: it was imported, or written from Python.
    """
    commands = []
    for version in dataset.versions():
        run = version.metadata.get("run") or {}
        if "withdrawn" in run:
            words = [f"{store}/{dataset.schema.family}", *run["withdrawn"], "--reason"]
            commands.append(shlex.join(["courant", "dataset", "withdraw", *words, run["reason"]]))
        elif command := run_command(version, store):
            commands.append(command)
        if version.name == dataset.version:
            break
    return commands


def run_command(version: VersionInfo, store: str = STORE) -> str:
    """Return the command of the run that solved a version's cases; empty where there is none."""
    run = version.metadata.get("run") or {}
    if "family" not in run or run.get("design_parameters"):
        return ""
    words = ["courant", "generate", run["family"]]
    names = ("designs",) if run.get("designs") else ("cases", "sampler", "seed")
    for name in (*names, "preset", "split", "time_limit_s"):
        if run.get(name) is not None:
            words += [f"--{name.removesuffix('_s').replace('_', '-')}", str(run[name])]
    for name, value in (run.get("settings") or {}).items():
        words += ["--set", f"{name}={value!r}"]
    return shlex.join([*words, "--store", store])
