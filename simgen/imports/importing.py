"""Publish the cases of a source as a dataset version.

Notable properties:
- One case at a time is in memory, and is checked before anything of it is written.
- Readers see nothing until all cases are there: the version is published at the end.
- An interrupted import is simply run again: cases on record are compared by digest and skipped,
  those whose files have not changed since without being read.
- A schema's names become paths, columns and words of commands, so they are checked.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, get_args

from simgen.case import CaseResult, Field, Role
from simgen.cases import FAMILIES
from simgen.design_space import Parameter
from simgen.errors import CaseError, InputError, StoreError
from simgen.imports.source_case import (
    SourceCase,
    UnreadCase,
    as_cloud,
    case_record,
    check_name,
    one_line,
    shown,
)
from simgen.point_cloud import PointCloud
from simgen.store.read import open_dataset
from simgen.store.schema import IMPORTED, Schema, Source, digest_cloud, digest_record
from simgen.store.split import PUBLISHED, Origin
from simgen.store.versions import OnRecord, read_on_record
from simgen.store.write import CaseFork, DatasetWriter, case_digest

#: A commit's cost depends on the number of cases on record, hardly on how many are new.
CASES_A_COMMIT = 32
SECONDS_A_COMMIT = 60.0

FAMILY = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")
#: Without control characters, and without what UTF-8 cannot hold.
_TEXT = re.compile(r"[^\x00-\x1f\x7f-\x9f\ud800-\udfff]{0,1000}")
#: Names of a case's other arrays.
_ARRAYS = frozenset(
    {"points", "volumes", "time", "distance", "direction", "distance_field", "boundary"}
    | {"faces", "mesh_points", "mesh_cells", "provenance"}
)
#: Names of other columns of the design table.
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
    `boundary`, `volumes` and `distance_kinds` are those that come with each case; a boundary
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
                replace(each, low=float(each.low), high=float(each.high)) for each in parameters
            ),
            boundary=bool(boundary),
            volumes=bool(volumes),
            distance_kinds=tuple(distance_kinds),
            grid_shape=None if grid_shape is None else tuple(map(int, grid_shape)),
            splits=splits,
            source=source,
        )
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"import {shown(name)}: the schema is none ({one_line(error)})") from error
    check_schema(schema)
    return schema


def check_schema(schema: Schema) -> None:
    """Raise InputError that names the first thing wrong with an import's schema."""
    for problem in _problems(schema):
        raise InputError(f"import {shown(schema.family)}: {problem}")


def _problems(schema: Schema) -> Iterator[str]:
    if not FAMILY.fullmatch(schema.family):
        yield "a name has small letters, digits and '-', 63 at most"
    if schema.family in FAMILIES:
        yield "a family that is generated here has this name; choose another"
    if schema.dimension not in (1, 2, 3):
        yield f"dimension = {shown(schema.dimension)}, expected 1, 2 or 3"
    if schema.splits not in get_args(Origin):
        yield f"splits = {shown(schema.splits)}, expected {' or '.join(get_args(Origin))}"
    if schema.source is None:
        yield "a source is needed: Source(name, url, licence)"
    for name, text in ({} if schema.source is None else vars(schema.source)).items():
        if not _TEXT.fullmatch(text) or not text.strip():
            yield f"the source's {name} is {shown(text)}, expected a line of text"
    yield from _name_problems("field", (each.name for each in schema.fields), _ARRAYS)
    if not any(each.role == "solved" for each in schema.fields):
        yield "at least one field must be solved: it is what models learn"
    for each in schema.fields:
        if each.role not in get_args(Role):
            yield f"{each.name} has role {shown(each.role)}, expected given or solved"
        if not each.components:
            yield f"{each.name} has no components; name them in a tuple, such as ('x', 'y')"
        yield from _name_problems(f"component of {each.name}", each.components)
        if not _TEXT.fullmatch(each.unit):
            yield f"the unit of {each.name} is {shown(each.unit)}, expected a line of text"
    yield from _name_problems("parameter", (each.name for each in schema.parameters), _COLUMNS)
    for parameter in schema.parameters:
        name, low, high = parameter.name, parameter.low, parameter.high
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            yield f"{name} has the range {low} to {high}, expected low < high"
        if not _TEXT.fullmatch(parameter.unit) or not _TEXT.fullmatch(parameter.description):
            yield f"unit and description of {name} must be lines of text"
    yield from _name_problems("patch kind", schema.patch_kinds)
    if unknown := [kind for kind in schema.measured_kinds if kind not in schema.patch_kinds]:
        yield f"distance_kinds: {shown(unknown[0])} is no patch kind"
    if len(set(schema.measured_kinds)) < len(schema.measured_kinds):
        yield "distance_kinds names a kind twice"
    if schema.boundary and not 0 < len(schema.patch_kinds) <= MOST_KINDS:
        yield f"a boundary needs patch_kinds, {MOST_KINDS} at most"
    shape = schema.grid_shape
    if shape is not None and (len(shape) != schema.dimension or min(shape, default=0) < 1):
        yield f"grid_shape = {shape}, expected {schema.dimension} positive numbers"


