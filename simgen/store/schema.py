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

The boundary's cloud, the distance field and the volumes may be absent, as the schema says. `points`
have three columns whatever the dimension, zeros behind. Points, mesh points, faces and fields are
f8 where single precision would lose what varies of them (`simgen.moments`). Rejected and failed
cases have no arrays. `design`, `details` and the moments grow with each commit, `splits` and the
statistics with each publication.

A case has few arrays and small attributes, and tables over cases are JSON lines in one array of
bytes each: each commit writes the metadata of every node anew (docs/datasets.md has figures).

Integrity. Zarr's CRC-32C follows each chunk. Icechunk's own files have none: damage there can
return a chunk that belongs elsewhere, or none, which Zarr fills with zeros. So a case's line in
`details` lists the checksum of each of its objects (`object_checksum`), its row in `design` has a
digest of the line, and the commit of a version a digest of the tables (`version_digest`).
"""

import hashlib
import json
import math
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self, cast

import google_crc32c
import numpy as np
import zarr
from pydantic import TypeAdapter
from zarr.abc.buffer import Buffer
from zarr.codecs import BloscCodec, Crc32cCodec, ZstdCodec

from simgen.case import CaseFamily, Field
from simgen.cases.expressions import AskedQuantity, Expression
from simgen.design_space import Parameter
from simgen.errors import InputError, StoreError
from simgen.point_cloud import PointCloud
from simgen.provenance import generator_version
from simgen.quantities import StatedQuantity
from simgen.store.split import Origin

SCHEMA_VERSION = 4

DISTANCE_COLUMNS = ("distance", "direction_x", "direction_y", "direction_z")
MESH = ("mesh_points", "mesh_cells")
FACE_COLUMNS = ("x", "y", "z", "normal_x", "normal_y", "normal_z", "area", "patch")
COLUMNS = ("status", "reason", "num_points", "num_snapshots", "num_bytes", "wall_time_s")
"""Columns of `Dataset.design`, beside the case's id and split, its parameters and quantities"""
#: Columns of the design table: of imported cases, marks of the files that they were read from and
#: the digest of their arrays; core-seconds of the case's solver.
IMPORTED, CORE_S, COMMAND = "imported", "core_s", "command"

#: Bytes of a chunk before compression. Whole cases read 1.2 times (local disk) and 1.7 times (S3)
#: as fast as in chunks of 1 MiB; with 4 MiB they gain another tenth, and a window of 11 snapshots
#: takes 1.7 times as long. `python -m bench store`.
CHUNK_BYTES = 1 << 21
#: Size of solved velocities over raw: zstd 3 with byte shuffle 0.83 (decoded at 1.6 GB/s a core),
#: lz4 0.86 (3.5 GB/s), zstd 1 0.88, zstd 3 without shuffle 0.92, zstd 9 0.76 (encoded at 7 MB/s).
COMPRESSOR = BloscCodec(cname="zstd", clevel=3, shuffle="shuffle")
#: Bytes of a table's chunk before compression. An append rewrites half of one on average, a look-up
#: by place reads one or two.
TABLE_CHUNK_BYTES = 1 << 18
CRC_BYTES = 4
#: Key of a commit's metadata.
DIGEST = "digest"


