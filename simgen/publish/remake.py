"""Tell how to make a version again, as one command line.

Each publication keeps the parameters of the run that it ended. A version that grew over several
runs is remade by the same runs in the same order, with the same withdrawals between them, which
gives the same splits. Cases that these runs do not account for (designs from a CSV file, cases
written from Python, a run that was given up) are made from a list of their designs.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from simgen.case import CaseFamily
from simgen.cases import FAMILIES
from simgen.design_space import DesignPoint
from simgen.errors import InputError
from simgen.store.access.reader import Dataset
from simgen.store.access.versions import VersionInfo

STORE = "made-again"
Settings = Mapping[str, float]


@dataclass(frozen=True)
class Remake:
    """Commands in order; `designs` are the CSV files that they read, rows by file name."""

    commands: list[str]
    designs: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    source_revision: str = ""
    """Source revision of the newest publication, to be checked out first"""

    @property
    def command(self) -> str:
        """Join the commands into one line for a shell."""
        return " && ".join(self.commands)


def how_to_make(dataset: Dataset, store: str = STORE) -> Remake:
    """List the `courant generate` commands that make the version in a store of its own.

    Imported cases have none: their importer makes them again.
    """
    if dataset.schema.source is not None:
        return Remake([])
    versions = dataset.versions()
    versions = versions[: [version.name for version in versions].index(dataset.version) + 1]
    covered: set[str] = set()
    commands: list[str] = []
    for version in versions:
        run = dict(version.metadata.get("run") or {})
        if is_sampled(version):
            covered |= set(_case_ids(run, dataset))
            commands.append(run_command(run, store))
        elif made := [case for case in run.get("withdrawn") or () if case in covered]:
            commands.append(_withdraw_command(dataset, made, run["reason"], store))
    designs: dict[str, list[dict[str, float]]] = {}
    for number, group in enumerate(_alike(dataset, covered), start=1):
        file = "designs.csv" if number == 1 else f"designs-{number}.csv"
        designs[file] = group.rows
        run = {
            "family": dataset.schema.family,
            "preset": _any_preset(dataset),
            "settings": group.settings,
            "split": group.split,
            "designs": file,
        }
        commands.append(run_command(run, store))
    for reason, cases in _withdrawn(dataset, covered).items():
        commands.append(_withdraw_command(dataset, cases, reason, store))
    return Remake(commands, designs, str(dataset.info.metadata.get("source_revision", "")))


def is_sampled(version: VersionInfo) -> bool:
    """Tell whether the version's run is on record and sampled its designs.

    A run that read them from a file cannot be repeated: the file may be gone. One that was given
    them has no command of its own.
    """
    run = version.metadata.get("run") or {}
    given = run.get("designs") or run.get("design_parameters")
    return {"family", "cases", "sampler", "seed", "preset"} <= set(run) and not given


def run_command(run: Mapping[str, Any], store: str = STORE) -> str:
    """Return the command line of one run from the parameters that its publication kept."""
    words = ["courant", "generate", str(run["family"])]
    if run.get("designs"):
        words += ["--designs", str(run["designs"])]
    else:
        words += [
            "--cases",
            str(run["cases"]),
            "--sampler",
            str(run["sampler"]),
            "--seed",
            str(run["seed"]),
        ]
    words += ["--preset", str(run["preset"])]
    for name, value in dict(run.get("settings") or {}).items():
        words += ["--set", f"{name}={value!r}"]
    if run.get("split"):
        words += ["--split", str(run["split"])]
    if run.get("time_limit_s"):
        words += ["--time-limit", f"{run['time_limit_s']:g}"]
    return shlex.join([*words, "--store", store])


def _withdraw_command(dataset: Dataset, cases: Sequence[str], reason: str, store: str) -> str:
    url = f"{store}/{dataset.schema.family}"
    return shlex.join(["courant", "dataset", "withdraw", url, *cases, "--reason", reason])


def _withdrawn(dataset: Dataset, covered: set[str]) -> dict[str, list[str]]:
    """List withdrawn cases that no run accounts for, by reason."""
    found: dict[str, list[str]] = {}
    for case in dataset.design.index:
        stored = dataset[case]
        if stored.status == "withdrawn" and case not in covered:
            found.setdefault(stored.reason, []).append(case)
    return found


def _case_ids(run: Mapping[str, Any], dataset: Dataset) -> list[str]:
    """List the ids of the cases that a run solves.

    Where this release samples other designs than the dataset's did, they are those on record.
    """
    known, revision = list(dataset.design.index), dataset.schema.family_revision
    family = FAMILIES.get(str(run["family"]))
    if family is None:
        return known
    try:
        points = _sampled_points(family, run)
    except InputError:
        if revision == family.revision:
            raise
        return known
    found = [replace(point, family_revision=revision).id for point in points]
    return found if revision == family.revision or set(found) & set(known) else known


def _sampled_points(family: CaseFamily, run: Mapping[str, Any]) -> list[DesignPoint]:
    settings = family.settings(run["preset"], run.get("settings"))
    designs = family.design_space.sample(int(run["cases"]), run["sampler"], int(run["seed"]))
    return [family.point(design, settings) for design in designs]


class _Alike(NamedTuple):
    """Designs that one run can solve."""

    settings: Settings
    split: str | None
    rows: list[dict[str, float]]


def _alike(dataset: Dataset, covered: set[str]) -> list[_Alike]:
    """Group the designs of all other cases by their solver settings and the split asked for."""
    groups: dict[tuple[tuple[tuple[str, float], ...], str | None], _Alike] = {}
    for case in dataset.design.index:
        if case not in covered:
            stored = dataset[case]
            key = tuple(stored.settings.items()), stored.stated_split
            group = groups.setdefault(key, _Alike(dict(key[0]), key[1], []))
            group.rows.append(stored.parameters)
    return list(groups.values())


def _any_preset(dataset: Dataset) -> str:
    """Name any preset: every setting is given explicitly."""
    family = FAMILIES.get(dataset.schema.family)
    return next(iter(family.presets)) if family else "paper"
