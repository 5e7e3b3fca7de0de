"""Ways to keep the same arrays: numpy files, HDF5, plain Zarr, the dataset store, the store behind
its local cache.

Each holds `cases` transient cases and one steady case, and opens anew in `open`, so that nothing is
remembered from before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import h5py
import numpy as np
import zarr
from zarr.abc.store import Store

import simgen
from bench.synthetic_cases import SCHEMA, publish_cases, synthetic_cloud, synthetic_result
from simgen.store.read import LocalCache, StoredCase

FIELD = "velocity"
STEADY_POINTS = 300_000
STEADY_SCHEMA = replace(SCHEMA, transient=False)
CaseArrays = Mapping[str, Mapping[str, np.ndarray]]
Layouts = Mapping[str, Mapping[str, zarr.Array]]


class Contender(Protocol):
    """Cases are called 0, 1, ... and steady."""

    name: str

    def open(self) -> None: ...

    def array(self, case: str, name: str) -> Any:
        """Something whose slices are read when they are taken."""

    def whole(self, case: str) -> dict[str, np.ndarray]:
        """Every array of a case, in memory."""


@dataclass
class Stores:
    """The dataset that the others are copies of."""

    transient_url: str
    steady_url: str
    num_cases: int

    @classmethod
    def write(cls, base: str, num_cases: int, sizes: tuple[int, int, int]) -> Stores:
        stores = cls(f"{base}/transient", f"{base}/steady", num_cases)
        transient = (
            (synthetic_result(number, sizes[-1]), synthetic_cloud(*sizes, seed=number))
            for number in range(num_cases)
        )
        publish_cases(stores.transient_url, SCHEMA, transient)
        cloud = synthetic_cloud(STEADY_POINTS, 10_000, 1)
        assert cloud.boundary is not None
        boundary, fields = (
            {name: values[0] for name, values in of.fields.items()}
            for of in (cloud.boundary, cloud)
        )
        faces = replace(cloud.boundary, fields=boundary)
        steady = replace(cloud, time=None, fields=fields, boundary=faces)
        publish_cases(stores.steady_url, STEADY_SCHEMA, [(synthetic_result(0, 1), steady)])
        return stores

    def cases(self) -> dict[str, StoredCase]:
        """Open the dataset anew."""
        transient = simgen.open_dataset(self.transient_url)
        steady = simgen.open_dataset(self.steady_url)[0]
        return {**{str(number): case for number, case in enumerate(transient)}, "steady": steady}

    def arrays(self) -> dict[str, dict[str, np.ndarray]]:
        """Every array by case, decoded."""
        return {name: case.read() for name, case in self.cases().items()}

    def layouts(self) -> Layouts:
        """Every array by case, for its chunks and codecs."""
        return {
            number: {name: case[name] for name in case.arrays()}
            for number, case in self.cases().items()
        }


class StoreContender:
    """The dataset store itself."""

    name = "dataset store"

    def __init__(self, stores: Stores) -> None:
        self.stores = stores

    def open(self) -> None:
        self._cases = self.stores.cases()

    def array(self, case: str, name: str) -> Any:
        return self._cases[case][name]

    def whole(self, case: str) -> dict[str, np.ndarray]:
        return self._cases[case].read()


class CacheContender(StoreContender):
    """The store behind its local cache, once that is filled."""

    name = "local cache"

    def __init__(self, stores: Stores, folder: Path) -> None:
        super().__init__(stores)
        self.folder = folder
        self.open()
        self._names = {case: tuple(stored.arrays()) for case, stored in self._cases.items()}
        for case in self._names:
            self.whole(case)

    def open(self) -> None:
        super().open()
        self._cache = LocalCache(self.folder, 1 << 32)

    def array(self, case: str, name: str) -> Any:
        return self._cache.arrays(self._cases[case], name)[name]

    def whole(self, case: str) -> dict[str, np.ndarray]:
        cached = self._cache.arrays(self._cases[case], *self._names[case])
        return {name: np.array(values) for name, values in cached.items()}


class MemmapContender:
    """A .npy file for each array."""

    name = "numpy memmap"

    def __init__(self, arrays: CaseArrays, folder: Path) -> None:
        self.folder = folder
        self._names = {case: tuple(of_case) for case, of_case in arrays.items()}
        for case, of_case in arrays.items():
            (folder / case / "boundary").mkdir(parents=True)
            for name, values in of_case.items():
                np.save(folder / case / f"{name}.npy", values)

    def open(self) -> None:
        self._open: dict[tuple[str, str], np.ndarray] = {}

    def array(self, case: str, name: str) -> Any:
        if (case, name) not in self._open:
            self._open[case, name] = np.load(self.folder / case / f"{name}.npy", mmap_mode="r")
        return self._open[case, name]

    def whole(self, case: str) -> dict[str, np.ndarray]:
        return {name: np.array(self.array(case, name)) for name in self._names[case]}


class Hdf5Contender:
    """One HDF5 file, in the chunks of the store, without compression."""

    name = "h5py, uncompressed"

    def __init__(self, arrays: CaseArrays, like: Layouts, path: Path) -> None:
        self.path = path
        self._names = {case: tuple(of_case) for case, of_case in arrays.items()}
        with h5py.File(path, "w") as file:
            for case, of_case in arrays.items():
                for name, values in of_case.items():
                    file.create_dataset(
                        f"{case}/{name}", data=values, chunks=like[case][name].chunks
                    )

    def open(self) -> None:
        self._file = h5py.File(self.path)

    def array(self, case: str, name: str) -> Any:
        return self._file[f"{case}/{name}"]

    def whole(self, case: str) -> dict[str, np.ndarray]:
        return {name: self.array(case, name)[...] for name in self._names[case]}


class ZarrContender:
    """A plain Zarr v3 store, in the chunks and codecs of the dataset store, read array by array."""

    def __init__(self, name: str, arrays: CaseArrays, like: Layouts, store: Store) -> None:
        self.name, self.store = name, store
        self._names = {case: tuple(of_case) for case, of_case in arrays.items()}
        root = zarr.open_group(store, mode="w")
        for case, of_case in arrays.items():
            for name_, values in of_case.items():
                original = like[case][name_]
                array = root.create_array(
                    f"{case}/{name_}",
                    shape=values.shape,
                    dtype=values.dtype,
                    chunks=original.chunks,
                    compressors=original.compressors,
                )
                array[...] = values

    def open(self) -> None:
        self._root = zarr.open_group(self.store, mode="r")

    def array(self, case: str, name: str) -> Any:
        return self._root[f"{case}/{name}"]

    def whole(self, case: str) -> dict[str, np.ndarray]:
        return {name: np.asarray(self.array(case, name)[...]) for name in self._names[case]}
