"""THE data format: what a dataset has where, with which shapes, units and chunks.

    /                      attrs: schema (a dict that a person can read), the keys of
                           `Schema.to_attrs`
    cases/<id>/            attrs: parameters, settings, family_revision, status, reason
        points (N, 3) f4 m · volumes (N,) f4 m3 · time (T,) f8 s
        distance_field (N, K, 4) f4, by patch kind in the schema's order: distance in m, unit vector
        to the nearest face
        <field> (T, N, C) f4 transient, (N, C) steady, in the field's unit
        mesh_points (P, 3) f4 m, mesh_cells (E,) i4: the N cells and B faces by their corners, as
        `simgen.cell_mesh` reads them; absent in imported cases without a mesh
        boundary/faces (B, 8) f4: centre in m, outward normal, area in m2, index of the patch kind ·
        boundary/<field>
    design/records         a row per case: parameters, status, reason, quantities, sizes, digest,
                           the place of its line in details/records
    details/records        per case: gates, log_tail, provenance, the digest of each array, the
                           checksum of each object
    splits/records         case -> train | validation | test; attrs: seed and ratios, the splits of
                           withdrawn cases
    statistics/            attrs fields: training statistics per component · records: moments per
                           case

The schema says which of these a dataset has: the cloud of the boundary, the distance field and the
volumes may be absent. `points` have three columns whatever the dimension, zeros behind.

Accepted cases have arrays; rejected and failed ones their attributes alone. A case group is written
once, by the worker that solved the case; `design`, `details` and the moments grow with each commit,
`splits` and the statistics with each publication.

Points, mesh points, faces and fields are f8 where single precision would lose what varies of them
(`simgen.moments`): a pressure of 1e5 Pa that varies by 0.04 Pa, coordinates of a map. Each
case's array has its own type.

Why a case has few arrays and small attributes: Icechunk keeps the metadata of every node in one
snapshot file that each commit writes anew and each opening reads, and a commit's time grows with
the square of the number of arrays (docs/datasets.md has figures). So tables over cases are JSON
lines in one array of bytes each, to which a commit appends.

Integrity. Zarr's CRC-32C follows each chunk. Icechunk's own files have none: a flipped bit there,
or a file with another one's content, can return a chunk that is valid in itself and belongs
elsewhere, or none, which Zarr fills with zeros. So a case's line in `details` lists the checksum of
each of its objects (`object_checksum`), its row in `design` has a digest of the line, and the
commit of a version a digest of the tables (`version_digest`).
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

import google_crc32c
import numpy as np
import zarr
from zarr.abc.buffer import Buffer
from zarr.codecs import BloscCodec, Crc32cCodec, ZstdCodec

from simgen.case import CaseFamily, Field
from simgen.design_space import Parameter
from simgen.errors import InputError, StoreError
from simgen.point_cloud import BoundaryCloud, PointCloud
from simgen.provenance import generator_version
from simgen.quantities import StatedQuantity
from simgen.store.split import Origin

SCHEMA_VERSION = 4

DISTANCE_COLUMNS = ("distance", "direction_x", "direction_y", "direction_z")
FACE_COLUMNS = ("x", "y", "z", "normal_x", "normal_y", "normal_z", "area", "patch")
#: Columns of the design table: of imported cases, what tells whether the files that they were read
#: from have changed since, and the digest of their arrays; core-seconds of the case's solver.
IMPORTED, CORE_S = "imported", "core_s"

#: Bytes of a chunk before compression. Whole cases read 1.2 times (local disk) and 1.7 times (S3)
#: as fast as in chunks of 1 MiB; with 4 MiB they gain another tenth, and a window of 11 snapshots
#: takes 1.7 times as long. `python -m bench store`.
CHUNK_BYTES = 1 << 21
#: Size of solved velocities over raw: zstd 3 with byte shuffle 0.83 (decoded at 1.6 GB/s a core),
#: lz4 0.86 (3.5 GB/s), zstd 1 0.88, zstd 3 without shuffle 0.92, zstd 9 0.76 (encoded at 7 MB/s).
#: Stores outlive runs and networks are slower than decoders: size wins.
COMPRESSOR = BloscCodec(cname="zstd", clevel=3, shuffle="shuffle")
#: Bytes of a table's chunk before compression. An append rewrites half of one on average, a look-up
#: by place reads one or two.
TABLE_CHUNK_BYTES = 1 << 18
DIGEST_BYTES, CRC_BYTES = 16, 4
#: Key of a commit's metadata.
DIGEST = "digest"


@dataclass(frozen=True)
class Source:
    """The origin of imported cases."""

    name: str
    url: str
    licence: str


@dataclass(frozen=True)
class Schema:
    """The common properties of a dataset's cases; readable in the root's attributes."""

    family: str
    family_revision: int
    dimension: int
    transient: bool
    patch_kinds: tuple[str, ...]
    fields: tuple[Field, ...]
    parameters: tuple[Parameter, ...]
    boundary: bool = True
    """Whether cases have a cloud of boundary faces"""
    volumes: bool = True
    """Whether points have volumes"""
    distance_kinds: tuple[str, ...] | None = None
    """The patch kinds with a distance field; None = every one"""
    grid_shape: tuple[int, ...] | None = None
    """The grid's shape, if the points of every case are one regular grid; the last axis varies
    fastest. A case with a grid of its own has it on its record.
    """
    splits: Origin = "drawn"
    """Whether splits are drawn by seed, or published with imported data"""
    source: Source | None = None
    """None for cases solved by this project"""
    startup_s: float = 0.0
    """Simulated time that statistics leave out of the cases that go on behind it"""
    quantities: tuple[StatedQuantity, ...] = ()
    """What the cases' rows of the design table hold besides"""

    @classmethod
    def of(cls, family: CaseFamily) -> Schema:
        return cls(
            family.name,
            family.revision,
            family.dimension,
            family.transient,
            family.patch_kinds,
            family.fields,
            family.design_space.parameters,
            startup_s=family.startup_s,
            quantities=tuple(map(StatedQuantity.of, family.quantities)),
        )

    @property
    def measured_kinds(self) -> tuple[str, ...]:
        """The K patch kinds of the distance field, in its order."""
        return self.patch_kinds if self.distance_kinds is None else self.distance_kinds

    def of_role(self, role: str) -> tuple[Field, ...]:
        """Return the fields that are given, or those that are solved."""
        return tuple(field for field in self.fields if field.role == role)

    @property
    def boundary_fields(self) -> tuple[Field, ...]:
        """The fields on the boundary cloud."""
        return tuple(field for field in self.fields if self.boundary and field.on_boundary)

    def to_json(self) -> dict[str, Any]:
        """Return the content of the schema."""
        return asdict(self)

    def to_attrs(self) -> dict[str, Any]:
        """Return JSON-ready root attributes."""
        return {
            "schema_version": SCHEMA_VERSION,
            "generator_version": generator_version(),
            "schema": self.to_json(),
        }

    @classmethod
    def from_attrs(cls, attrs: Mapping[str, Any], url: str) -> Schema:
        """Read the schema of an opened dataset.

        StoreError where it is none, or of another release.
        """
        if "schema_version" not in attrs:
            raise StoreError(
                f"{url} is an Icechunk repository but not a dataset of this project: it has no"
                " schema_version"
            )
        if attrs["schema_version"] != SCHEMA_VERSION:
            raise StoreError(
                f"{url} has schema version {attrs['schema_version']}, this release reads"
                f" {SCHEMA_VERSION}: use the release that wrote it, or make the dataset again"
            )
        content = dict(attrs["schema"])
        source = content["source"]
        return cls(
            **content
            | {
                "patch_kinds": tuple(content["patch_kinds"]),
                "distance_kinds": _tuple(content["distance_kinds"]),
                "grid_shape": _tuple(content["grid_shape"]),
                "source": None if source is None else Source(**source),
                "fields": tuple(
                    Field(**{**field, "components": tuple(field["components"])})
                    for field in content["fields"]
                ),
                "parameters": tuple(Parameter(**each) for each in content["parameters"]),
                "quantities": tuple(StatedQuantity(**each) for each in content["quantities"]),
            }
        )

    def check(self, cloud: PointCloud) -> None:
        """Raise InputError where a point cloud does not follow the schema."""
        for problem in self._departures(cloud):
            raise InputError(f"point cloud{problem}")

    def _departures(self, cloud: PointCloud) -> Iterator[str]:
        if cloud.patch_kinds != self.patch_kinds:
            yield f" has patch kinds {cloud.patch_kinds}, the dataset {self.patch_kinds}"
        if (cloud.time is not None) != self.transient:
            yield f" is {'transient' if cloud.time is not None else 'steady'}, the dataset is not"
        has_distance = cloud.distance is not None
        for name, is_there, wanted in (
            ("a boundary", cloud.boundary is not None, self.boundary),
            ("volumes", cloud.volumes is not None, self.volumes),
            ("a distance field", has_distance, bool(self.measured_kinds)),
        ):
            if is_there != wanted:
                yield f" {'has' if is_there else 'lacks'} {name}, unlike the dataset"
        if has_distance and cloud.measured_kinds != self.measured_kinds:
            yield f" has distances to {cloud.measured_kinds}, the dataset to {self.measured_kinds}"
        yield from _wrong_fields(self.fields, cloud.fields, "")
        if cloud.boundary is not None:
            yield from _wrong_fields(self.boundary_fields, cloud.boundary.fields, "boundary/")
        yield from _wrong_types(cloud)
        yield from self._wrong_grid(cloud)

    def _wrong_grid(self, cloud: PointCloud) -> Iterator[str]:
        shape = self.grid_shape if cloud.grid_shape is None else cloud.grid_shape
        if shape is None:
            return
        if self.grid_shape not in (None, shape):
            yield f" is a grid {shape}, the dataset's are {self.grid_shape}"
        if len(shape) != self.dimension or math.prod(shape) != cloud.num_points:
            yield (
                f" has {cloud.num_points} points, its grid {shape} in {self.dimension} dimensions"
                " has other ones"
            )


