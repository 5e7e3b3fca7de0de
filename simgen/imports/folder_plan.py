"""Plan the import of a folder of cases: one schema for all, and a reason for each that departs.

Every case is surveyed first, without its values. What most of them have in common, or what the
dataset has if there is one already, is the schema; a case that departs from it is refused in one
line, and the others are imported.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from simgen.errors import CaseError, InputError
from simgen.imports.common_schema import common_schema, departures, parameters_of, varying
from simgen.imports.importing import Imported, import_cases
from simgen.imports.source_case import SourceCase, UnreadCase, case_name
from simgen.imports.surveyed import FOREIGN, Asked, Surveyed
from simgen.imports.told import told
from simgen.store.schema import IMPORTED, Schema
from simgen.store.split import assign_splits
from simgen.store.versions import OnRecord, read_on_record

#: Relative to the mean; a training takes no more.
STEP_TOLERANCE = 1e-3
IS_THERE = "; the dataset has it from an earlier import: courant dataset withdraw takes it out"


@dataclass(frozen=True)
class Refusal:
    """A case, or a part of one, that is not imported, and why."""

    case: str
    reason: str


@dataclass(frozen=True)
class FolderPlan:
    """What an import of a folder would do."""

    folder: Path
    url: str
    schema: Schema
    cases: tuple[Surveyed, ...]
    """The cases that would be imported, if their values are good"""
    on_record: frozenset[str]
    """Those of them whose files have not changed since they were imported"""
    splits: Mapping[str, str]
    refused: tuple[Refusal, ...]
    left_out: tuple[Refusal, ...] = ()
    """What of the folder is passed over, though nobody asked for that"""
    notes: tuple[str, ...] = ()


def plan_folder(
    asked: Asked,
    places: Sequence[str],
    survey: Callable[[str], Surveyed],
    *,
    boundary: bool,
    volumes: bool,
    way_to_one_interval: str = "",
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> FolderPlan:
    """Survey all cases and decide what is imported; InputError where no case is good."""
    there = read_on_record(asked.url)
    if there is not None and there.schema.source is None:
        raise InputError(
            f"{asked.url} holds cases that were solved here; choose another --name or --store"
        )
    refused: list[Refusal] = []
    surveyed: list[Surveyed] = []
    for done, place in enumerate(places, start=1):
        try:
            surveyed.append(survey(place))
        except FOREIGN as error:
            kept_as_it_is = there is not None and case_name(place) in there.held
            why = f"{_reason(error, asked.folder)}{IS_THERE if kept_as_it_is else ''}"
            refused.append(Refusal(place, why))
        on_progress(done, len(places))
    _check_any(asked, surveyed, refused)
    _check_ranges(asked, surveyed)
    surveyed, notes = varying(surveyed, asked, there)
    schema = common_schema(asked, surveyed, there, boundary, volumes)
    kept: list[Surveyed] = []
    for case in surveyed:
        why = next(departures(case, schema, kept, there, asked), "")
        if why:
            refused.append(Refusal(case.place, why))
        else:
            kept.append(case)
    _check_any(asked, kept, refused)
    if there is None:
        schema = replace(schema, parameters=parameters_of(asked, kept))
    splits = _splits(kept, schema, there)
    _check_train(asked, schema, splits, there)
    known = {} if there is None else there.held
    same = (
        case.name
        for case in kept
        if known.get(case.name, {}).get(IMPORTED, {}).get("files") == case.files
    )
    return FolderPlan(
        asked.folder,
        asked.url,
        schema,
        tuple(kept),
        frozenset(same),
        splits,
        tuple(refused),
        tuple(Refusal(case.place, each) for case in kept for each in case.left_out),
        (*notes, *_unused_rows(asked, places), *_irregular(kept, way_to_one_interval)),
    )


def _check_ranges(asked: Asked, cases: Sequence[Surveyed]) -> None:
    """Raise InputError for a range of what is no parameter: the first import fixes the ranges."""
    known = sorted({name for case in cases for name in case.parameters})
    if unknown := [name for name in asked.ranges if name not in known]:
        near = difflib.get_close_matches(unknown[0], known, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise InputError(
            f"--range {unknown[0]}: {hint}the cases' parameters are {', '.join(known) or 'none'}"
        )


def import_plan(
    plan: FolderPlan,
    read: Callable[[Surveyed], SourceCase],
    *,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    on_refused: Callable[[str, str], None],
) -> Imported:
    """Import what was planned; a case whose values are wrong is told to `on_refused`.

    The message of the version counts all that were refused, those of the plan too.
    """
    places = {case.name: case.place for case in plan.cases}

    def reading(case: Surveyed) -> SourceCase:
        try:
            return read(case)
        except FOREIGN as error:
            raise CaseError(_reason(error, plan.folder)) from error

    unread = (
        UnreadCase(case.name, case.files, lambda case=case: reading(case))  # type: ignore[misc]
        for case in plan.cases
    )
    source = plan.schema.source
    assert source is not None
    return import_cases(
        plan.url,
        plan.schema,
        unread,
        message=f"imported from {source.name}",
        on_progress=lambda done, _: on_progress(done, len(plan.cases)),
        on_refused=lambda name, why: on_refused(places[name], why.removeprefix(f"case {name}: ")),
    )


def _reason(error: Exception, folder: Path) -> str:
    """Show an error without the folder's own path, and with its kind where it says nothing."""
    text = told(error).replace(f"{folder}/", "")
    if isinstance(error, CaseError | InputError):
        return text
    return f"its files cannot be read ({type(error).__name__}: {text})"