@dataclass(frozen=True)
class Source:
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
    boundary: bool = True  # Whether cases have a cloud of boundary faces
    volumes: bool = True  # Whether points have volumes
    distance_kinds: tuple[str, ...] | None = None
    """The patch kinds with a distance field; None = every one"""
    grid_shape: tuple[int, ...] | None = None
    """The grid's shape, if the points of every case are one regular grid; the last axis varies
    fastest. A case with a grid of its own has it on its record.
    """
    splits: Origin = "drawn"  # Whether splits are drawn by seed, or published with imported data
    source: Source | None = None  # None for cases solved by this project
    startup_s: float = 0.0
    """Simulated time that statistics leave out of the cases that go on behind it"""
    quantities: tuple[StatedQuantity, ...] = ()
    """What the cases' rows of the design table hold besides; meanings of an import's are
    expressions"""

    @classmethod
    def of(cls, family: CaseFamily) -> Self:
        return cls(
            family.name,
            family.revision,
            family.dimension,
            family.transient,
            family.patch_kinds,
            family.fields,
            family.design_space.parameters,
            startup_s=family.startup_s,
            quantities=tuple(each.stated for each in family.quantities),
        )

    def expressions(self, asked: Iterable[AskedQuantity] | None = None) -> list[Expression]:
        """Return the expressions of imported cases, or what else is asked; patches are kinds."""
        own = (
            AskedQuantity(name=each.name, expression=each.meaning, unit=each.unit)
            for each in self.quantities
        )
        return [
            Expression(
                each,
                fields=self.fields,
                patches={kind: kind for kind in self.patch_kinds if self.boundary},
                parameters=[each.name for each in self.parameters],
                transient=self.transient,
                volumes=self.volumes,
            )
            for each in (own if asked is None else asked)
        ]

    def template_command(self, case: str = "CASE") -> str:
        """Return the command that solves designs of imported cases: one of them is varied."""
        varied = [
            shlex.quote(f"{of.name}={of.description}={of.low:g}:{of.high:g}:{of.unit}".rstrip(":"))
            for of in self.parameters
            if of.description
        ]
        options = " ".join(f"--vary {each}" for each in varied or ["NAME=FILE:ENTRY=LOW:HIGH:UNIT"])
        return f"courant generate {self.family}-designs --template {shlex.quote(case)} {options}"

    @property
    def measured_kinds(self) -> tuple[str, ...]:
        """The K patch kinds of the distance field, in its order."""
        return self.patch_kinds if self.distance_kinds is None else self.distance_kinds

    def of_role(self, role: str) -> tuple[Field, ...]:
        """Return the fields that are given, or those that are solved."""
        return tuple(field for field in self.fields if field.role == role)

    @property
    def boundary_fields(self) -> tuple[Field, ...]:
        return tuple(field for field in self.fields if self.boundary and field.on_boundary)

    def to_attrs(self) -> dict[str, Any]:
        """Return JSON-ready root attributes."""
        return {
            "schema_version": SCHEMA_VERSION,
            "generator_version": generator_version(),
            "schema": asdict(self),
        }

    @classmethod
    def from_attrs(cls, attrs: Mapping[str, Any], url: str) -> Self:
        """Read the schema of an opened dataset; StoreError where it is of another release."""
        version = attrs.get("schema_version", "none")
        if version != SCHEMA_VERSION:
            raise StoreError(
                f"{url} has schema version {version}, this release reads {SCHEMA_VERSION}: use the"
                " release that wrote it, or make the dataset again"
            )
        return TypeAdapter(cls).validate_python(attrs["schema"])

    def check_family(self, wanted: Self, url: str) -> None:
        """Raise InputError where the dataset at `url` with this schema is of another family."""
        if (self.family, self.family_revision) != (wanted.family, wanted.family_revision):
            raise InputError(
                f"{url} holds {self.family} revision {self.family_revision}, not"
                f" {wanted.family} revision {wanted.family_revision}: choose another store"
            )

    def check(self, cloud: PointCloud) -> None:
        """Raise InputError where a point cloud does not follow the schema."""

        def require_equal(what: str, of_cloud: object, own: object) -> None:
            if of_cloud != own:
                raise InputError(f"point cloud has {what} {of_cloud}, the dataset {own}")

        require_equal("patch kinds", cloud.patch_kinds, self.patch_kinds)
        require_equal("distances to", cloud.measured_kinds, self.measured_kinds)
        found = {array.name: array.values for array in arrays_of(cloud, self)}
        names, own = found.keys() - MESH, set(array_names(self))
        for wrong, differing in (("lacks", own - names), ("cannot have", names - own)):
            if differing:
                raise InputError(f"point cloud {wrong} {', '.join(sorted(differing))}")
        for stored in self.fields:
            for name in {stored.name, f"boundary/{stored.name}"} & found.keys():
                number = found[name].shape[-1]
                require_equal(f"components of {name}:", number, len(stored.components))
        types = {"time": ["f8"], "mesh_cells": ["i4"], "volumes": ["f4"], "distance_field": ["f4"]}
        for name, values in found.items():
            allowed = types.get(name, ["f4", "f8"])
            if values.dtype not in allowed:
                require_equal(f"{name} in type", values.dtype, np.dtype(allowed[0]))
        shape = self.grid_shape if cloud.grid_shape is None else cloud.grid_shape
        if shape is not None:
            require_equal("the grid", shape, self.grid_shape or shape)
            require_equal("points", cloud.num_points, math.prod(shape))
            require_equal("grid axes", len(shape), self.dimension)


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
    dimensions: tuple[str, ...]  # xarray shows these names, and recognises shared axes by them
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Its unit, or the names of its columns"""

    @property
    def chunks(self) -> tuple[int, ...]:
        """Shape of a chunk: as many whole snapshots as fit, or points of an array without time."""
        length = max(1, len(self.values))
        row_bytes = max(1, self.values.nbytes // length)
        return (min(length, max(1, CHUNK_BYTES // row_bytes)), *self.values.shape[1:])

    @property
    def digest(self) -> str:
        """The digest of name, shape, type, unit and values, independent of chunks and codecs."""
        dtype = self.values.dtype.newbyteorder("<")
        unit = self.attributes.get("unit", "")
        head = json.dumps([self.name, list(self.values.shape), dtype.str, unit])
        ordered = np.ascontiguousarray(self.values, dtype=dtype)
        return _digest(head.encode(), ordered.reshape(-1).view(np.uint8).data)


def arrays_of(cloud: PointCloud, schema: Schema) -> list[CaseArray]:
    """List all arrays of a case, with distances and faces packed as the format has them."""
    arrays = [CaseArray("points", cloud.points, ("point", "axis"))]
    if cloud.volumes is not None:
        arrays.append(CaseArray("volumes", cloud.volumes, ("point",)))
    if cloud.distance is not None and cloud.direction is not None:
        packed = np.concatenate([cloud.distance[..., None], cloud.direction], axis=-1)
        along = ("point", "patch_kind", "distance_column")
        columns = {"columns": list(DISTANCE_COLUMNS)}
        arrays.append(CaseArray("distance_field", packed, along, columns))
    if cloud.time is not None:
        arrays.append(CaseArray("time", cloud.time, ("time",)))
    if cloud.mesh is not None:
        arrays.append(CaseArray("mesh_points", cloud.mesh.points, ("mesh_point", "axis")))
        arrays.append(CaseArray("mesh_cells", cloud.mesh.entries, ("mesh_entry",)))
    places = [("", "point", cloud.fields)]
    if (boundary := cloud.boundary) is not None:
        # In the type of the points, in which a patch kind's index is exact.
        packed = np.column_stack(
            [boundary.points, boundary.normals, boundary.areas, boundary.patch]
        ).astype(boundary.points.dtype)
        columns = {"columns": list(FACE_COLUMNS)}
        arrays.append(CaseArray("boundary/faces", packed, ("face", "face_column"), columns))
        places.append(("boundary/", "face", boundary.fields))
    units = {field.name: field.unit for field in schema.fields}
    for place, axis, fields in places:
        for name, values in fields.items():
            time = () if cloud.time is None else ("time",)
            unit = {"unit": units[name]} if units.get(name) else {}
            along = (*time, axis, f"{name}_component")
            arrays.append(CaseArray(f"{place}{name}", values, along, unit))
    return arrays


# Digests and checksums.


class MismatchError(ValueError):
    """Stored data that are not what was written; the message describes how, in a few words."""


def digest_case(attributes: Mapping[str, Any], arrays: Mapping[str, str]) -> str:
    """Compute the digest of a case from its attributes with details, and its arrays' digests."""
    return digest_record({"attrs": attributes, "arrays": dict(arrays)})