def _name_problems(
    what: str, names: Iterable[str], reserved: frozenset[str] = frozenset()
) -> Iterator[str]:
    seen = set(reserved)
    for name in names:
        if not NAME.fullmatch(name):
            yield f"{what} {shown(name)}: a name has letters, digits and '_', 63 at most"
        if name in seen:
            yield f"{what} {name} is named twice, or is a name of the dataset's own"
        seen.add(name)


@dataclass(frozen=True)
class Imported:
    """The result of an import."""

    url: str
    version: str
    num_cases: int
    """Cases of the source that the dataset now holds"""
    num_new: int
    """Cases that were not on record before"""
    num_skipped: int = 0
    """Cases that were not imported, each passed to `on_skipped`"""
    left_out: tuple[str, ...] = ()
    """Cases of the version that training leaves out, as they have nearly all variance of a field"""
    in_double: Mapping[str, int] = field(default_factory=dict)
    """In how many of the new cases an array is stored in double precision, by its name"""


def import_cases(
    url: str,
    schema: Schema,
    cases: Iterable[SourceCase | UnreadCase],
    *,
    message: str = "",
    on_progress: Callable[[int, str], None] = lambda done, case: None,
    on_skipped: Callable[[str, str], None] | None = None,
) -> Imported:
    """Write the cases into the dataset at `url` and publish them as a version.

    `schema` comes from `imported_schema`; an existing dataset must have the same. Run it again
    after an interruption, or with further cases for a further version. A case that does not follow
    the schema is passed to `on_skipped` with the reason in one line, and the others are imported;
    without `on_skipped` the reason is raised as InputError, and nothing is published. Nothing of a
    skipped case is written.
    """
    check_schema(schema)
    writing = _Writing(url, schema, read_on_record(url))
    num_skipped = 0
    for done, case in enumerate(cases, start=1):
        check_name(case.name)
        try:
            writing.add(case)
        except (InputError, CaseError) as error:
            if on_skipped is None:
                raise InputError(f"case {case.name}: {one_line(error)}") from error
            num_skipped += 1
            on_skipped(case.name, one_line(error))
        on_progress(done, case.name)
    if not writing.names:
        none = f"none of {num_skipped} cases is good" if num_skipped else "there are no cases"
        raise InputError(f"import into {url}: {none}")
    assert schema.source is not None
    version = writing.publish(message or f"{len(writing.names)} cases of {schema.source.name}")
    return Imported(
        url,
        version,
        len(writing.names),
        writing.num_new,
        num_skipped,
        open_dataset(url, version).left_out_cases,
        dict(writing.in_double),
    )