def _wrong_types(cloud: PointCloud) -> Iterator[str]:
    """Describe arrays of other types than the format has."""
    boundary = {} if cloud.boundary is None else cloud.boundary.fields
    arrays = {
        "points": cloud.points,
        "volumes": cloud.volumes,
        "distance": cloud.distance,
        "direction": cloud.direction,
        "time": cloud.time,
        "mesh_points": None if cloud.mesh is None else cloud.mesh.points,
        "mesh_cells": None if cloud.mesh is None else cloud.mesh.entries,
        **cloud.fields,
        **{f"boundary/{name}": values for name, values in boundary.items()},
    }
    for name, values in arrays.items():
        wanted = np.dtype(_TYPES.get(name, "<f4"))
        if values is not None and not has_type(name, values.dtype, wanted):
            yield f": {name} is {values.dtype}, the dataset has {wanted}; convert it first"


#: Types of arrays that are not float32.
_TYPES = {"time": "<f8", "mesh_cells": "<i4"}
#: Arrays that are float32 whatever their values.
_SINGLE = ("volumes", "distance", "direction", "distance_field")


def has_type(array: str, found: Any, wanted: Any) -> bool:
    """Check the type of a case's array; most may be float64 in place of float32."""
    is_double = found == np.float64 and wanted == np.float32 and array not in _SINGLE
    return bool(found == wanted) or is_double


