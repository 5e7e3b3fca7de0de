"""List the arrays of an accepted case, with shapes and types, for verification."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import zarr

from simgen.store.format.layout import DISTANCE_COLUMNS, FACE_COLUMNS, Schema, has_type

Shape = tuple[int, ...]


def expected_arrays(
    schema: Schema, found: Mapping[str, Shape], *, schema_1: bool
) -> dict[str, tuple[Shape, str]]:
    """Return shape and type by name, such as boundary/velocity.

    The numbers of points, faces and snapshots are taken from `found`. `schema_1` returns the arrays
    of a case of schema version 1.
    """
    cells = found.get("points", (0,))[:1]
    frames = found.get("time", (0,))[:1] if schema.transient else ()
    faces = found.get("boundary/points" if schema_1 else "boundary/faces", (0,))[:1]
    kinds = len(schema.measured_kinds)
    expected: dict[str, tuple[Shape, str]] = {"points": ((*cells, 3), "<f4")}
    if schema.volumes:
        expected["volumes"] = (cells, "<f4")
    if schema.transient:
        expected["time"] = (frames, "<f8")
    if schema_1:
        expected |= {"distance": ((*cells, kinds), "<f4"), "direction": ((*cells, kinds, 3), "<f4")}
        expected |= {f"boundary/{name}": ((*faces, 3), "<f4") for name in ("points", "normals")}
        expected |= {"boundary/areas": (faces, "<f4"), "boundary/patch": (faces, "|u1")}
    elif kinds:
        expected["distance_field"] = ((*cells, kinds, len(DISTANCE_COLUMNS)), "<f4")
    if schema.boundary and not schema_1:
        expected["boundary/faces"] = ((*faces, len(FACE_COLUMNS)), "<f4")
    if {"mesh_points", "mesh_cells"} & set(found):  # of cases whose cells have corners on record
        expected["mesh_points"] = ((*found.get("mesh_points", (0,))[:1], 3), "<f4")
        expected["mesh_cells"] = (found.get("mesh_cells", (0,))[:1], "<i4")
    for field in schema.fields:
        expected[field.name] = ((*frames, *cells, len(field.components)), "<f4")
    for field in schema.boundary_fields:
        shape = (*frames, *faces, len(field.components))
        expected[f"boundary/{field.name}"] = (shape, "<f4")
    return expected


def departures(
    schema: Schema, arrays: Mapping[str, zarr.Array], *, schema_1: bool
) -> Iterator[tuple[str, str]]:
    """List where an accepted case's arrays deviate from the schema: name and problem."""
    found = {name: (array.shape, array.dtype.str) for name, array in arrays.items()}
    expected = expected_arrays(
        schema, {name: shape for name, (shape, _) in found.items()}, schema_1=schema_1
    )
    for name in sorted({*expected, *found}):
        if name not in found:
            yield name, "is absent"
        elif name not in expected:
            yield name, "is unknown to the schema"
        elif not _agree(name, found[name], expected[name]):
            is_, should_be = found[name], expected[name]
            yield (
                name,
                f"has shape {is_[0]} and type {is_[1]}, expected {should_be[0]} and {should_be[1]}",
            )


def _agree(name: str, found: tuple[Shape, str], expected: tuple[Shape, str]) -> bool:
    return found[0] == expected[0] and has_type(name, np.dtype(found[1]), np.dtype(expected[1]))
