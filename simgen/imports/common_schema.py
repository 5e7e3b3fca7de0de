"""Find the schema that most cases of a folder share, and say how each other one departs from it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from simgen.case import Field
from simgen.design_space import SIGNIFICANT_DIGITS, Parameter
from simgen.errors import InputError
from simgen.imports.source_schema import imported_schema
from simgen.imports.surveyed import Asked, Surveyed
from simgen.imports.told import as_utf8
from simgen.store.schema import Schema, Source
from simgen.store.split import PUBLISHED
from simgen.store.versions import OnRecord

_TWICE = "a case solved twice; --keep-repeats takes both"
_AS_RECORDED = (
    "a case on record does not change: withdraw it (courant dataset withdraw) and import again, or"
    " import into another store"
)


def varying(
    cases: list[Surveyed], asked: Asked, there: OnRecord | None
) -> tuple[list[Surveyed], list[str]]:
    """Drop parameters that are the same in all cases: there is nothing to learn from them."""
    names = dict.fromkeys(name for case in cases for name in case.parameters)
    stored = None if there is None else {each.name for each in there.schema.parameters}
    dropped, notes = set(), []
    for name in names:
        values = {case.parameters[name] for case in cases if name in case.parameters}
        if len(values) > 1 or name in asked.ranges:
            if stored is not None and name not in stored:
                raise InputError(
                    f"{name} differs between the cases now, and {asked.url} was imported without"
                    " it: choose another --name or --store for all cases"
                )
            continue
        if stored is None or name not in stored:
            dropped.add(name)
            notes.append(
                f"{name} is {values.pop():g} in all cases, so it is no parameter of the dataset;"
                f" --range {name}=LOW:HIGH makes it one"
            )
    kept = [
        replace(
            case,
            parameters={
                name: _rounded(value)
                for name, value in case.parameters.items()
                if name not in dropped
            },
        )
        for case in cases
    ]
    return kept, notes


def _rounded(value: float) -> float:
    """Round as design points do, so that a case is the same after a round trip."""
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}") + 0.0


def common_schema(
    asked: Asked, cases: list[Surveyed], there: OnRecord | None, boundary: bool, volumes: bool
) -> Schema:
    """Return the dataset's schema; of a new dataset that of most cases."""
    if there is not None:
        if there.schema.family != asked.name:
            raise InputError(f"{asked.url} holds {there.schema.family}: choose another --store")
        _check_ranges(asked, there.schema)
        _check_units(asked, there.schema)
        return there.schema
    most = _most((case.fields, case.dimension, case.times is None) for case in cases)
    fields, dimension, steady = most
    kinds = frozenset(_common_kinds(cases))
    if asked.distance_kinds is not None:
        kinds = frozenset(kind for case in cases for kind in case.kinds)
    return imported_schema(
        asked.name,
        dimension=dimension,
        fields=fields,
        source=asked.source or Source(as_utf8(asked.folder.name), "a local folder", "not stated"),
        transient=not steady,
        parameters=parameters_of(asked, cases),
        splits="published" if asked.table is not None and asked.table.has_splits else "drawn",
        boundary=boundary and bool(kinds),
        volumes=volumes,
        patch_kinds=sorted(kinds),
        distance_kinds=sorted(kinds) if asked.distance_kinds is None else asked.distance_kinds,
    )


def _check_ranges(asked: Asked, schema: Schema) -> None:
    """Raise InputError where other ranges are asked for than the dataset has."""
    for each in schema.parameters:
        if asked.ranges.get(each.name, (each.low, each.high)) != (each.low, each.high):
            raise InputError(
                f"{asked.url} has {each.name} from {each.low:g} to {each.high:g}, which stays:"
                " leave --range out, or import all cases into another store"
            )


def _check_units(asked: Asked, schema: Schema) -> None:
    """Raise InputError where a parameter is in another unit than the dataset's."""
    units = units_of(asked)
    for each in schema.parameters:
        if (unit := units.get(each.name) or each.unit) != each.unit:
            raise InputError(
                f"{asked.url} has {each.name} in {each.unit or 'no unit'}, and here it is in"
                f" {unit}: give its values in the dataset's unit, or import all cases into"
                " another store"
            )


def units_of(asked: Asked) -> dict[str, str]:
    """Return the units of parameters, as far as they are given: by the table, or beside it."""
    return {**(asked.table.units if asked.table else {}), **asked.units}


def _most(values: Iterator[Any]) -> Any:
    return Counter(values).most_common(1)[0][0]