def _wrong_fields(fields: tuple[Field, ...], found: Mapping[str, Any], place: str) -> Iterator[str]:
    """Describe how the fields of a cloud differ from its dataset's."""
    for field in fields:
        values = found.get(field.name)
        if values is None or values.shape[-1] != len(field.components):
            what = "absent" if values is None else f"of {values.shape[-1]} components"
            yield (
                f": {place}{field.name} is {what}, the dataset has"
                f" {len(field.components)} components"
            )
    unknown = sorted(set(found) - {field.name for field in fields})
    if unknown:
        names = ", ".join(f"{place}{name}" for name in unknown)
        yield f" has {names}, which the dataset does not know"


def _tuple(values: Any) -> tuple[Any, ...] | None:
    return None if values is None else tuple(values)


def array_names(schema: Schema) -> tuple[str, ...]:
    """Name the arrays that every accepted case has; some have a mesh besides."""
    time = ("time",) if schema.transient else ()
    fields = tuple(field.name for field in schema.fields)
    volumes = ("volumes",) if schema.volumes else ()
    distance = ("distance_field",) if schema.measured_kinds else ()
    on_faces = ("faces", *(field.name for field in schema.boundary_fields))
    boundary = tuple(f"boundary/{name}" for name in on_faces) if schema.boundary else ()
    return ("points", *volumes, *distance, *time, *fields, *boundary)


