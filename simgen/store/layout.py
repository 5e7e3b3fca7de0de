"""THE data format: what stands where in a dataset, with which shapes, units and chunks.

    /                      attrs: schema (a dict that a person can read), the keys of `Schema.to_attrs`
    cases/<id>/            attrs: parameters, settings, status, reason, gates, log_tail, provenance
        points (N, 3) f4 m · volumes (N,) f4 m3 · time (T,) f8 s
        distance (N, K) f4 m and direction (N, K, 3) f4, by patch kind in the schema's order
        <field> (T, N, C) f4 transient, (N, C) steady, in the field's unit
        boundary/points (B, 3) · normals (B, 3) · areas (B,) m2 · patch (B,) u1 index of the patch kind · <field>
    design/                attrs cases: one record per case (parameters, status, reason, sizes, moments of its fields)
    splits/                attrs members: case id -> train | validation | test, seed and ratios
    statistics/            attrs fields: training statistics per component

Accepted cases carry arrays; rejected and failed ones their attributes alone. A case group is written once, by the worker that
solved the case; `design` grows with each commit, `splits` and `statistics` are written by each publication.
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
from simgen.point_cloud import PointCloud
from simgen.provenance import generator_version
from simgen.store.digest import ArrayDigest, digest_array, digest_case

SCHEMA_VERSION = 1

#: Bytes of a chunk before compression: a window of a hundred snapshots of a 2,300-cell case reads two or three.
CHUNK_BYTES = 1 << 20
#: Shuffled bytes of neighbouring floats compress a third better than plain zstd, at the same speed.
COMPRESSOR = BloscCodec(cname="zstd", clevel=3, shuffle="shuffle")


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


def write_cloud(group: zarr.Group, cloud: PointCloud, schema: Schema) -> str:
    """Write an accepted case's arrays below its group; the digest of their content."""
    written: list[ArrayDigest] = []
    static = {
        "points": cloud.points,
        "volumes": cloud.volumes,
        "distance": cloud.distance,
        "direction": cloud.direction,
    }
    for name, values in static.items():
        written.append(_write(group, name, values, time_axis=False))
    if cloud.time is not None:
        written.append(_write(group, "time", cloud.time, time_axis=False))
    boundary = group.create_group("boundary")
    for name in ("points", "normals", "areas", "patch"):
        written.append(_write(boundary, name, getattr(cloud.boundary, name), time_axis=False))
    for field in schema.fields:
        for place, cloud_fields in ((group, cloud.fields), (boundary, cloud.boundary.fields)):
            written.append(
                _write(place, field.name, cloud_fields[field.name], time_axis=schema.transient, unit=field.unit)
            )
    return digest_case(written)


def _write(group: zarr.Group, name: str, values: np.ndarray, *, time_axis: bool, unit: str = "") -> ArrayDigest:
    """A chunk holds whole snapshots, as many as fit; an array without time is split along its points."""
    values = np.ascontiguousarray(values)
    row_bytes = max(1, values.nbytes // max(1, len(values)))
    rows = min(max(1, len(values)), max(1, CHUNK_BYTES // row_bytes))
    array = group.create_array(
        name,
        shape=values.shape,
        dtype=values.dtype,
        chunks=(rows, *values.shape[1:]),
        # The checksum comes last, so that it covers the bytes as they are stored, and is checked at each read.
        compressors=[COMPRESSOR, Crc32cCodec()],
        attributes={"unit": unit} if unit else None,
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
    last = {"distance": ["patch_kind"], "direction": ["patch_kind", "axis"], "points": ["axis"], "normals": ["axis"]}
    named = last.get(name, [f"{name}_component"] if ndim - time_axis == 2 else [])
    return [*(["time"] if time_axis else []), along, *named]
