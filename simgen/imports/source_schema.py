"""Check the schema of imported cases: its names become paths, columns and words of commands."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, get_args

from simgen.case import Field, Role
from simgen.cases import FAMILIES
from simgen.design_space import Parameter
from simgen.errors import InputError
from simgen.imports.told import shown, told
from simgen.store.schema import Schema, Source
from simgen.store.split import Origin

FAMILY = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")
#: Without control characters, and without what UTF-8 cannot hold.
_TEXT = re.compile(r"[^\x00-\x1f\x7f-\x9f\ud800-\udfff]{0,1000}")
#: Names taken by a case's other arrays.
_ARRAYS = frozenset(
    {"points", "volumes", "time", "distance", "direction", "distance_field"}
    | {"faces", "mesh_points", "mesh_cells", "provenance"}
)
#: Names taken by other columns of the design table.
_COLUMNS = frozenset(
    {"case", "status", "reason", "split", "num_points", "num_snapshots", "num_bytes", "wall_time_s"}
)
MOST_KINDS = 255
"""A face's patch kind is one byte"""


def imported_schema(
    name: str,
    *,
    dimension: int,
    fields: Sequence[Field],
    source: Source,
    transient: bool = False,
    parameters: Sequence[Parameter] = (),
    splits: Origin = "published",
    grid_shape: Sequence[int] | None = None,
    boundary: bool = False,
    volumes: bool = False,
    patch_kinds: Sequence[str] = (),
    distance_kinds: Sequence[str] = (),
) -> Schema:
    """Describe what all cases of a source have in common; InputError in one line if it is invalid.

    `name` is the name of the dataset, and the `family` of experiments. Fields of role "given" are
    inputs of models, solved ones their targets; each case has every field at every point. `splits`:
    whether each case comes with its split ("published"), or splits are drawn by seed ("drawn").
    `boundary`, `volumes` and `distance_kinds` say which of these come with each case; a boundary
    needs `patch_kinds`.
    """
    try:
        schema = Schema(
            family=name,
            family_revision=1,
            dimension=dimension,
            transient=bool(transient),
            patch_kinds=tuple(patch_kinds),
            fields=tuple(fields),
            parameters=tuple(
                Parameter(each.name, each.unit, float(each.low), float(each.high), each.description)
                for each in parameters
            ),
            boundary=bool(boundary),
            volumes=bool(volumes),
            distance_kinds=tuple(distance_kinds),
            grid_shape=None if grid_shape is None else tuple(map(int, grid_shape)),
            splits=splits,
            source=source,
        )
    except (TypeError, ValueError, OverflowError, AttributeError) as error:
        raise InputError(f"import {shown(name)}: the schema is none ({told(error)})") from error
    check_schema(schema)
    return schema


def check_schema(schema: Schema) -> None:
    """Raise InputError that names the first thing wrong with an import's schema."""
    for problem in _problems(schema):
        raise InputError(f"import {shown(schema.family)}: {problem}")


def _problems(schema: Schema) -> Iterator[str]:
    if not _is(FAMILY, schema.family):
        yield "a name has small letters, digits and '-', 63 at most"
    if schema.family in FAMILIES:
        yield "a family that is generated here has this name; choose another"
    if type(schema.dimension) is not int or schema.dimension not in (1, 2, 3):
        yield f"dimension = {shown(schema.dimension)}, expected 1, 2 or 3"
    if not _is_one_of(get_args(Origin), schema.splits):
        yield f"splits = {shown(schema.splits)}, expected {' or '.join(get_args(Origin))}"
    yield from _source_problems(schema.source)
    yield from _field_problems(schema.fields)
    yield from _parameter_problems(schema.parameters)
    yield from _kind_problems(schema)
    shape = schema.grid_shape
    if shape is not None and (len(shape) != schema.dimension or min(shape, default=0) < 1):
        yield f"grid_shape = {shape}, expected {schema.dimension} positive numbers"


def _source_problems(source: Source | None) -> Iterator[str]:
    if not isinstance(source, Source):
        yield "a source is needed: Source(name, url, licence)"
        return
    for name in ("name", "url", "licence"):
        text = getattr(source, name)
        if not _is(_TEXT, text) or not text.strip():
            yield f"the source's {name} is {shown(text)}, expected a line of text"


def _field_problems(fields: Sequence[Field]) -> Iterator[str]:
    if not all(isinstance(field, Field) for field in fields):
        yield "fields must be Field(name, unit, components)"
        return
    yield from _name_problems("field", (field.name for field in fields), _ARRAYS | {"boundary"})
    if not any(field.role == "solved" for field in fields):
        yield "at least one field must be solved: it is what models learn"
    for field in fields:
        if not _is_one_of(get_args(Role), field.role):
            yield f"{field.name} has role {shown(field.role)}, expected given or solved"
        if not isinstance(field.components, tuple) or not field.components:
            yield f"{field.name} has no components; name them in a tuple, such as ('x', 'y')"
            return
        yield from _name_problems(f"component of {field.name}", field.components, frozenset())
        if not _is(_TEXT, field.unit):
            yield f"the unit of {field.name} is {shown(field.unit)}, expected a line of text"


def _parameter_problems(parameters: Sequence[Parameter]) -> Iterator[str]:
    yield from _name_problems("parameter", (each.name for each in parameters), _COLUMNS)
    for each in parameters:
        if not (math.isfinite(each.low) and math.isfinite(each.high) and each.low < each.high):
            yield f"{each.name} has the range {each.low} to {each.high}, expected low < high"
        if not _is(_TEXT, each.unit) or not _is(_TEXT, each.description):
            yield f"unit and description of {each.name} must be lines of text"


def _kind_problems(schema: Schema) -> Iterator[str]:
    yield from _name_problems("patch kind", schema.patch_kinds, frozenset())
    unknown = [kind for kind in schema.measured_kinds if kind not in schema.patch_kinds]
    if unknown:
        yield f"distance_kinds: {shown(unknown[0])} is no patch kind"
    if len(set(schema.measured_kinds)) < len(schema.measured_kinds):
        yield "distance_kinds names a kind twice"
    if schema.boundary and not 0 < len(schema.patch_kinds) <= MOST_KINDS:
        yield f"a boundary needs patch_kinds, {MOST_KINDS} at most"


def _name_problems(what: str, names: Iterable[Any], taken: frozenset[str]) -> Iterator[str]:
    seen = set(taken)
    for name in names:
        if not _is(NAME, name):
            yield f"{what} {shown(name)}: a name has letters, digits and '_', 63 at most"
            return
        if name in seen:
            yield f"{what} {name} is named twice, or is a name of the dataset's own"
        seen.add(name)


def _is_one_of(choices: tuple[str, ...], value: object) -> bool:
    return isinstance(value, str) and value in choices


def _is(pattern: re.Pattern[str], text: object) -> bool:
    return isinstance(text, str) and pattern.fullmatch(text) is not None
