"""Read datasets of schema version 1; they are upgraded when written to.

Version 1 kept its tables and each case's provenance in attributes, and distance, direction and the
boundary's geometry as arrays of their own. An upgrade moves the tables; the case groups of an
upgraded dataset stay as they were written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import zarr

from simgen.store.format.layout import Schema

VERSION = 1


def is_schema_1(root: zarr.Group) -> bool:
    return root.attrs["schema_version"] == VERSION


def read_design(root: zarr.Group) -> dict[str, dict[str, Any]]:
    return dict(cast(dict[str, Any], root["design"].attrs["cases"]))


def read_splits(root: zarr.Group) -> dict[str, str]:
    return dict(cast(dict[str, str], root["splits"].attrs.get("members", {})))


def array_names(schema: Schema) -> tuple[str, ...]:
    """Name the arrays of an accepted case."""
    time = ("time",) if schema.transient else ()
    fields = tuple(field.name for field in schema.fields)
    boundary = tuple(
        f"boundary/{name}" for name in ("points", "normals", "areas", "patch", *fields)
    )
    return ("points", "volumes", "distance", "direction", *time, *fields, *boundary)


def drop_tables(root: zarr.Group) -> None:
    """Remove the tables from the attributes."""
    del root["design"].attrs["cases"]
    if "members" in root["splits"].attrs:
        del root["splits"].attrs["members"]


def read_details(root: zarr.Group, case: str) -> dict[str, Any]:
    attrs = root[f"cases/{case}"].attrs
    return {name: attrs[name] for name in ("gates", "log_tail", "provenance")}


def read_distance_field(read: Callable[[str], np.ndarray]) -> np.ndarray:
    """Return (N, K, 4) like `case_arrays.pack_distance`.

    `read` is a function that reads an array of the case.
    """
    return np.concatenate([read("distance")[..., None], read("direction")], axis=-1)


def read_faces(read: Callable[[str], np.ndarray]) -> np.ndarray:
    """Return (B, 8) like `case_arrays.pack_faces`.

    `read` is a function that reads an array of the case's boundary.
    """
    columns = [read("points"), read("normals"), read("areas")[:, None], read("patch")[:, None]]
    return np.concatenate(columns, axis=1).astype(np.float32)
