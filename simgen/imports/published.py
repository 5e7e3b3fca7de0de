"""Read public benchmarks as published: their files, their splits, their resolution.

Each reader returns the schema, the number of cases that models are compared on, and the cases: 1000
training and 200 test cases of the steady ones, in the order of their files, as
Neural-Solver-Library has them.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import scipy.io

from simgen.case import Field
from simgen.errors import InputError
from simgen.imports.importing import SourceCase, grid_points, imported_schema, one_line
from simgen.store.schema import Schema, Source

GEO_FNO = "https://drive.google.com/drive/folders/1YBuaoTdOSr_qzaow-G-iwvbUI7fiUzu8"
FNO = "https://drive.google.com/drive/folders/1UnbQh2WWc6knEHbLn-ZaXrKUZhp7pjt-"
PDEBENCH = "https://doi.org/10.18419/darus-2986"
NUM_TRAIN, NUM_TEST = 1000, 200
PDEBENCH_FILES = {
    "diffusion-sorption": "1D_diff-sorp_NA_NA.h5",
    "compressible-flow": "3D_CFD_*.hdf5",
}
MD5 = {
    "1D_diff-sorp_NA_NA.h5": "9d466d1213065619d087319e16d9a938",
    "3D_CFD_Rand_M1.0_Eta1e-08_Zeta1e-08_periodic_Train.hdf5": "45892a12d1066d54af74badae55c438e",
    "3D_CFD_Turb_M1.0_Eta1e-08_Zeta1e-08_periodic_Train.hdf5": "4f0eacaec5ff000bbd9a31026ea207b8",
}
"""Checksums that PDEBench publishes, in pdebench/data_download/pdebench_data_urls.csv"""
DARCY_SIZE, DARCY_EVERY = 421, 5
FLOW_EVERY = 8
FLOW_FIELDS = (
    ("density", ("rho",), ("density",)),
    ("velocity", ("x", "y", "z"), ("Vx", "Vy", "Vz")),
    ("pressure", ("p",), ("pressure",)),
)

Cases = tuple[Schema, int, Iterator[SourceCase]]
"""The schema, how many cases there are, and the cases"""


def read_published(name: str, folder: Path, *, other_files: bool = False) -> Cases:
    """Read the benchmark called `name`; InputError lists the known ones.

    Files whose checksums are published must be those, unless `other_files` are meant.
    """
    if name not in READERS:
        raise InputError(f"benchmark '{name}' is unknown; choose one of {', '.join(READERS)}")
    if name in PDEBENCH_FILES and not other_files:
        path = _find(folder, PDEBENCH_FILES[name], PDEBENCH)
        if path.name not in MD5:
            raise InputError(
                f"{path} is none of the files whose checksums are published ({', '.join(MD5)});"
                " --other-files reads it as it is"
            )
        with path.open("rb") as file:
            found = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False))
        if found.hexdigest() != MD5[path.name]:
            raise InputError(
                f"{path} has the MD5 {found.hexdigest()}, the published file {MD5[path.name]}:"
                " fetch it again, or read it as it is with --other-files"
            )
    return READERS[name](folder)


def hold_out(cases: Iterator[SourceCase], num: int, total: int) -> Iterator[SourceCase]:
    """Make the first `num` training cases the validation split, which none of the files has.

    InputError where these are not less than half of all cases.
    """
    if num > 0 and 2 * num >= total:
        raise InputError(
            f"{num} validation cases of {total} in all: expected less than half of them"
        )
    numbers = itertools.count()
    return (
        replace(case, split="validation") if case.split == "train" and next(numbers) < num else case
        for case in cases
    )


def read_elasticity(folder: Path) -> Cases:
    """972 points around a void, and the stress: the first 1000, and the last 200 to test."""
    places = _array(folder, "Random_UnitCell_XY_10.npy", (972, 2, None))
    stress = _array(folder, "Random_UnitCell_sigma_10.npy", (972, None))
    chosen = _split(folder, [places.shape[-1], stress.shape[-1]], last=True)
    cases = (
        SourceCase(f"elasticity-{n:04d}", places[:, :, n], {"stress": stress[:, n]}, split=split)
        for n, split in chosen
    )
    fields = (Field("stress", "1", ("sigma",)),)
    return _schema("elasticity", 2, fields, GEO_FNO), len(chosen), cases


def read_curved(
    name: str, field: str, files: str, grid: tuple[int, int], quantity: int, of: int, folder: Path
) -> Cases:
    """Read cases on curved grids: x, y and one of so many quantities at their points."""
    x, y = (_array(folder, files.format(part), (None, *grid)) for part in "XY")
    values = _array(folder, files.format("Q"), (None, of, *grid))
    chosen = _split(folder, [len(x), len(y), len(values)])
    cases = (
        SourceCase(
            f"{name}-{n:04d}",
            np.stack([x[n].ravel(), y[n].ravel()], axis=-1),
            {field: values[n, quantity]},
            split=split,
        )
        for n, split in chosen
    )
    fields = (Field(field, "1", ("value",)),)
    return _schema(name, 2, fields, GEO_FNO, grid_shape=grid), len(chosen), cases


def read_darcy(folder: Path) -> Cases:
    """Flow through rock, every fifth of 421 x 421 points: one file to train, one to test."""
    name = f"piececonst_r{DARCY_SIZE}_N1024_smooth{{}}.mat"
    files = [_find(folder, name.format(number), FNO) for number in (1, 2)]
    axis = np.linspace(0.0, 1.0, DARCY_SIZE)[::DARCY_EVERY]
    every = (slice(None, None, DARCY_EVERY),) * 2

    def cases() -> Iterator[SourceCase]:
        splits = (("train", NUM_TRAIN), ("test", NUM_TEST))
        for file, (split, number) in zip(files, splits, strict=True):
            content = _loaded(file, partial(scipy.io.loadmat, variable_names=["coeff", "sol"]))
            shape = (None, DARCY_SIZE, DARCY_SIZE)
            a, u = (_checked(file, name, content.get(name), shape) for name in ("coeff", "sol"))
            if min(len(a), len(u)) < number:
                raise InputError(f"{file} holds {len(a)} cases, the published split needs {number}")
            for n in range(number):
                yield SourceCase(
                    f"darcy-{split}-{n:04d}",
                    grid_points(axis, axis),
                    {"permeability": a[(n, *every)], "pressure": u[(n, *every)]},
                    split=split,
                )

    fields = (Field("permeability", "1", ("a",), role="given"), Field("pressure", "1", ("u",)))
    grid = (len(axis), len(axis))
    schema = _schema("darcy-flow-published", 2, fields, FNO, grid_shape=grid)
    return schema, NUM_TRAIN + NUM_TEST, cases()


def read_diffusion_sorption(folder: Path) -> Cases:
    """PDEBench's contaminant in soil: the first tenth of the cases to test, as PDEBench does."""
    file, member = _open_hdf5(folder, "diffusion-sorption")
    names = sorted(name for name in file if name.isdigit())
    if len(names) < 2:
        raise InputError(f"{file.filename} holds {len(names)} cases")
    shape = tuple(member(f"{names[0]}/data", (None, None, 1)).shape)
    cases = (
        SourceCase(
            f"sorption-{name}",
            member(f"{name}/grid/x", (shape[1],))[:],
            {"concentration": member(f"{name}/data", shape)[:]},
            time=member(f"{name}/grid/t", (shape[0],))[:],
            split="test" if at < max(1, len(names) // 10) else "train",
        )
        for at, name in enumerate(names)
    )
    fields = (Field("concentration", "1", ("u",)),)
    more = {"transient": True, "grid_shape": (shape[1],)}
    schema = _schema("diffusion-sorption-published", 1, fields, PDEBENCH, **more)
    return schema, len(names), cases


def read_compressible_flow(folder: Path) -> Cases:
    """PDEBench's 3D compressible flow, every eighth point: the first tenth of the cases to test.

    The paper has 1000 and 200 cases without naming them; this is PDEBench's own split.
    """
    _, member = _open_hdf5(folder, "compressible-flow")
    shape = tuple(member("density", (None,) * 5).shape)
    arrays = {name: member(name, shape) for _, _, names in FLOW_FIELDS for name in names}
    axes = [
        member(f"{axis}-coordinate", (size,))[::FLOW_EVERY]
        for axis, size in zip("xyz", shape[2:], strict=True)
    ]
    time = member("t-coordinate", (None,))[: shape[1]]  # the file has one more than values
    every = (slice(None), *(slice(None, None, FLOW_EVERY),) * 3)
    cases = (
        SourceCase(
            f"flow-{n:04d}",
            grid_points(*axes),
            {
                name: np.stack([arrays[of][(n, *every)] for of in names], axis=-1)
                for name, _, names in FLOW_FIELDS
            },
            time=time,
            split="test" if n < max(1, shape[0] // 10) else "train",
        )
        for n in range(shape[0])
    )
    fields = tuple(Field(name, "1", components) for name, components, _ in FLOW_FIELDS)
    more = {"transient": True, "grid_shape": tuple(map(len, axes))}
    return _schema("compressible-flow-3d", 3, fields, PDEBENCH, **more), shape[0], cases


READERS: dict[str, Callable[[Path], Cases]] = {
    "elasticity": read_elasticity,
    # Flow through a bent pipe: the axial velocity. Around an airfoil: the Mach number.
    "pipe": partial(read_curved, "pipe", "velocity", "Pipe_{}.npy", (129, 129), 0, 3),
    "airfoil": partial(read_curved, "airfoil", "mach", "NACA_Cylinder_{}.npy", (221, 51), 4, 5),
    "darcy": read_darcy,
    "diffusion-sorption": read_diffusion_sorption,
    "compressible-flow": read_compressible_flow,
}


def _schema(name: str, dimension: int, fields: Sequence[Field], url: str, **more: Any) -> Schema:
    source = Source(f"{name}, as published", url, "as its source says")
    return imported_schema(name, dimension=dimension, fields=fields, source=source, **more)


def _find(folder: Path, name: str, where: str) -> Path:
    """Return the file called `name` at or below the folder; InputError names its source."""
    found = sorted(folder.rglob(name)) if folder.is_dir() else []
    if not found:
        raise InputError(f"{folder} has no {name}; get it from {where}")
    return found[0]


def _loaded(path: Path, load: Callable[[Path], Any]) -> Any:
    """Return what a reader makes of a file; InputError where it cannot, whatever it raises."""
    try:
        return load(path)
    except Exception as error:
        raise InputError(f"{path} cannot be read: {one_line(error)}") from error


def _array(folder: Path, name: str, shape: Sequence[int | None]) -> Any:
    """Map an .npy file of this shape, in which None is any number."""
    path = _find(folder, name, GEO_FNO)
    return _checked(path, name, _loaded(path, partial(np.load, mmap_mode="r")), shape)


def _open_hdf5(folder: Path, name: str) -> tuple[Any, Callable[[str, Sequence[int | None]], Any]]:
    """Open a file of PDEBench; return it, and a function of a data set's name and shape."""
    path = _find(folder, PDEBENCH_FILES[name], PDEBENCH)
    file = _loaded(path, partial(h5py.File, mode="r"))
    return file, lambda of, shape: _checked(path, of, file.get(of), shape)


def _checked(path: Path, name: str, values: Any, shape: Sequence[int | None]) -> Any:
    """Return the values; InputError where there are none, or of another shape."""
    found = tuple(getattr(values, "shape", ()))
    sizes = tuple(size if size else at for size, at in zip(shape, found, strict=False))
    if values is None or sizes != found or len(shape) != len(found):
        expected = ", ".join("any" if size is None else str(size) for size in shape)
        there = "is absent" if values is None else f"has shape {found}"
        raise InputError(f"{path}: {name} {there}, expected ({expected})")
    return values


def _split(folder: Path, totals: Sequence[int], last: bool = False) -> list[tuple[int, str]]:
    """Choose the first cases to train and those behind them, or the file's last, to test."""
    if len(set(totals)) > 1 or totals[0] < NUM_TRAIN + NUM_TEST:
        raise InputError(
            f"the files in {folder} hold {', '.join(map(str, totals))} cases, the published split"
            f" needs {NUM_TRAIN + NUM_TEST} in each, and as many in all"
        )
    first = totals[0] - NUM_TEST if last else NUM_TRAIN
    test = range(first, first + NUM_TEST)
    return [*((n, "train") for n in range(NUM_TRAIN)), *((n, "test") for n in test)]
