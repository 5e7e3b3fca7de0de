"""How to make a version again, as one command line.

Each publication keeps the parameters of the run that it ended; a version that grew over several is made by the same runs in the
same order, which deals out the same splits, and with the same withdrawals between them. Cases that these runs do not account for (designs from a CSV file, cases written
from Python, a run that was given up) are made from a list of their designs.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from simgen.cases import FAMILIES
from simgen.store.reader import Dataset
from simgen.store.versions import VersionInfo

STORE = "made-again"
Settings = Mapping[str, float]


@dataclass(frozen=True)
class Remake:
    """`commands` in their order; `designs` are the CSV files that they read, rows by file name."""

    commands: list[str]
    designs: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    source_revision: str = ""
    """Of the newest publication: what to check out first"""

    @property
    def command(self) -> str:
        """All of it as one line for a shell."""
        return " && ".join(self.commands)


def how_to_make(dataset: Dataset, store: str = STORE) -> Remake:
    """The `courant generate` commands that make the dataset's version in a store of its own."""
    versions = dataset.versions()
    versions = versions[: [version.name for version in versions].index(dataset.version) + 1]
    covered: set[str] = set()
    commands: list[str] = []
    for version in versions:
        run = dict(version.metadata.get("run") or {})
        if is_sampled(version):
            covered |= set(_case_ids(run, dataset))
            commands.append(run_command(run, store))
        elif run.get("withdrawn") and covered.issuperset(run["withdrawn"]):
            commands.append(_withdraw_command(dataset, run["withdrawn"], run["reason"], store))
    designs: dict[str, list[dict[str, float]]] = {}
    for number, (settings, rows) in enumerate(_by_settings(dataset, covered), start=1):
        file = "designs.csv" if number == 1 else f"designs-{number}.csv"
        designs[file] = rows
        run = {"family": dataset.schema.family, "preset": _any_preset(dataset), "settings": settings, "designs": file}
        commands.append(run_command(run, store))
    for reason, cases in _withdrawn(dataset, covered).items():
        commands.append(_withdraw_command(dataset, cases, reason, store))
    return Remake(commands, designs, str(dataset.info.metadata.get("source_revision", "")))


def is_sampled(version: VersionInfo) -> bool:
    """Whether the version's run is on record and sampled its designs, instead of reading a file that may be gone."""
    run = version.metadata.get("run") or {}
    return {"family", "cases", "sampler", "seed", "preset"} <= set(run) and not run.get("designs")


def run_command(run: Mapping[str, Any], store: str = STORE) -> str:
    """The command line of one run from the parameters that its publication kept."""
    words = ["courant", "generate", str(run["family"])]
    if run.get("designs"):
        words += ["--designs", str(run["designs"])]
    else:
        words += ["--cases", str(run["cases"]), "--sampler", str(run["sampler"]), "--seed", str(run["seed"])]
    words += ["--preset", str(run["preset"])]
    for name, value in dict(run.get("settings") or {}).items():
        words += ["--set", f"{name}={value!r}"]
    if run.get("time_limit_s"):
        words += ["--time-limit", f"{run['time_limit_s']:g}"]
    return shlex.join([*words, "--store", store])


def _withdraw_command(dataset: Dataset, cases: Sequence[str], reason: str, store: str) -> str:
    url = f"{store}/{dataset.schema.family}"
    return shlex.join(["courant", "dataset", "withdraw", url, *cases, "--reason", reason])


def _withdrawn(dataset: Dataset, covered: set[str]) -> dict[str, list[str]]:
    """Cases that are withdrawn and that no run accounts for, by reason."""
    found: dict[str, list[str]] = {}
    for case in dataset.design.index:
        stored = dataset[case]
        if stored.status == "withdrawn" and case not in covered:
            found.setdefault(stored.reason, []).append(case)
    return found


def _case_ids(run: Mapping[str, Any], dataset: Dataset) -> list[str]:
    """Ids of the cases that a run solves; those on record where this release has another revision of the family."""
    family = FAMILIES.get(str(run["family"]))
    if family is None or family.revision != dataset.schema.family_revision:
        return list(dataset.design.index)
    settings = family.settings(run["preset"], run.get("settings"))
    return [
        family.point(parameters, settings).id
        for parameters in family.design_space.sample(int(run["cases"]), run["sampler"], int(run["seed"]))
    ]


def _by_settings(dataset: Dataset, covered: set[str]) -> list[tuple[Settings, list[dict[str, float]]]]:
    """The designs of all other cases, by the solver settings that they were solved with."""
    groups: dict[tuple[tuple[str, float], ...], list[dict[str, float]]] = {}
    for case in dataset.design.index:
        if case not in covered:
            stored = dataset[case]
            groups.setdefault(tuple(stored.settings.items()), []).append(stored.parameters)
    return [(dict(settings), rows) for settings, rows in groups.items()]


def _any_preset(dataset: Dataset) -> str:
    """Every setting is given by itself, so any preset will do."""
    family = FAMILIES.get(dataset.schema.family)
    return next(iter(family.presets)) if family else "paper"