class _Writing:
    """An import in progress. The dataset is made with the first case that is good."""

    def __init__(self, url: str, schema: Schema, there: OnRecord | None) -> None:
        self.url, self.schema = url, schema
        if there is not None:
            self._check_same(there.schema)
        rows = {} if there is None else there.held
        self.splits = {name: row.get(PUBLISHED) for name, row in rows.items()}
        self.marks = {name: row[IMPORTED] for name, row in rows.items() if IMPORTED in row}
        self.contents = {marks["content"]: name for name, marks in self.marks.items()}
        self.names: set[str] = set()
        self.num_new = 0
        self.in_double: Counter[str] = Counter()
        self.fork: CaseFork | None = None
        self.began = 0.0

    def _check_same(self, stored: Schema) -> None:
        """Raise InputError that names where the schema differs from the existing dataset's."""
        there, asked = (json.loads(json.dumps(of.to_json())) for of in (stored, self.schema))
        if differing := [name for name in asked if there.get(name) != asked[name]]:
            raise InputError(
                f"{self.url} holds {stored.family} with another {', '.join(differing)}: choose"
                " another store"
            )

    @cached_property
    def writer(self) -> DatasetWriter:
        writer = DatasetWriter.open(self.url, self.schema)
        self._check_same(writer.schema)
        return writer

    @cached_property
    def digests(self) -> dict[str, str]:
        """Those of the cases on record; withdrawn ones may come again."""
        rows = self.writer.design().items()
        return {name: row["digest"] for name, row in rows if row["status"] != "withdrawn"}

    def add(self, case: SourceCase | UnreadCase) -> None:
        """Check the case and write it, unless the dataset holds it; InputError if it is wrong."""
        if case.name in self.names:
            raise InputError("a case before it has the same name: names must differ")
        if isinstance(case, SourceCase):
            self._add(case_record(case, self.schema), as_cloud(case, self.schema))
            return
        marks: Mapping[str, Any] = self.marks.get(case.name, {})
        if marks.get("files") == case.files:
            self.names.add(case.name)
            return
        source = case.read()
        result, cloud = case_record(source, self.schema), as_cloud(source, self.schema)
        content = digest_record(digest_cloud(cloud, self.schema))
        if (twin := self.contents.get(content, case.name)) != case.name:
            raise InputError(f"all its values are those of {twin}: one is a copy")
        # Copied files have other dates; a case of the same values is the same case.
        if marks.get("content") != content:
            marks = {"files": case.files, "content": content}
        self._add(replace(result, provenance={**result.provenance, IMPORTED: marks}), cloud)
        self.contents[content] = case.name

    def _add(self, result: CaseResult, cloud: PointCloud) -> None:
        if result.id in self.digests:
            recorded = self.splits.get(result.id, result.split)
            if result.split != recorded:
                raise InputError(
                    f"{self.url} has it in the split {recorded}, not in {result.split}: a case"
                    " keeps its split; import into another store"
                )
            if self.digests[result.id] != case_digest(result, digest_cloud(cloud, self.schema)):
                raise InputError(
                    f"{self.url} has it with other content: import it under another name, or into"
                    " another store"
                )
            self.names.add(result.id)
            return
        self.names.add(result.id)
        if self.fork is None:
            self.fork, self.began = self.writer.fork(), time.monotonic()
        self.fork.write(result, cloud)
        self.num_new += 1
        arrays = {"points": cloud.points, **cloud.fields}
        self.in_double.update(name for name, each in arrays.items() if each.dtype == "f8")
        is_late = time.monotonic() - self.began > SECONDS_A_COMMIT
        if is_late or len(self.fork.records) >= CASES_A_COMMIT:
            self._commit()

    def _commit(self) -> None:
        if self.fork is not None:
            self.writer.commit([self.fork])
            self.fork = None

    def publish(self, message: str) -> str:
        """Publish all cases; InputError where the dataset holds unpublished ones of another."""
        self._commit()
        if lost := self.names - set(self.writer.known()):
            raise StoreError(
                f"{self.url}: {min(lost)} and {len(lost) - 1} more cases are not on record: another"
                " import ran at the same time; run again"
            )
        if foreign := self.writer.unpublished() - self.names:
            raise InputError(
                f"{self.url} holds {min(foreign)} and {len(foreign) - 1} more cases of an import"
                " that was cut off and that this one lacks: add them too, or import into another"
                " store"
            )
        return self.writer.publish(message)
