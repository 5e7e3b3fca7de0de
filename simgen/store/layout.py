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

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec

from simgen.case import CaseFamily, Field
from simgen.design_space import Parameter
from simgen.errors import InputError, StoreError
from simgen.point_cloud import BoundaryCloud, PointCloud
from simgen.provenance import generator_version
from simgen.store.digest import ArrayDigest, digest_array

SCHEMA_VERSION = 2

#: Bytes of a chunk before compression: a window of a hundred snapshots of a 2,300-cell case reads two or three.
CHUNK_BYTES = 1 << 20
#: Shuffled bytes of neighbouring floats compress a third better than plain zstd, at the same speed.
COMPRESSOR = BloscCodec(cname="zstd", clevel=3, shuffle="shuffle")

DISTANCE_COLUMNS = ("distance", "direction_x", "direction_y", "direction_z")
FACE_COLUMNS = ("x", "y", "z", "normal_x", "normal_y", "normal_z", "area", "patch")
_COLUMNS = {"distance_field": DISTANCE_COLUMNS, "faces": FACE_COLUMNS}


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


def write_cloud(group: zarr.Group, cloud: PointCloud, schema: Schema) -> list[ArrayDigest]:
    """Write an accepted case's arrays below its group; the digests of their content."""
    static = {"points": cloud.points, "volumes": cloud.volumes, "distance_field": pack_distance(cloud)}
    if cloud.time is not None:
        static["time"] = cloud.time
    written = [_write(group, name, values, time_axis=False) for name, values in static.items()]
    boundary = group.create_group("boundary")
    written.append(_write(boundary, "faces", pack_faces(cloud.boundary), time_axis=False))
    for field in schema.fields:
        for place, fields in ((group, cloud.fields), (boundary, cloud.boundary.fields)):
            written.append(_write(place, field.name, fields[field.name], time_axis=schema.transient, unit=field.unit))
    return written


def pack_distance(cloud: PointCloud) -> np.ndarray:
    """(N, K, 4): the distance to each patch kind, and the direction to it."""
    return np.concatenate([cloud.distance[..., None], cloud.direction], axis=-1)


def pack_faces(boundary: BoundaryCloud) -> np.ndarray:
    """(B, 8) in the order of FACE_COLUMNS; a patch kind's index is exact in f4."""
    columns = [boundary.points, boundary.normals, boundary.areas[:, None], boundary.patch[:, None]]
    return np.concatenate(columns, axis=1, dtype=np.float32)


def _write(group: zarr.Group, name: str, values: np.ndarray, *, time_axis: bool, unit: str = "") -> ArrayDigest:
    """A chunk holds whole snapshots, as many as fit; an array without time is split along its points."""
    values = np.ascontiguousarray(values)
    attributes: dict[str, Any] = {"unit": unit} if unit else {}
    if name in _COLUMNS:
        attributes["columns"] = list(_COLUMNS[name])
    row_bytes = max(1, values.nbytes // max(1, len(values)))
    rows = min(max(1, len(values)), max(1, CHUNK_BYTES // row_bytes))
    array = group.create_array(
        name,
        shape=values.shape,
        dtype=values.dtype,
        chunks=(rows, *values.shape[1:]),
        # The checksum comes last, so that it covers the bytes as they are stored, and is checked at each read.
        compressors=[COMPRESSOR, Crc32cCodec()],
        attributes=attributes,
        dimension_names=_dimensions(group, name, values.ndim, time_axis),
    )
    array[...] = values
    return digest_array(_name_in_case(group, name), values, unit)


def _name_in_case(group: zarr.Group, name: str) -> str:
    """`velocity`, or `boundary/velocity`."""
    return f"boundary/{name}" if group.name.endswith("/boundary") else name


def _dimensions(group: zarr.Group, name: str, ndim: int, time_axis: bool) -> list[str]:
    """Names that xarray shows, and by which it knows shared axes."""
    along = "face" if group.name.endswith("/boundary") else "point"
    if name == "time":
        return ["time"]
    last = {"points": ["axis"], "distance_field": ["patch_kind", "distance_column"], "faces": ["face_column"]}
    named = last.get(name, [f"{name}_component"] if ndim - time_axis == 2 else [])
    return [*(["time"] if time_axis else []), along, *named]