def _check_train(
    asked: Asked, schema: Schema, splits: Mapping[str, str], there: OnRecord | None
) -> None:
    """Raise InputError, before anything is written, where no case would be for training."""
    bound = {} if there is None else there.splits
    if schema.splits != "published" or "train" in {*splits.values(), *bound.values()}:
        return
    where = asked.table.path if asked.table is not None else asked.folder
    raise InputError(
        f"{where} puts no case that can be imported into the split train, and a dataset needs one"
    )


def _check_any(asked: Asked, cases: Sequence[Surveyed], refused: Sequence[Refusal]) -> None:
    if cases:
        return
    if not refused:
        raise InputError(f"{asked.folder} holds no case to import")
    first = refused[0]
    raise InputError(
        f"none of the {len(refused)} cases in {asked.folder} can be imported; the first,"
        f" {first.case}: {first.reason}"
    )


def _splits(cases: Sequence[Surveyed], schema: Schema, there: OnRecord | None) -> dict[str, str]:
    bound = {} if there is None else there.splits
    if schema.splits == "published":
        return {case.name: bound.get(case.name, case.split or "") for case in cases}
    rows = {} if there is None else there.design
    known = [name for name, row in rows.items() if row["status"] == "accepted"]
    names = list(dict.fromkeys([*known, *(case.name for case in cases)]))
    drawn = assign_splits(names, bound)
    return {case.name: drawn[case.name] for case in cases}


def _irregular(cases: Sequence[Surveyed], way: str) -> Iterator[str]:
    """Report times that no transient model can be trained on: it has one step for all."""
    steps: dict[str, np.ndarray] = {
        case.place: np.diff(case.times)
        for case in cases
        if case.times is not None and len(case.times) > 1
    }
    for place, of in steps.items():
        if np.ptp(of) > STEP_TOLERANCE * of.mean():
            yield (
                f"{place}: its times lie {of.min():g} to {of.max():g} s apart, and a model is"
                f" trained on one interval{way}"
            )
    means = {place: float(of.mean()) for place, of in steps.items()}
    if means and (wide := max(means, key=means.__getitem__)):
        close = min(means, key=means.__getitem__)
        if means[wide] - means[close] > STEP_TOLERANCE * means[close]:
            yield (
                f"the times of {close} lie {means[close]:g} s apart on average, those of {wide}"
                f" {means[wide]:g} s, and a model is trained on one interval{way}"
            )


def _unused_rows(asked: Asked, places: Sequence[str]) -> Iterator[str]:
    if asked.table is None:
        return
    named = {name for place in places for name in (place, case_name(place))}
    if unused := [row for row in asked.table.rows if row not in named]:
        yield (
            f"{asked.table.path} has {len(unused)} rows of cases that are not in the folder, such"
            f" as {unused[0]}"
        )