def digest_record(record: Mapping[str, Any]) -> str:
    """Compute the digest of JSON-ready content, whatever the order of its keys."""
    return _digest(json.dumps(record, sort_keys=True, separators=(",", ":")).encode())


def _digest(head: bytes, rest: bytes | memoryview = b"") -> str:
    total = hashlib.blake2b(head, digest_size=16)
    total.update(rest)
    return total.hexdigest()


def object_checksum(key: str, stored: Buffer) -> str:
    """Return the CRC-32C of an object of a case: of a chunk its last four bytes, which Zarr wrote.

    MismatchError where these do not match the chunk.
    """
    content = stored.as_numpy_array()
    if key.endswith("zarr.json"):
        return f"{google_crc32c.value(content):08x}"
    checksum = google_crc32c.value(content[:-CRC_BYTES])
    if content[-CRC_BYTES:].tobytes() != checksum.to_bytes(CRC_BYTES, "little"):
        raise MismatchError("its checksum does not match")
    return f"{checksum:08x}"


# The tables over cases.

#: Attribute of the splits' group: splits of cases that were published once and are withdrawn now.
WITHDRAWN = "withdrawn"
Record = dict[str, Any]
Place = tuple[int, int]  # The place of a line in its table: first byte and length


def create_tables(root: zarr.Group) -> None:
    """Create the groups that all cases share."""
    root.create_group("cases")
    for name in ("design", "details", "statistics", "splits"):
        root.create_group(name)
        CaseTable(root, name, create=True)


