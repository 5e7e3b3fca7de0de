"""Publish the cases of a source as a dataset version.

- One case at a time is in memory, and is checked before anything of it is written.
- Readers see nothing until all cases are there: the version is published at the end.
- An interrupted import is simply run again: cases on record are compared by digest and skipped,
  those whose files have not changed since without being read.
- Names of a schema and of cases become paths, columns and words of commands, so they are checked.
"""

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import numpy as np

from simgen.case import CaseResult, Field, Gate, Role
from simgen.cases import FAMILIES
from simgen.cases.expressions import AskedQuantity, SolvedFields, usual_quantities
from simgen.cell_mesh import CellMesh
from simgen.design_space import DesignPoint, DesignSpace, Parameter
from simgen.errors import CaseError, InputError
from simgen.moments import stored_type, stored_type_of_points
from simgen.point_cloud import BoundaryCloud, PointCloud
from simgen.provenance import command_line
from simgen.quantities import StatedQuantity
from simgen.solving.gates import rejection
from simgen.store.read import open_dataset
from simgen.store.schema import COLUMNS, COMMAND, IMPORTED, Schema, Source, arrays_of, digest_record
from simgen.store.split import PUBLISHED, SPLITS, Origin
from simgen.store.versions import OnRecord, read_on_record
from simgen.store.write import CaseFork, DatasetWriter, case_digest

#: A commit's cost depends on the number of cases on record, hardly on how many are new.
CASES_A_COMMIT = 32

FAMILY = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")
MOST_LETTERS = 64
CASE_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MOST_LETTERS - 1}}}")
#: Names of a case's other arrays.
_ARRAYS = (
    *("points", "volumes", "time", "distance", "direction", "distance_field", "boundary"),
    *("faces", "mesh_points", "mesh_cells", "provenance"),
)
MOST_KINDS = 255  # A face's patch kind is one byte


def shown(value: object) -> str:
    """Return a foreign value as a few printable characters on one line."""
    return " ".join(ascii(value).split())[:60]


def one_line(error: BaseException) -> str:
    """Return an error's text on one line, without control characters."""
    printable = (each if each.isprintable() else " " for each in str(error))
    return " ".join("".join(printable).split())[:300]


def as_utf8(text: str) -> str:
    """Replace what UTF-8 cannot hold, as names of files may have: no store holds it."""
    return text.encode(errors="replace").decode()


def case_name(place: str) -> str:
    """Make the name of a case from its place in a folder: `runs/a 1` is `runs-a-1`."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", place).strip("-._") or "case"
    if len(name) <= MOST_LETTERS:
        return name
    digest = hashlib.blake2b(os.fsencode(place), digest_size=4).hexdigest()
    return f"{name[: MOST_LETTERS - len(digest) - 1]}-{digest}"


def grid_points(*axes: Any) -> np.ndarray:
    """Return (N, d) points of the grid over these coordinates, the last axis fastest."""
    coordinates = np.meshgrid(*(np.asarray(axis) for axis in axes), indexing="ij")
    return np.stack([values.ravel() for values in coordinates], axis=-1)


@dataclass(frozen=True)
class SourceCase:
    """One case as its source has it: N points in d dimensions, T snapshots, C components.

    points (N, d), or (N, 3) with zeros behind; fields (N, C), or (N,) for one component, on a grid
    (*grid, C) or (*grid,), transient with T in front; time (T,) s, increasing, None for a steady
    case; volumes (N,) m3, distance (N, K) m, direction (N, K, 3). Of a boundary points and normals
    may be (B, d), and patch names of kinds or their numbers in the schema's order; its fields are
    like those of the case.
    """

    name: str  # Its id in the dataset: letters, digits, '.', '_' and '-'
    points: Any
    fields: Mapping[str, Any]
    time: Any = None
    parameters: Mapping[str, float] = field(default_factory=dict)
    split: str | None = None  # train, validation or test, if the schema's splits are published
    grid_shape: Sequence[int] | None = None
    """The shape, if the points are a regular grid of this case's own"""
    volumes: Any = None
    distance: Any = None
    direction: Any = None
    boundary: BoundaryCloud | None = None
    mesh: CellMesh | None = None
    """The cells around the points and the faces of the boundary, to draw and for graphs"""
    gates: tuple[Gate, ...] = ()
    """Checks of the case; a case that did not pass one of them is not imported"""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """JSON-ready values for the case's record, such as its solver"""
    directory: Path | None = None  # OpenFOAM's, where quantities read what function objects wrote


