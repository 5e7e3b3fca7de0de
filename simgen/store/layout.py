"""THE data format: what stands where in a dataset, with which shapes, units and chunks.

    /                      attrs: schema (a dict that a person can read), the keys of `Schema.to_attrs`
    cases/<id>/            attrs: parameters, settings, family_revision, status, reason
        points (N, 3) f4 m · volumes (N,) f4 m3 · time (T,) f8 s
        distance_field (N, K, 4) f4, by patch kind in the schema's order: distance in m, unit vector to the nearest face
        <field> (T, N, C) f4 transient, (N, C) steady, in the field's unit
        boundary/faces (B, 8) f4: centre in m, outward normal, area in m2, index of the patch kind · boundary/<field>
    design/records         a row per case: parameters, status, reason, sizes, digest
    provenance/records     per case: gates, log_tail, provenance
    splits/records         case -> train | validation | test; attrs: seed and ratios
    statistics/            attrs fields: training statistics per component · records: moments per case

The records are JSON lines (`records.py`, `tables.py`). Accepted cases carry arrays; rejected and failed ones their attributes
alone. A case group is written once, by the worker that solved the case; `design`, `provenance` and the moments grow with each
commit, `splits` and the statistics with each publication.

Why a case has few arrays and small attributes: Icechunk keeps the metadata of every node in one snapshot file that each commit
writes anew and each opening reads, and a commit's time grows with the square of the number of arrays (docs/datasets.md has figures).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec
from zarr.core.sync import sync

from simgen.case import CaseFamily, Field
from simgen.design_space import Parameter
from simgen.errors import InputError, StoreError
from simgen.point_cloud import BoundaryCloud, PointCloud
from simgen.provenance import generator_version
from simgen.store.digest import ArrayDigest, digest_array

SCHEMA_VERSION = 2

#: Bytes of a chunk before compression. Whole cases read 1.2 times (local disk) and 1.7 times (S3) as fast as in chunks of 1 MiB;
#: with 4 MiB they gain another tenth, and a window of 11 snapshots takes 1.7 times as long. `python -m tests.benchmarks store`.
CHUNK_BYTES = 1 << 21
#: Size of solved velocities over raw: zstd 3 with byte shuffle 0.83 (decoded at 1.6 GB/s a core), lz4 0.86 (3.5 GB/s), zstd 1 0.88,
#: zstd 3 without shuffle 0.92, zstd 9 0.76 (encoded at 7 MB/s). Stores outlive runs and networks are slower than decoders: size wins.
COMPRESSOR = BloscCodec(cname="zstd", clevel=3, shuffle="shuffle")

DISTANCE_COLUMNS = ("distance", "direction_x", "direction_y", "direction_z")
FACE_COLUMNS = ("x", "y", "z", "normal_x", "normal_y", "normal_z", "area", "patch")


@dataclass(frozen=True)
class Schema:
    """What all cases of a dataset have in common; stored readably in the root's attributes."""

    family: str
    family_revision: int
    dimension: int
    transient: bool
    patch_kinds: tuple[str, ...]
    fields: tuple[Field, ...]
    parameters: tuple[Parameter, ...]

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
        )

    def to_attrs(self) -> dict[str, Any]:
        """JSON-ready root attributes."""
        return {"schema_version": SCHEMA_VERSION, "generator_version": generator_version(), "schema": asdict(self)}

    @classmethod
    def from_attrs(cls, attrs: Mapping[str, Any], url: str) -> Schema:
        """The schema of an opened dataset; StoreError where it is none, or newer than this release."""
        if "schema_version" not in attrs:
            raise StoreError(
                f"{url} is an Icechunk repository but not a dataset of this project: it has no schema_version"
            )
        if attrs["schema_version"] > SCHEMA_VERSION:
            raise StoreError(
                f"{url} has schema version {attrs['schema_version']}, this release reads up to {SCHEMA_VERSION}: upgrade the package"
            )
        content = attrs["schema"]
        return cls(
            content["family"],
            content["family_revision"],
            content["dimension"],
            content["transient"],
            tuple(content["patch_kinds"]),
            tuple(Field(**{**field, "components": tuple(field["components"])}) for field in content["fields"]),
            tuple(Parameter(**parameter) for parameter in content["parameters"]),
        )

    def check(self, cloud: PointCloud) -> None:
        """InputError where a point cloud does not follow the schema."""
        if cloud.patch_kinds != self.patch_kinds:
            raise InputError(f"point cloud has patch kinds {cloud.patch_kinds}, the dataset {self.patch_kinds}")
        if (cloud.time is not None) != self.transient:
            raise InputError(
                f"point cloud is {'transient' if cloud.time is not None else 'steady'}, the dataset is not"
            )
        for field in self.fields:
            values = cloud.fields.get(field.name)
            if values is None or values.shape[-1] != len(field.components):
                found = "absent" if values is None else f"of {values.shape[-1]} components"
                raise InputError(
                    f"point cloud: {field.name} is {found}, the dataset has {len(field.components)} components"
                )
        unknown = sorted(set(cloud.fields) - {field.name for field in self.fields})
        if unknown:
            raise InputError(f"point cloud has {', '.join(unknown)}, which the dataset does not know")