def _common_kinds(cases: Sequence[Surveyed]) -> list[str]:
    """List the kinds of patches that more than half of the cases have."""
    counts = Counter(kind for case in cases for kind in case.kinds)
    return [kind for kind, count in counts.items() if 2 * count > len(cases)]


def parameters_of(asked: Asked, cases: Sequence[Surveyed]) -> tuple[Parameter, ...]:
    names = dict.fromkeys(name for case in cases for name in case.parameters)
    units = units_of(asked)
    parameters = []
    for name in names:
        values = [case.parameters[name] for case in cases if name in case.parameters]
        low, high = asked.ranges.get(name, (min(values), max(values)))
        if low == high:  # what else varied was refused
            high = low + max(abs(low), 1.0)
        parameters.append(Parameter(name, units.get(name, ""), low, high))
    return tuple(parameters)


def departures(
    case: Surveyed, schema: Schema, kept: Sequence[Surveyed], there: OnRecord | None, asked: Asked
) -> Iterator[str]:
    """Say how a case departs from the schema, or repeats another case."""
    for other in kept:
        if other.name == case.name:
            yield f"its name in the dataset, {case.name}, is that of {other.place}; rename one"
    if (case.times is None) == schema.transient:
        kinds = ("steady", "transient")
        yield f"it is {kinds[case.times is not None]}, the dataset is {kinds[schema.transient]}"
    if case.dimension != schema.dimension:
        yield f"it is {case.dimension}D, the dataset is {schema.dimension}D"
    for mine, common in zip(case.fields, schema.fields, strict=False):
        if mine != common:
            yield (
                f"its {mine.openfoam or mine.name} is {_field_text(mine)}, the dataset's"
                f" {_field_text(common)}"
            )
    if len(case.fields) != len(schema.fields):
        yield f"it has {len(case.fields)} fields, the dataset has {len(schema.fields)}"
    yield from _wrong_kinds(case, schema)
    yield from _wrong_parameters(case, schema)
    yield from _changed(case, there)
    yield from _repeats(case, kept, there, asked)


def _field_text(field: Field) -> str:
    return f"{field.name} in {field.unit or '1'} with {len(field.components)} components"


def _wrong_kinds(case: Surveyed, schema: Schema) -> Iterator[str]:
    unknown = sorted(case.kinds - set(schema.patch_kinds))
    if unknown and schema.patch_kinds:
        yield (
            f"it has a patch of kind {unknown[0]}, which the dataset has not"
            f" ({', '.join(schema.patch_kinds)}); --kind PATCH=KIND gives it another"
        )
    if missing := [kind for kind in schema.measured_kinds if kind not in case.kinds]:
        yield (
            f"it has no patch of kind {missing[0]}, to which the dataset has distances; --kind"
            " PATCH=KIND names one, --distance KIND,KIND leaves it out for all"
        )


def _wrong_parameters(case: Surveyed, schema: Schema) -> Iterator[str]:
    wanted = {each.name for each in schema.parameters}
    if case.parameters.keys() != wanted:
        yield (
            f"it has the parameters {', '.join(case.parameters) or 'none'}, the dataset"
            f" {', '.join(sorted(wanted)) or 'none'}"
        )
    for each in schema.parameters:
        value = case.parameters.get(each.name, each.low)
        if not each.low <= value <= each.high:
            yield (
                f"its {each.name} = {value:g} lies outside the dataset's range {each.low:g} to"
                f" {each.high:g}; import all cases into another store, with a wider --range"
            )


def _changed(case: Surveyed, there: OnRecord | None) -> Iterator[str]:
    """Say what a case of the dataset is asked to have now: what is on record does not change."""
    row = {} if there is None else there.held.get(case.name)
    if not row:
        return
    for name, value in case.parameters.items():
        recorded = row["parameters"].get(name, value)
        if not math.isclose(value, recorded, rel_tol=1e-9):
            yield f"its {name} is {value:g}, the dataset has it with {recorded:g}; {_AS_RECORDED}"
    if row.get(PUBLISHED) != case.split:
        yield (
            f"its split is {case.split or 'not given'}, the dataset has it in"
            f" {row.get(PUBLISHED) or 'a drawn one'}; {_AS_RECORDED}"
        )


def _repeats(
    case: Surveyed, kept: Sequence[Surveyed], there: OnRecord | None, asked: Asked
) -> Iterator[str]:
    if asked.keep_repeats or not case.parameters:
        return
    for name, row in ({} if there is None else there.held).items():
        if name != case.name and row["parameters"] == dict(case.parameters):
            yield f"it has the parameters of {name}, which the dataset holds: {_TWICE}"
    for other in kept:
        if other.parameters == case.parameters:
            yield f"it has the parameters of {other.place}: {_TWICE}"