@dataclass(frozen=True)
class CaseArray:
    """One array of a case, to be written: `velocity`, or `boundary/velocity`."""

    name: str
    values: np.ndarray
    dimensions: tuple[str, ...]
    unit: str = ""
    columns: tuple[str, ...] = ()

    @property
    def attributes(self) -> dict[str, Any]:
        unit = {"unit": self.unit} if self.unit else {}
        return {**unit, "columns": list(self.columns)} if self.columns else unit

    @property
    def chunks(self) -> tuple[int, ...]:
        """Shape of a chunk: as many whole snapshots as fit.

        An array without time is split along its points.
        """
        length = max(1, len(self.values))
        row_bytes = max(1, self.values.nbytes // length)
        return (min(length, max(1, CHUNK_BYTES // row_bytes)), *self.values.shape[1:])


def arrays_of(cloud: PointCloud, schema: Schema) -> list[CaseArray]:
    """List all arrays of a case, with names for their dimensions.

    xarray shows these names, and recognises shared axes by them.
    """
    arrays = [CaseArray("points", cloud.points, ("point", "axis"))]
    if cloud.volumes is not None:
        arrays.append(CaseArray("volumes", cloud.volumes, ("point",)))
    distance = pack_distance(cloud)
    if distance is not None:
        axes = ("point", "patch_kind", "distance_column")
        arrays.append(CaseArray("distance_field", distance, axes, columns=DISTANCE_COLUMNS))
    if cloud.time is not None:
        arrays.append(CaseArray("time", cloud.time, ("time",)))
    if cloud.mesh is not None:
        arrays.append(CaseArray("mesh_points", cloud.mesh.points, ("mesh_point", "axis")))
        arrays.append(CaseArray("mesh_cells", cloud.mesh.entries, ("mesh_entry",)))
    time = ("time",) if schema.transient else ()
    for field in schema.fields:
        along = (*time, "point", f"{field.name}_component")
        arrays.append(CaseArray(field.name, cloud.fields[field.name], along, field.unit))
    if cloud.boundary is None:
        return arrays
    faces = pack_faces(cloud.boundary)
    on_faces = ("face", "face_column")
    arrays.append(CaseArray("boundary/faces", faces, on_faces, columns=FACE_COLUMNS))
    for field in schema.boundary_fields:
        along = (*time, "face", f"{field.name}_component")
        values = cloud.boundary.fields[field.name]
        arrays.append(CaseArray(f"boundary/{field.name}", values, along, field.unit))
    return arrays


def pack_distance(cloud: PointCloud) -> np.ndarray | None:
    """Pack distance and direction to each patch kind into (N, K, 4); None where there are none."""
    if cloud.distance is None or cloud.direction is None:
        return None
    return np.concatenate([cloud.distance[..., None], cloud.direction], axis=-1)


def pack_faces(boundary: BoundaryCloud) -> np.ndarray:
    """Pack faces into (B, 8) in the order of FACE_COLUMNS, in the type of their points.

    A patch kind's index is exact in f4.
    """
    columns = [boundary.points, boundary.normals, boundary.areas[:, None], boundary.patch[:, None]]
    return np.concatenate(columns, axis=1, dtype=boundary.points.dtype)


class ArrayDigest:
    """The digest of one array, from its values in blocks along the first axis."""

    def __init__(
        self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], unit: str = ""
    ) -> None:
        self._hash = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self._hash.update(
            json.dumps([name, list(shape), dtype.newbyteorder("<").str, unit]).encode()
        )

    def update(self, block: np.ndarray) -> None:
        """Take in the next block."""
        ordered = np.ascontiguousarray(block, dtype=block.dtype.newbyteorder("<"))
        self._hash.update(ordered.reshape(-1).view(np.uint8).data)

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


def digest_array(name: str, values: np.ndarray, unit: str = "") -> str:
    """Compute the digest of an array in memory, independent of chunks and codecs."""
    digest = ArrayDigest(name, values.shape, values.dtype, unit)
    digest.update(values)
    return digest.hexdigest()


def digest_cloud(cloud: PointCloud, schema: Schema) -> dict[str, str]:
    """Return the digest of each array that an accepted case has, by name."""
    return {
        array.name: digest_array(array.name, array.values, array.unit)
        for array in arrays_of(cloud, schema)
    }


def digest_case(attributes: Mapping[str, Any], arrays: Mapping[str, str]) -> str:
    """Compute the digest of a case from what is known of it and the digests of its arrays.

    `attributes` are those of its group, and gates, log_tail and provenance.
    """
    return digest_record({"attrs": attributes, "arrays": dict(arrays)})


def digest_record(record: Mapping[str, Any]) -> str:
    """Compute the digest of JSON-ready content, whatever the order of its keys."""
    text = json.dumps(record, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).hexdigest()


def object_checksum(key: str, stored: Buffer) -> str:
    """Return the CRC-32C of an object of a case: of a chunk its last four bytes, which Zarr wrote.

    DamagedError where these do not match the chunk.
    """
    content = stored.as_numpy_array()
    if key.endswith("zarr.json"):
        return f"{google_crc32c.value(content):08x}"
    checksum = google_crc32c.value(content[:-CRC_BYTES])
    if content[-CRC_BYTES:].tobytes() != checksum.to_bytes(CRC_BYTES, "little"):
        raise DamagedError("its checksum does not match")
    return f"{checksum:08x}"


class DamagedError(ValueError):
    """Stored data that are not what was written; the message says how, in a few words."""


# The tables over cases.

TABLES = ("design", "details", "statistics", "splits")
#: Attribute of the splits' group: splits of cases that were published once and are withdrawn now.
WITHDRAWN = "withdrawn"
Row = dict[str, Any]
Place = tuple[int, int]
"""The place of a line in its table: first byte and length"""


def create_tables(root: zarr.Group) -> None:
    """Create the groups that all cases share."""
    root.create_group("cases")
    for name in TABLES:
        Table(root, name, create=True)


class Table:
    """A table of JSON lines; a later line of a case takes the place of an earlier one.

    Appending rewrites the last chunk and no other, so the cost of a commit does not depend on the
    number of cases.
    """

    def __init__(self, root: zarr.Group, name: str, *, create: bool = False) -> None:
        self.name, self._root = name, root
        if create:
            root.create_group(name)
            self.clear()
        self._array = cast(zarr.Array, root[f"{name}/records"])

    def clear(self) -> None:
        """Make the table empty."""
        self._array = self._root.require_group(self.name).create_array(
            "records",
            shape=(0,),
            dtype="u1",
            chunks=(TABLE_CHUNK_BYTES,),
            compressors=[ZstdCodec(level=3), Crc32cCodec()],
            attributes={
                "content": "JSON lines in UTF-8; a later line of a case replaces an earlier one"
            },
            dimension_names=["byte"],
            overwrite=True,
        )

    def append(self, records: Iterable[Mapping[str, Any]]) -> list[Place]:
        """Append a line for each record, which must be JSON-ready; return their places."""
        lines = [f"{json.dumps(each, separators=(',', ':'))}\n".encode() for each in records]
        if not lines:
            return []
        begin = int(self._array.shape[0])
        ends = begin + np.cumsum([len(line) for line in lines])
        self._array.resize((int(ends[-1]),))
        self._array[begin:] = np.frombuffer(b"".join(lines), np.uint8)
        return [(int(end) - len(line), len(line)) for end, line in zip(ends, lines, strict=True)]

    def content(self, begin: int = 0) -> bytes:
        """Return the lines as stored, from a byte on."""
        return np.asarray(self._array[begin:]).tobytes()

    def rows(self, content: bytes | None = None) -> Iterator[Row]:
        """Return the records in order; DamagedError for a line that cannot be decoded."""
        return map(self._parse, (self.content() if content is None else content).splitlines())

    def row(self, place: Place) -> Row:
        """Return the record at a place; chunks are kept for those beside it."""
        begin, length = place
        first, last = (at // TABLE_CHUNK_BYTES for at in (begin, begin + length - 1))
        content = b"".join(map(self._chunk, range(first, last + 1)))
        return self._parse(content[begin - first * TABLE_CHUNK_BYTES :][:length])

    @functools.cached_property
    def _chunk(self) -> Any:
        @functools.lru_cache(maxsize=8)
        def chunk(number: int) -> bytes:
            begin = number * TABLE_CHUNK_BYTES
            return np.asarray(self._array[begin : begin + TABLE_CHUNK_BYTES]).tobytes()

        return chunk

    def _parse(self, line: bytes) -> Row:
        try:
            record = json.loads(line)
        # A missing chunk reads as zeros; brackets nested thousands deep end in a RecursionError.
        except (ValueError, RecursionError) as error:
            raise DamagedError(f"a record of {self.name} cannot be decoded: {error}") from error
        if not isinstance(record, dict):
            raise DamagedError(f"a record of {self.name} is none")
        return record


def read_design(root: zarr.Group, content: bytes | None = None) -> dict[str, Row]:
    """Read every case's row of the design table, in the order of first appearance."""
    return {row.pop("case"): row for row in Table(root, "design").rows(content)}


def read_splits(root: zarr.Group, content: bytes | None = None) -> dict[str, str]:
    """Read the split by case, in the order of publication."""
    return {row["case"]: row["split"] for row in Table(root, "splits").rows(content)}


def read_withdrawn_splits(root: zarr.Group) -> dict[str, str]:
    """Read the splits of cases that were published once and are withdrawn now."""
    return dict(cast(Mapping[str, str], root["splits"].attrs.get(WITHDRAWN, {})))


def bound_splits(root: zarr.Group) -> dict[str, str]:
    """Return the splits that bind the next version, with those of cases withdrawn before."""
    return {**read_withdrawn_splits(root), **read_splits(root)}


def version_digest(root: zarr.Group, tables: Mapping[str, bytes], commit: Mapping[str, Any]) -> str:
    """Compute the digest of all that opening a version reads.

    These are the root's attributes, design and splits (as `tables`, by name), the training
    statistics, and the record of its commit, the metadata with the message.
    """
    digests = {
        name: hashlib.blake2b(content, digest_size=DIGEST_BYTES).hexdigest()
        for name, content in tables.items()
    }
    return digest_record(
        {
            "root": dict(root.attrs),
            "splits": dict(root["splits"].attrs),
            "statistics": dict(root["statistics"].attrs),
            "tables": digests,
            "commit": {name: value for name, value in commit.items() if name != DIGEST},
        }
    )
