"""Publish the cases of a source as a dataset version.

Notable properties:
- One case at a time is in memory, and is checked before anything of it is written.
- Readers see nothing until all cases are there: the version is published at the end.
- An interrupted import is simply run again: cases on record are compared by digest and skipped,
  those whose files have not changed since without being read.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace

from simgen.case import CaseResult
from simgen.design_space import DesignPoint
from simgen.errors import CaseError, InputError, StoreError
from simgen.imports.case_cloud import as_cloud
from simgen.imports.source_case import (
    SourceCase,
    UnreadCase,
    check_gates,
    check_name,
    check_parameters,
    check_provenance,
    check_split,
)
from simgen.imports.source_schema import check_schema
from simgen.imports.told import told
from simgen.point_cloud import PointCloud
from simgen.solving.gates import rejection
from simgen.store.read import open_dataset
from simgen.store.schema import IMPORTED, Schema, digest_cloud, digest_record
from simgen.store.split import PUBLISHED
from simgen.store.versions import read_on_record
from simgen.store.write import CaseFork, DatasetWriter, case_digest

#: A commit's cost depends on the number of cases on record, hardly on how many are new.
CASES_A_COMMIT = 32
SECONDS_A_COMMIT = 60.0


@dataclass(frozen=True)
class Imported:
    """The result of an import."""

    url: str
    version: str
    num_cases: int
    """Cases handed over"""
    num_new: int
    """Cases that were not on record before"""
    num_refused: int = 0
    """Cases that were not taken, each told to `on_refused`"""
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
    on_refused: Callable[[str, str], None] | None = None,
) -> Imported:
    """Write the cases into the dataset at `url` and publish them as a version.

    `schema` comes from `imported_schema`; an existing dataset must have the same. Run it again
    after an interruption, or with further cases for a further version. A case that does not follow
    the schema is told to `on_refused` with the reason in one line, and the others are imported;
    without `on_refused` the reason is raised as InputError, and nothing is published. Nothing of a
    refused case is written.
    """
    check_schema(schema)
    writing = _Writing(url, schema)
    num_refused = 0
    for done, case in enumerate(cases, start=1):
        try:
            writing.take(case)
        except (InputError, CaseError) as error:
            if on_refused is None:
                raise
            num_refused += 1
            on_refused(case.name, told(error))
        on_progress(done, str(getattr(case, "name", "")))
    if not writing.names:
        raise InputError(
            f"import into {url}: "
            + (f"none of {num_refused} cases is good" if num_refused else "there are no cases")
        )
    return writing.publish(message, num_refused)


def _prepared(case: SourceCase, schema: Schema) -> tuple[CaseResult, PointCloud]:
    """Check a case; its record depends only on what was handed over."""
    name, split = check_name(case), check_split(case, schema)
    point = DesignPoint(schema.family, schema.family_revision, check_parameters(case, schema), {})
    gates = check_gates(case)
    if why := rejection(list(gates)):
        raise InputError(f"case {name}: {why}")
    assert schema.source is not None
    provenance = {
        "solver": "imported",
        "source": asdict(schema.source),
        "wall_time_s": {},
        **check_provenance(case),
    }
    result = CaseResult(
        point, "accepted", gates=gates, provenance=provenance, name=name, split=split
    )
    return result, as_cloud(case, schema)


class _Writing:
    """An import in progress. The dataset is made with the first case that is good."""

    def __init__(self, url: str, schema: Schema) -> None:
        self.url, self.schema = url, schema
        there = read_on_record(url)
        if there is not None:
            _check_same(url, there.schema, schema)
        rows = {} if there is None else there.held
        self.names: set[str] = set()
        self.num_new = 0
        self._in_double: Counter[str] = Counter()
        self._splits = {name: row.get(PUBLISHED) for name, row in rows.items()}
        self._marks = {name: row[IMPORTED] for name, row in rows.items() if IMPORTED in row}
        self._contents = {marks["content"]: name for name, marks in self._marks.items()}
        self._digests: dict[str, str] = {}
        self._writer: DatasetWriter | None = None
        self._fork: CaseFork | None = None
        self._began = 0.0

    @property
    def writer(self) -> DatasetWriter:
        if self._writer is None:
            self._writer = DatasetWriter.open(self.url, self.schema)
            _check_same(self.url, self._writer.schema, self.schema)
            self._digests = {
                name: row["digest"]
                for name, row in self._writer.design().items()
                if row["status"] != "withdrawn"
            }
        return self._writer

    def take(self, case: SourceCase | UnreadCase) -> None:
        """Check the case and write it, unless the dataset holds it; InputError if it is wrong."""
        if isinstance(case, UnreadCase):
            self._take_unread(case)
        else:
            self._add(*_prepared(case, self.schema))

    def _take_unread(self, case: UnreadCase) -> None:
        marks = self._marks.get(case.name, {})
        if marks.get("files") == case.files:
            self._note(case.name)
            return
        result, cloud = _prepared(case.read(), self.schema)
        content = digest_record(digest_cloud(cloud, self.schema))
        twin = self._contents.get(content, case.name)
        if twin != case.name:
            raise InputError(f"case {case.name}: all its values are those of {twin}: one is a copy")
        # Copied files have other dates; a case of the same values is the same case.
        is_same = marks.get("content") == content
        marks = marks if is_same else {"files": case.files, "content": content}
        self._add(replace(result, provenance={**result.provenance, IMPORTED: marks}), cloud)
        self._contents[content] = case.name

    def _note(self, name: str) -> None:
        if name in self.names:
            raise InputError(f"case {name} is handed over twice: names must differ")
        self.names.add(name)

    def _add(self, result: CaseResult, cloud: PointCloud) -> None:
        writer = self.writer
        if result.id not in self._digests:
            self._write(result, cloud)
            return
        if result.split != self._splits.get(result.id, result.split):
            raise InputError(
                f"{writer.url} has case {result.id} in the split {self._splits[result.id]}, not in"
                f" {result.split}: a case keeps its split; import into another store"
            )
        digest = case_digest(result, digest_cloud(cloud, self.schema))
        if self._digests[result.id] != digest:
            raise InputError(
                f"{writer.url} has a case {result.id} with other content: import it under"
                " another name, or into another store"
            )
        self._note(result.id)

    def _write(self, result: CaseResult, cloud: PointCloud) -> None:
        self._note(result.id)
        if self._fork is None:
            self._fork, self._began = self.writer.fork(), time.monotonic()
        self._fork.write(result, cloud)
        self.num_new += 1
        arrays = {"points": cloud.points, **cloud.fields}
        self._in_double.update(name for name, each in arrays.items() if each.dtype == "f8")
        is_late = time.monotonic() - self._began > SECONDS_A_COMMIT
        if is_late or len(self._fork.records) >= CASES_A_COMMIT:
            self._commit()

    def publish(self, message: str, num_refused: int) -> Imported:
        """Publish what was taken; InputError where the dataset holds what was not."""
        self._commit()
        known = self.writer.known()
        if lost := self.names - set(known):
            raise StoreError(
                f"{self.url}: {min(lost)} and {len(lost) - 1} more cases are not on record: another"
                " import ran at the same time; run again"
            )
        if foreign := self.writer.unpublished() - self.names:
            raise InputError(
                f"{self.url} holds {min(foreign)} and {len(foreign) - 1} more cases of an import"
                " that was cut off and that this one lacks: hand them over too, or import into"
                " another store"
            )
        source = self.schema.source
        text = message or f"{len(self.names)} cases of {source.name if source else self.url}"
        version = self.writer.publish(text)
        return Imported(
            self.url,
            version,
            len(self.names),
            self.num_new,
            num_refused,
            open_dataset(self.url, version).left_out_cases,
            dict(self._in_double),
        )

    def _commit(self) -> None:
        if self._fork is not None:
            self.writer.commit([self._fork])
            self._fork = None


def _check_same(url: str, stored: Schema, schema: Schema) -> None:
    """Raise InputError that names where the schema differs from the existing dataset's."""
    there, asked = (json.loads(json.dumps(each.to_json())) for each in (stored, schema))
    differing = [name for name in asked if there.get(name) != asked[name]]
    if differing:
        raise InputError(
            f"{url} holds {stored.family} with another {', '.join(differing)}: choose another store"
        )
