"""View a case's arrays as a lazy xarray.Dataset with the arrays' own clear errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray
import zarr
from xarray.backends import BackendArray
from xarray.core import indexing

from simgen.store.format.layout import Schema


class _LazyArray(BackendArray):
    """Let xarray index an array without reading all of it."""

    def __init__(self, array: zarr.Array) -> None:
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.OUTER, self._read
        )

    def _read(self, key: tuple[Any, ...]) -> np.ndarray:
        return np.asarray(self.array.oindex[key])


def dataset_of(arrays: Mapping[str, zarr.Array], schema: Schema) -> xarray.Dataset:
    """Build lazy variables by name, with units, named dimensions and named components.

    Only coordinates, such as time, are read.
    """
    opened = xarray.Dataset({name: _lazy(array) for name, array in arrays.items()})
    named = {f"{field.name}_component": list(field.components) for field in schema.fields}
    if "distance_field" in opened:
        field = opened["distance_field"]
        opened = opened.assign(
            distance=field[..., 0], direction=field[..., 1:].rename(distance_column="axis")
        )
        opened = opened.drop_vars("distance_field")
    if schema.measured_kinds:
        named["patch_kind"] = list(schema.measured_kinds)
    return opened.assign_coords(named)


def _lazy(array: zarr.Array) -> xarray.Variable:
    return xarray.Variable(
        array.metadata.dimension_names,
        indexing.LazilyIndexedArray(_LazyArray(array)),
        dict(array.attrs),
    )
