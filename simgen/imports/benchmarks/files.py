"""Open the files of published benchmarks, with one line for each way in which they may be wrong."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from simgen.errors import InputError
from simgen.imports.told import told

MD5 = {
    "1D_diff-sorp_NA_NA.h5": "9d466d1213065619d087319e16d9a938",
    "3D_CFD_Rand_M1.0_Eta1e-08_Zeta1e-08_periodic_Train.hdf5": "45892a12d1066d54af74badae55c438e",
    "3D_CFD_Turb_M1.0_Eta1e-08_Zeta1e-08_periodic_Train.hdf5": "4f0eacaec5ff000bbd9a31026ea207b8",
}
"""Checksums that PDEBench publishes, in pdebench/data_download/pdebench_data_urls.csv"""


def check_md5(path: Path) -> None:
    """Raise InputError unless a file is the published one of its name; reads all of it."""
    if path.name not in MD5:
        raise InputError(
            f"{path} is none of the files whose checksums are published ({', '.join(MD5)});"
            " --other-files takes it as it is"
        )
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {told(error)}") from error
    if found.hexdigest() != MD5[path.name]:
        raise InputError(
            f"{path} has the MD5 {found.hexdigest()}, the published file {MD5[path.name]}: fetch it"
            " again, or take it as it is with --other-files"
        )


def find(folder: Path, name: str, where: str) -> Path:
    """Return the file called `name` at or below the folder; InputError says where to get it."""
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder; put {name} there, from {where}")
    found = sorted(folder.rglob(name))
    if not found:
        raise InputError(f"{folder} has no {name}; it is to be had from {where}")
    return found[0]


def open_npy(path: Path, shape: Sequence[int | None]) -> np.ndarray:
    """Map an .npy file of this shape, in which None stands for any number."""
    try:
        values = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path} cannot be read: {told(error)}") from error
    return checked(path, path.name, values, shape)


def read_mat(path: Path, shapes: Mapping[str, Sequence[int | None]]) -> dict[str, np.ndarray]:
    """Read arrays of a MATLAB file, each of its shape."""
    import scipy.io
    from scipy.io.matlab import MatReadError

    try:
        content = scipy.io.loadmat(path, variable_names=list(shapes))
    except (
        MatReadError,
        OSError,
        ValueError,
        TypeError,
        NotImplementedError,
        EOFError,
        zlib.error,
    ) as error:
        raise InputError(f"{path} cannot be read: {told(error)}") from error
    for name in shapes:
        if name not in content:
            raise InputError(f"{path} has no array {name}")
    return {name: checked(path, name, content[name], shape) for name, shape in shapes.items()}


def open_hdf5(path: Path) -> Any:
    """Open an HDF5 file for reading."""
    import h5py  # which only these files need

    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {told(error)}") from error


def member(file: Any, name: str, shape: Sequence[int | None]) -> Any:
    """Return a data set of an HDF5 file, unread; InputError where it is not of this shape."""
    if name not in file:
        raise InputError(f"{file.filename} has no data set {name}")
    return checked(Path(file.filename), name, file[name], shape)


def checked(path: Path, name: str, values: Any, shape: Sequence[int | None]) -> Any:
    """Return the values; InputError where they are not of the shape."""
    found = tuple(getattr(values, "shape", ()))
    fits = len(found) == len(shape) and all(
        wanted is None or wanted == size for wanted, size in zip(shape, found, strict=True)
    )
    if not fits:
        expected = ", ".join("any" if size is None else str(size) for size in shape)
        raise InputError(f"{path}: {name} has shape {found}, expected ({expected})")
    return values