def array_names(schema: Schema) -> tuple[str, ...]:
    """The arrays of an accepted case."""
    time = ("time",) if schema.transient else ()
    fields = tuple(field.name for field in schema.fields)
    boundary = tuple(f"boundary/{name}" for name in ("faces", *fields))
    return ("points", "volumes", "distance_field", *time, *fields, *boundary)


def write_cloud(group: zarr.Group, cloud: PointCloud, schema: Schema) -> list[ArrayDigest]:
    """Write an accepted case's arrays below its group, side by side; the digests of their content."""
    arrays = _arrays(cloud, schema)
    sync(_write_all(group, arrays))
    return [digest_array(array.name, array.values, array.unit) for array in arrays]


@dataclass(frozen=True)
class _CaseArray:
    """One array of a case: `velocity`, or `boundary/velocity`."""

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
        """A chunk holds whole snapshots, as many as fit; an array without time is split along its points."""
        length = max(1, len(self.values))
        row_bytes = max(1, self.values.nbytes // length)
        return (min(length, max(1, CHUNK_BYTES // row_bytes)), *self.values.shape[1:])


def _arrays(cloud: PointCloud, schema: Schema) -> list[_CaseArray]:
    """All arrays of a case, with names for their dimensions that xarray shows, and by which it knows shared axes."""
    distance = ("point", "patch_kind", "distance_column")
    arrays = [
        _CaseArray("points", cloud.points, ("point", "axis")),
        _CaseArray("volumes", cloud.volumes, ("point",)),
        _CaseArray("distance_field", pack_distance(cloud), distance, columns=DISTANCE_COLUMNS),
        _CaseArray("boundary/faces", pack_faces(cloud.boundary), ("face", "face_column"), columns=FACE_COLUMNS),
    ]
    if cloud.time is not None:
        arrays.append(_CaseArray("time", cloud.time, ("time",)))
    time = ("time",) if schema.transient else ()
    for field in schema.fields:
        for place, along, fields in (("", "point", cloud.fields), ("boundary/", "face", cloud.boundary.fields)):
            dimensions = (*time, along, f"{field.name}_component")
            arrays.append(_CaseArray(f"{place}{field.name}", fields[field.name], dimensions, field.unit))
    return arrays


async def _write_all(group: zarr.Group, arrays: list[_CaseArray]) -> None:
    of_case = group._async_group
    await of_case.create_group("boundary")
    await asyncio.gather(*(_write(of_case, array) for array in arrays))


async def _write(group: zarr.AsyncGroup, array: _CaseArray) -> None:
    created = await group.create_array(
        array.name,
        shape=array.values.shape,
        dtype=array.values.dtype,
        chunks=array.chunks,
        # The checksum comes last, so that it covers the bytes as they are stored, and is checked at each read.
        compressors=[COMPRESSOR, Crc32cCodec()],
        attributes=array.attributes,
        dimension_names=array.dimensions,
        # A chunk of zeros is written like any other: one that is missing is lost.
        config={"write_empty_chunks": True},
    )
    await created.setitem(..., np.ascontiguousarray(array.values))


def pack_distance(cloud: PointCloud) -> np.ndarray:
    """(N, K, 4): the distance to each patch kind, and the direction to it."""
    return np.concatenate([cloud.distance[..., None], cloud.direction], axis=-1)


def pack_faces(boundary: BoundaryCloud) -> np.ndarray:
    """(B, 8) in the order of FACE_COLUMNS; a patch kind's index is exact in f4."""
    columns = [boundary.points, boundary.normals, boundary.areas[:, None], boundary.patch[:, None]]
    return np.concatenate(columns, axis=1, dtype=np.float32)