@dataclass(frozen=True)
class UnreadCase:
    """A case that is read only if the dataset does not hold it already."""

    name: str
    files: str  # A digest that changes when a file of the case, or an option of its import, does
    read: Callable[[], SourceCase]
    """Raises InputError or CaseError in one line where it cannot be imported"""


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
    quantities: Sequence[str] | None = (),
) -> Schema:
    """Describe what all cases of a source have in common; InputError in one line if it is invalid.

    `name` is that of the dataset, and the `family` of experiments. Fields of role "given" are
    inputs of models, solved ones their targets. `splits`: whether each case comes with its split
    ("published"), or splits are drawn by seed ("drawn"). `boundary`, `volumes` and `distance_kinds`
    are those that come with each case; a boundary needs `patch_kinds`. `quantities` has
    NAME=EXPRESSION:UNIT of each (see `simgen.cases.expressions`); None: the usual ones.
    """
    schema = Schema(
        family=name,
        family_revision=1,
        dimension=dimension,
        transient=transient,
        patch_kinds=tuple(patch_kinds),
        fields=tuple(fields),
        parameters=tuple(replace(p, low=float(p.low), high=float(p.high)) for p in parameters),
        boundary=boundary,
        volumes=volumes,
        distance_kinds=tuple(distance_kinds),
        grid_shape=None if grid_shape is None else tuple(map(int, grid_shape)),
        splits=splits,
        source=source,
    )
    check_schema(schema)
    check_schema(schema := replace(schema, quantities=stated_quantities(schema, quantities)))
    return schema


def stated_quantities(
    schema: Schema, quantities: Sequence[str] | None
) -> tuple[StatedQuantity, ...]:
    """Return what these expressions are to cases of the schema; None: the usual ones."""
    if quantities is None:
        kinds = {kind: kind for kind in schema.patch_kinds if schema.boundary}
        asked = usual_quantities(schema.fields, kinds, schema.volumes)
    else:
        asked = tuple(map(AskedQuantity.parse, quantities))
    return tuple(each.checked().quantity.stated for each in schema.expressions(asked))


def check_schema(schema: Schema) -> None:
    """Raise InputError that names the first thing wrong with an import's schema."""

    def require(holds: object, problem: str) -> None:
        if not holds:
            raise InputError(f"import {shown(schema.family)}: {problem}")

    def require_names(what: str, names: Sequence[str], reserved: Sequence[str] = ()) -> None:
        for at, name in enumerate(names):
            form = "a name has letters, digits and '_', 63 at most"
            require(NAME.fullmatch(name), f"{what} {shown(name)}: {form}")
            is_free = name not in (*reserved, *names[:at])
            require(is_free, f"{what} {name} is named twice, or is a name of the dataset's own")

    form = "a name has small letters, digits and '-', 63 at most"
    require(FAMILY.fullmatch(schema.family), form)
    taken = "a family that is generated here has this name; choose another"
    require(schema.family not in FAMILIES, taken)
    require(schema.dimension in (1, 2, 3), f"dimension = {schema.dimension}, expected 1, 2 or 3")
    require(schema.source, "a source is needed: Source(name, url, licence)")
    require_names("field", [each.name for each in schema.fields], _ARRAYS)
    require(schema.of_role("solved"), "at least one field must be solved: it is what models learn")
    for each in schema.fields:
        role = f"{each.name} has role {shown(each.role)}, expected given or solved"
        require(each.role in get_args(Role), role)
        require(each.components, f"{each.name} has no components; name them, such as ('x', 'y')")
        require_names(f"component of {each.name}", each.components)
    taken_columns = ("case", "split", *COLUMNS)
    require_names("parameter", [each.name for each in schema.parameters], taken_columns)
    for parameter in schema.parameters:
        low, high = parameter.low, parameter.high
        found = f"{parameter.name} has the range {low} to {high}, expected low < high"
        require(-math.inf < low < high < math.inf, found)
    names = [each.name for each in schema.parameters]
    require_names("quantity", [each.name for each in schema.quantities], (*taken_columns, *names))
    kinds, measured = schema.patch_kinds, schema.measured_kinds
    require_names("patch kind", kinds)
    wrong = [kind for kind in measured if kind not in kinds or measured.count(kind) > 1]
    require(not wrong, f"distance_kinds: {shown(wrong[:1])} is no patch kind, or named twice")
    has_kinds = not schema.boundary or 0 < len(kinds) <= MOST_KINDS
    require(has_kinds, f"a boundary needs patch_kinds, {MOST_KINDS} at most")
    shape = schema.grid_shape
    is_grid = shape is None or (len(shape) == schema.dimension and min(shape) > 0)
    require(is_grid, f"grid_shape = {shape}, expected {schema.dimension} positive numbers")


