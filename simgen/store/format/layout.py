"""THE data format: what stands where in a dataset, with which shapes, units and chunks.

    /                      attrs: schema (a dict that a person can read), the keys of
                           `Schema.to_attrs`
    cases/<id>/            attrs: parameters, settings, family_revision, status, reason
        points (N, 3) f4 m · volumes (N,) f4 m3 · time (T,) f8 s
        distance_field (N, K, 4) f4, by patch kind in the schema's order: distance in m, unit vector
        to the nearest face
        <field> (T, N, C) f4 transient, (N, C) steady, in the field's unit
        mesh_points (P, 3) f4 m, mesh_cells (E,) i4: the N cells and B faces by their corners, as
        `simgen.cell_mesh` reads them; absent in cases of older releases and of imported data
        boundary/faces (B, 8) f4: centre in m, outward normal, area in m2, index of the patch kind ·
        boundary/<field>
    design/records         a row per case: parameters, status, reason, quantities, sizes, digest
    provenance/records     per case: gates, log_tail, provenance
    splits/records         case -> train | validation | test; attrs: seed and ratios
    statistics/            attrs fields: training statistics per component · records: moments per
                           case

The schema says which of these a dataset has: the cloud of the boundary, the distance field and the
volumes may be absent. `points` have three columns whatever the dimension, zeros behind.

The records are JSON lines (`records.py`, `tables.py`). Accepted cases carry arrays; rejected and
failed ones their attributes alone. A case group is written once, by the worker that solved the
case; `design`, `provenance` and the moments grow with each commit, `splits` and the statistics with
each publication.

Versions of the schema: 1 had other tables and arrays (`schema_1.py`); 2 had every part, and no
roles of fields; 3 says what is there. A dataset keeps the version that it was made with when cases
are appended to it, but for version 1, which becomes 2.

Points, mesh points, faces and fields are f8 where single precision would lose what varies of them
(`simgen.moments`): a pressure of 1e5 Pa that varies by 0.04 Pa, coordinates of a map. Each
case's array has its own type.

Why a case has few arrays and small attributes: Icechunk keeps the metadata of every node in one
snapshot file that each commit writes anew and each opening reads, and a commit's time grows with
the square of the number of arrays (docs/datasets.md has figures).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from simgen.case import CaseFamily, Field
from simgen.design_space import Parameter
from simgen.errors import InputError, StoreError
from simgen.point_cloud import PointCloud
from simgen.provenance import generator_version
from simgen.quantities import StatedQuantity
from simgen.store.format.split import Origin

SCHEMA_VERSION = 3
#: The version that a dataset of version 1 gets when it is written to.
UPGRADED_VERSION = 2
#: The keys of a schema, and of each of its fields, before version 3.
_KEYS_2 = (
    "family",
    "family_revision",
    "dimension",
    "transient",
    "patch_kinds",
    "fields",
    "parameters",
)
_FIELD_KEYS_2 = ("name", "unit", "components", "openfoam")

DISTANCE_COLUMNS = ("distance", "direction_x", "direction_y", "direction_z")
FACE_COLUMNS = ("x", "y", "z", "normal_x", "normal_y", "normal_z", "area", "patch")


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
    """What the cases' rows of the design table hold besides; none in datasets of older releases"""
    version: int = SCHEMA_VERSION

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

    def upgraded(self) -> Schema:
        """Return the schema that a dataset of version 1 gets when it is written to."""
        return replace(self, version=max(self.version, UPGRADED_VERSION))

    def to_json(self) -> dict[str, Any]:
        """Return the content of the schema in its version's form."""
        content = asdict(self)
        del content["version"]
        for name in ("startup_s", "quantities"):
            if not content[name]:  # as in datasets that were made before there was one
                del content[name]
        if self.version >= SCHEMA_VERSION:
            return content
        fields = [{key: each[key] for key in _FIELD_KEYS_2} for each in content["fields"]]
        return {**{key: content[key] for key in _KEYS_2}, "fields": fields}

    def to_attrs(self) -> dict[str, Any]:
        """Return JSON-ready root attributes."""
        return {
            "schema_version": self.version,
            "generator_version": generator_version(),
            "schema": self.to_json(),
        }

    @classmethod
    def from_attrs(cls, attrs: Mapping[str, Any], url: str) -> Schema:
        """Read the schema of an opened dataset.

        StoreError where it is none, or newer than this release.
        """
        if "schema_version" not in attrs:
            raise StoreError(
                f"{url} is an Icechunk repository but not a dataset of this project: it has no"
                " schema_version"
            )
        if attrs["schema_version"] > SCHEMA_VERSION:
            raise StoreError(
                f"{url} has schema version {attrs['schema_version']}, this release reads up to"
                f" {SCHEMA_VERSION}: upgrade the package"
            )
        content = attrs["schema"]
        known = {key: content[key] for key in _KEYS_2}
        if attrs["schema_version"] >= SCHEMA_VERSION:
            source = content["source"]
            known |= {key: content[key] for key in ("boundary", "volumes", "splits")}
            known |= {key: _tuple(content[key]) for key in ("distance_kinds", "grid_shape")}
            known["source"] = None if source is None else Source(**source)
            known["startup_s"] = float(content.get("startup_s", 0.0))
            known["quantities"] = tuple(
                StatedQuantity(**each) for each in content.get("quantities", ())
            )
        known["patch_kinds"] = tuple(content["patch_kinds"])
        known["fields"] = tuple(
            Field(**{**field, "components": tuple(field["components"])})
            for field in content["fields"]
        )
        known["parameters"] = tuple(Parameter(**each) for each in content["parameters"])
        return cls(**known, version=attrs["schema_version"])

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
