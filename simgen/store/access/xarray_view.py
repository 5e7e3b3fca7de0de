"""View a case's arrays as a lazy xarray.Dataset with the arrays' own clear errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray
import zarr
from xarray.backends import BackendArray
from xarray.core import indexing


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


def lazy_dataset(arrays: Mapping[str, zarr.Array]) -> xarray.Dataset:
    """Build lazy variables by name, with the arrays' dimension names and attributes.

    Only coordinates, such as time, are read.
    """
    return xarray.Dataset(
        {
            name: xarray.Variable(
                array.metadata.dimension_names,
                indexing.LazilyIndexedArray(_LazyArray(array)),
                dict(array.attrs),
            )
            for name, array in arrays.items()
        }
    )