@dataclass(frozen=True)
class Imported:
    url: str
    version: str
    num_cases: int  # Cases of the source that the dataset now holds
    num_new: int  # Cases that were not on record before
    num_skipped: int  # Cases that were not imported, each passed to `on_skipped`
    left_out: tuple[str, ...]
    """Cases of the version that training leaves out, as they have nearly all variance of a field"""


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

    An existing dataset must have the same schema. Run it again after an interruption, or with
    further cases. A case that does not follow the schema is passed to `on_skipped` with the reason
    in one line, and nothing of it is written; without `on_skipped` the reason is raised as
    InputError, and nothing is published.
    """
    check_schema(schema)
    assert schema.source is not None
    writing = _Writing(url, schema, read_on_record(url))
    num_skipped = 0
    for done, case in enumerate(cases, start=1):
        if not isinstance(case.name, str) or not CASE_NAME.fullmatch(case.name):
            raise InputError(
                f"import: case {shown(case.name)} needs a name of letters, digits, '.', '_' and"
                f" '-', {MOST_LETTERS} at most"
            )
        try:
            writing.add(case)
        except (InputError, CaseError) as error:
            if on_skipped is None:
                raise InputError(f"case {case.name}: {one_line(error)}") from error
            num_skipped += 1
            on_skipped(case.name, one_line(error))
        on_progress(done, case.name)
    num_cases = len(writing.names)
    if not num_cases:
        none = f"none of {num_skipped} cases is good" if num_skipped else "there are no cases"
        raise InputError(f"import into {url}: {none}")
    version = writing.publish(message or f"{num_cases} cases of {schema.source.name}")
    left_out = open_dataset(url, version).left_out_cases
    return Imported(url, version, num_cases, writing.num_new, num_skipped, left_out)


class _Writing:
    """An import in progress. The dataset is made with the first case that is good."""

    def __init__(self, url: str, schema: Schema, there: OnRecord | None) -> None:
        self.url, self.schema = url, schema
        if there is not None:
            stored, asked = (json.loads(json.dumps(asdict(of))) for of in (there.schema, schema))
            if differing := [name for name in asked if stored.get(name) != asked[name]]:
                another = f"{there.schema.family} with another {', '.join(differing)}"
                raise InputError(f"{url} holds {another}: choose another store")
        #: Rows of the cases on record; withdrawn ones may come again.
        self.rows = {} if there is None else there.held
        self.contents = {
            row[IMPORTED]["content"]: name for name, row in self.rows.items() if IMPORTED in row
        }
        self.names: set[str] = set()
        self.num_new = 0
        self.fork: CaseFork | None = None

    @cached_property
    def writer(self) -> DatasetWriter:
        return DatasetWriter.open(self.url, self.schema)

    def add(self, case: SourceCase | UnreadCase) -> None:
        """Check the case and write it, unless the dataset holds it; InputError if it is wrong."""
        if case.name in self.names:
            raise InputError("a case before it has the same name: names must differ")
        row = self.rows.get(case.name, {})
        marks: Mapping[str, Any] = row.get(IMPORTED, {})
        if isinstance(case, UnreadCase) and marks.get("files") == case.files:
            self.names.add(case.name)
            return
        source = case.read() if isinstance(case, UnreadCase) else case
        result, cloud = case_record(source, self.schema), as_cloud(source, self.schema)
        if expressions := self.schema.expressions():
            fields = SolvedFields(result.point.parameters, cloud, source.directory)
            measured = {each.asked.name: each(fields) for each in expressions}
            figures = {n: of for n, of in measured.items() if math.isfinite(of)}
            figures = {**result.provenance.get("figures", {}), **figures}
            result = replace(result, provenance={**result.provenance, "figures": figures})
        digest = {array.name: array.digest for array in arrays_of(cloud, self.schema)}
        same = row and row["digest"] == case_digest(result, digest)
        if isinstance(case, UnreadCase):
            content = digest_record(digest)
            if (twin := self.contents.setdefault(content, case.name)) != case.name:
                raise InputError(f"all its values are those of {twin}: one is a copy")
            # Copied files have other dates and lie elsewhere; the same values are the same case.
            same = marks.get("content") == content and row["parameters"] == result.point.parameters
            by = {IMPORTED: {"files": case.files, "content": content}, COMMAND: command_line()}
            result = replace(result, provenance={**result.provenance, **by})
        if row:
            recorded = row.get(PUBLISHED)
            if result.split != recorded:
                raise InputError(
                    f"{self.url} has it in the split {recorded}, not in {result.split}: a case"
                    " keeps its split; import into another store"
                )
            if not same:
                raise InputError(f"{self.url} has it with other content: rename the case")
        self.names.add(case.name)
        if row:
            return
        self.fork = self.fork or self.writer.fork()
        self.fork.write(result, cloud)
        self.num_new += 1
        if len(self.fork.records) >= CASES_A_COMMIT:
            self._commit()

    def _commit(self) -> None:
        if self.fork is not None:
            self.writer.commit([self.fork])
            self.fork = None

    def publish(self, message: str) -> str:
        """Publish all cases; InputError where the dataset holds unpublished ones of another."""
        self._commit()
        record = read_on_record(self.url)
        assert record is not None
        if foreign := record.unpublished - self.names:
            raise InputError(
                f"{self.url} holds {min(foreign)} and {len(foreign) - 1} more cases of an import"
                " that was cut off: add them too, or import into another store"
            )
        return self.writer.publish(message)


def case_record(case: SourceCase, schema: Schema) -> CaseResult:
    """Return the case's record, which depends on the case alone; InputError in one line."""
    split = case.split
    if schema.splits == "drawn" and split is not None:
        raise InputError("splits are drawn; leave out split")
    if schema.splits != "drawn" and split not in SPLITS:
        raise InputError(f"split is {shown(split)}, expected {', '.join(SPLITS)}")
    try:
        values = {str(name): float(value) for name, value in dict(case.parameters).items()}
        parameters = DesignSpace(schema.parameters).check(values)
        text = json.dumps(dict(case.provenance), allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InputError(f"a parameter is no number, or provenance no JSON ({error})") from error
    if why := rejection(list(case.gates)):
        raise InputError(why)
    assert schema.source is not None
    more = {"solver": "imported", "source": asdict(schema.source), "wall_time_s": {}}
    return CaseResult(
        DesignPoint(schema.family, schema.family_revision, parameters, {}),
        "accepted",
        gates=case.gates,
        provenance={**more, **json.loads(as_utf8(text))},
        name=case.name,
        split=split,
    )


def as_cloud(case: SourceCase, schema: Schema) -> PointCloud:
    """Convert the case's arrays to the shapes and types of a dataset.

    InputError names the first array that does not follow the schema.
    """
    points = _places(case.points, "points", schema.dimension)
    precision = stored_type_of_points(points, schema.dimension)
    time = None if case.time is None else _numbers(case.time, "time").astype("f8")
    if time is not None and (time.ndim != 1 or not len(time)):
        raise InputError(f"time has shape {time.shape}, expected (T,) seconds")
    frames = () if time is None else (len(time),)
    grid = schema.grid_shape if case.grid_shape is None else tuple(map(int, case.grid_shape))
    boundary, mesh = None, case.mesh
    if (faces := case.boundary) is not None:
        places = _places(faces.points, "boundary/points", schema.dimension)
        kinds, patch = schema.patch_kinds, np.asarray(faces.patch)
        if patch.dtype.kind == "U" and set(patch.tolist()) <= set(kinds):
            patch = np.array([kinds.index(kind) for kind in patch.tolist()], "u1")
        if patch.dtype.kind not in "iu" or not ((patch >= 0) & (patch < len(kinds))).all():
            raise InputError(
                f"boundary/patch must hold the names {', '.join(kinds)} or whole numbers from 0 to"
                f" {len(kinds) - 1}"
            )
        boundary = BoundaryCloud(
            points=places.astype(precision),
            normals=_places(faces.normals, "boundary/normals", schema.dimension).astype("f4"),
            areas=_numbers(faces.areas, "boundary/areas").astype("f4"),
            patch=patch.astype("u1"),
            fields=_fields(faces.fields, schema, (*frames, len(places)), None, "boundary/"),
        )

    single = {
        name: None if values is None else _numbers(values, name).astype("f4")
        for name, values in vars(case).items()
        if name in ("volumes", "distance", "direction")
    }
    cloud = PointCloud(
        points=points.astype(precision),
        **single,
        patch_kinds=schema.patch_kinds,
        time=time,
        fields=_fields(case.fields, schema, (*frames, len(points)), grid, ""),
        boundary=boundary,
        distance_kinds=schema.distance_kinds,
        grid_shape=None if case.grid_shape is None else grid,
        mesh=None if mesh is None else replace(mesh, points=mesh.points.astype(precision)),
    )
    schema.check(cloud)
    return cloud


def _numbers(values: Any, name: str) -> np.ndarray:
    """Return an array of real numbers that single precision can hold, if they are finite."""
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} is no array ({one_line(error)})") from error
    if array.dtype.kind not in "fiub":
        raise InputError(f"{name} is no array of real numbers but of {array.dtype}")
    largest = np.finfo("f4").max
    if wrong := int(np.count_nonzero(np.isfinite(array) & (np.abs(array) > largest))):
        raise InputError(f"{name} holds {wrong} values beyond {largest:.2g}, the largest stored")
    return array