class CaseTable:
    """A table of JSON lines; a later line of a case takes the place of an earlier one."""

    def __init__(self, root: zarr.Group, name: str, *, create: bool = False) -> None:
        """Open the table, or with `create` make an empty one, in place of one that is there."""
        self.name = name
        if not create:
            self._array = cast(zarr.Array, root[f"{name}/records"])
            return
        self._array = root.require_group(name).create_array(
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

    def content(self, begin: int = 0, end: int | None = None) -> bytes:
        """Return the lines as stored, or a part of them."""
        return np.asarray(self._array[begin:end]).tobytes()

    def rows(self, content: bytes | None = None) -> Iterator[Record]:
        """Return the records; ValueError for an undecodable line, as of a missing chunk's zeros."""
        for line in (self.content() if content is None else content).splitlines():
            yield json.loads(line)

    def row(self, place: Place) -> Record:
        begin, length = place
        return next(self.rows(self.content(begin, begin + length)), {})


def read_design(root: zarr.Group, content: bytes | None = None) -> dict[str, Record]:
    """Read every case's row of the design table, in the order of first appearance."""
    return {row.pop("case"): row for row in CaseTable(root, "design").rows(content)}


def read_splits(root: zarr.Group, content: bytes | None = None) -> dict[str, str]:
    """Read the split by case, in the order of publication."""
    return {row["case"]: row["split"] for row in CaseTable(root, "splits").rows(content)}


def bound_splits(root: zarr.Group) -> dict[str, str]:
    """Return the splits that bind the next version, with those of cases withdrawn before."""
    withdrawn = cast(Mapping[str, str], root["splits"].attrs.get(WITHDRAWN, {}))
    return {**withdrawn, **read_splits(root)}


def version_digest(root: zarr.Group, tables: Mapping[str, bytes], commit: Mapping[str, Any]) -> str:
    """Compute the digest of a version: design and splits, metadata with the message."""
    return digest_record(
        {
            "root": dict(root.attrs),
            "splits": dict(root["splits"].attrs),
            "statistics": dict(root["statistics"].attrs),
            "tables": {name: _digest(content) for name, content in tables.items()},
            "commit": {name: value for name, value in commit.items() if name != DIGEST},
        }
    )