def check_finite(values: np.ndarray, name: str) -> None:
    if wrong := int(np.count_nonzero(~np.isfinite(values))):
        raise InputError(f"{name} holds {wrong} values that are not finite")


def _places(values: Any, name: str, dimension: int) -> np.ndarray:
    """Return (N, 3) from (N, d)."""
    places = _numbers(values, name)
    if places.ndim == 1 and dimension == 1:
        places = places[:, None]
    if places.ndim != 2 or places.shape[1] not in (dimension, 3) or not len(places):
        raise InputError(f"{name} has shape {places.shape}, expected (N, {dimension})")
    if places[:, dimension:].any():
        raise InputError(f"{name} of a {dimension}D case must have zeros behind")
    check_finite(places, name)
    return np.pad(places, ((0, 0), (0, 3 - places.shape[1])))


def _fields(
    given: Mapping[str, Any],
    schema: Schema,
    rows: tuple[int, ...],
    grid: tuple[int, ...] | None,
    place: str,
) -> dict[str, np.ndarray]:
    """Return (*rows, C) by name, from arrays of a grid's shape, too, and without a C of 1."""
    wanted = {each.name: each for each in (schema.boundary_fields if place else schema.fields)}
    fields = {}
    for name, values in given.items():
        if name not in wanted:
            raise InputError(f"{place}fields: unknown {shown(name)}; expected {', '.join(wanted)}")
        array, components = _numbers(values, f"{place}{name}"), len(wanted[name].components)
        shape = (*rows, components)
        accepted = [shape] if grid is None else [shape, (*rows[:-1], *grid, components)]
        if components == 1:
            accepted += [each[:-1] for each in accepted]
        if array.shape not in accepted or array.size != math.prod(shape):
            raise InputError(f"{place}{name} has shape {array.shape}, expected {shape}")
        array = array.reshape(shape)
        check_finite(array, f"{place}{name}")
        fields[name] = np.ascontiguousarray(array, dtype=stored_type(array))
    return fields
