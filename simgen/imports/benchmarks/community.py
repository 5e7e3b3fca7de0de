"""Read the community's benchmarks as published: their files, their splits, their resolution.

Each reader yields the cases that models are compared on: 1000 training and 200 test cases of the
steady ones, in the order of their files, as Neural-Solver-Library takes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from simgen.case import Field
from simgen.errors import InputError
from simgen.imports.benchmarks.files import check_md5, find, member, open_hdf5, open_npy, read_mat
from simgen.imports.source_case import SourceCase, grid_points
from simgen.imports.source_schema import imported_schema
from simgen.store.schema import Schema, Source

GEO_FNO = "https://drive.google.com/drive/folders/1YBuaoTdOSr_qzaow-G-iwvbUI7fiUzu8"
FNO = "https://drive.google.com/drive/folders/1UnbQh2WWc6knEHbLn-ZaXrKUZhp7pjt-"
PDEBENCH = "https://doi.org/10.18419/darus-2986"
NUM_TRAIN, NUM_TEST = 1000, 200
PDEBENCH_FILES = {
    "diffusion-sorption": "1D_diff-sorp_NA_NA.h5",
    "compressible-flow": "3D_CFD_*.hdf5",
}
DARCY_SIZE, DARCY_EVERY = 421, 5
FLOW_EVERY = 8
FLOW_FIELDS = (
    ("density", ("rho",), ("density",)),
    ("velocity", ("x", "y", "z"), ("Vx", "Vy", "Vz")),
    ("pressure", ("p",), ("pressure",)),
)

Cases = tuple[Schema, int, Iterator[SourceCase]]
"""The schema, how many cases there are, and the cases"""


def read_elasticity(folder: Path) -> Cases:
    """972 points around a void, and the stress: the first 1000, and the last 200 to test."""
    files = [find(folder, f"Random_UnitCell_{name}_10.npy", GEO_FNO) for name in ("XY", "sigma")]
    places, stress = open_npy(files[0], (972, 2, None)), open_npy(files[1], (972, None))
    total = _same(files, places.shape[-1], stress.shape[-1])
    chosen = _first_and_last(files[0], total)
    schema = _schema("elasticity", 2, (Field("stress", "1", ("sigma",)),), GEO_FNO)
    cases = (
        SourceCase(f"elasticity-{n:04d}", places[:, :, n], {"stress": stress[:, n]}, split=split)
        for n, split in chosen
    )
    return schema, len(chosen), cases


def read_pipe(folder: Path) -> Cases:
    """Flow through a bent pipe, 129 x 129: the axial velocity."""
    return _curved(folder, "pipe", ("Pipe_X.npy", "Pipe_Y.npy", "Pipe_Q.npy"), (129, 129), 3, 0)


def read_airfoil(folder: Path) -> Cases:
    """Transonic flow around an airfoil, 221 x 51: the Mach number."""
    names = tuple(f"NACA_Cylinder_{part}.npy" for part in "XYQ")
    return _curved(folder, "airfoil", names, (221, 51), 5, 4)


def _curved(
    folder: Path,
    name: str,
    names: Sequence[str],
    grid: tuple[int, int],
    num_quantities: int,
    quantity: int,
) -> Cases:
    """Read cases on curved grids: x, y and one of the quantities at their points."""
    files = [find(folder, each, GEO_FNO) for each in names]
    x, y = (open_npy(file, (None, *grid)) for file in files[:2])
    values = open_npy(files[2], (None, num_quantities, *grid))
    total = _same(files, len(x), len(y), len(values))
    chosen = _first(files[0], total)
    field = Field({"pipe": "velocity", "airfoil": "mach"}[name], "1", ("value",))
    cases = (
        SourceCase(
            f"{name}-{n:04d}",
            np.stack([x[n].ravel(), y[n].ravel()], axis=-1),
            {field.name: values[n, quantity]},
            split=split,
        )
        for n, split in chosen
    )
    return _schema(name, 2, (field,), GEO_FNO, grid_shape=grid), len(chosen), cases


def read_darcy(folder: Path) -> Cases:
    """Flow through rock, every fifth of 421 x 421 points: one file to train, one to test."""
    shape = (None, DARCY_SIZE, DARCY_SIZE)
    names = [f"piececonst_r{DARCY_SIZE}_N1024_smooth{n}.mat" for n in (1, 2)]
    files = [find(folder, name, FNO) for name in names]
    kept = len(range(0, DARCY_SIZE, DARCY_EVERY))
    fields = (Field("permeability", "1", ("a",), role="given"), Field("pressure", "1", ("u",)))
    axis = np.linspace(0.0, 1.0, kept)
    wanted = (("train", NUM_TRAIN), ("test", NUM_TEST))

    def cases() -> Iterator[SourceCase]:
        for file, (split, number) in zip(files, wanted, strict=True):
            arrays = read_mat(file, {"coeff": shape, "sol": shape})
            _enough(file, len(arrays["coeff"]), number)
            for n in range(number):
                a, u = (arrays[name][n, ::DARCY_EVERY, ::DARCY_EVERY] for name in ("coeff", "sol"))
                yield SourceCase(
                    f"darcy-{split}-{n:04d}",
                    grid_points(axis, axis),
                    {"permeability": a, "pressure": u},
                    split=split,
                )

    schema = _schema("darcy-flow-published", 2, fields, FNO, grid_shape=(kept, kept))
    return schema, NUM_TRAIN + NUM_TEST, cases()


def read_diffusion_sorption(folder: Path) -> Cases:
    """PDEBench's contaminant in soil: the first tenth of the cases to test, as PDEBench does."""
    path = find(folder, PDEBENCH_FILES["diffusion-sorption"], PDEBENCH)
    file = open_hdf5(path)
    names = sorted(name for name in file if name.isdigit())
    if len(names) < 2:
        raise InputError(f"{path} holds {len(names)} cases")
    shape = tuple(member(file, f"{names[0]}/data", (None, None, 1)).shape)
    num_test = max(1, len(names) // 10)
    schema = _schema(
        "diffusion-sorption-published",
        1,
        (Field("concentration", "1", ("u",)),),
        PDEBENCH,
        transient=True,
        grid_shape=(shape[1],),
    )
    cases = (
        SourceCase(
            f"sorption-{name}",
            member(file, f"{name}/grid/x", (shape[1],))[:],
            {"concentration": member(file, f"{name}/data", shape)[:]},
            time=member(file, f"{name}/grid/t", (shape[0],))[:],
            split="test" if at < num_test else "train",
        )
        for at, name in enumerate(names)
    )
    return schema, len(names), cases


def read_compressible_flow(folder: Path) -> Cases:
    """PDEBench's 3D compressible flow, every eighth point: the first tenth of the cases to test.

    The paper says 1000 and 200 cases without saying which; this is PDEBench's own split.
    """
    path = find(folder, PDEBENCH_FILES["compressible-flow"], PDEBENCH)
    file = open_hdf5(path)
    shape = tuple(member(file, "density", (None,) * 5).shape)
    for name in ("Vx", "Vy", "Vz", "pressure"):
        member(file, name, shape)
    axes = [
        member(file, f"{axis}-coordinate", (size,))[::FLOW_EVERY]
        for axis, size in zip("xyz", shape[2:], strict=True)
    ]
    time = member(file, "t-coordinate", (None,))[: shape[1]]  # the file has one more than values
    num_test = max(1, shape[0] // 10)
    schema = _schema(
        "compressible-flow-3d",
        3,
        tuple(Field(name, "1", components) for name, components, _ in FLOW_FIELDS),
        PDEBENCH,
        transient=True,
        grid_shape=tuple(len(axis) for axis in axes),
    )

    def values(n: int, names: Sequence[str]) -> np.ndarray:
        step = (slice(None), *(slice(None, None, FLOW_EVERY),) * 3)
        return np.stack([file[name][(n, *step)] for name in names], axis=-1)

    cases = (
        SourceCase(
            f"flow-{n:04d}",
            grid_points(*axes),
            {name: values(n, names) for name, _, names in FLOW_FIELDS},
            time=time,
            split="test" if n < num_test else "train",
        )
        for n in range(shape[0])
    )
    return schema, shape[0], cases


READERS: dict[str, Callable[[Path], Cases]] = {
    "elasticity": read_elasticity,
    "pipe": read_pipe,
    "airfoil": read_airfoil,
    "darcy": read_darcy,
    "diffusion-sorption": read_diffusion_sorption,
    "compressible-flow": read_compressible_flow,
}


def read_community(name: str, folder: Path, *, other_files: bool = False) -> Cases:
    """Read the benchmark called `name`; InputError lists the known ones.

    Files whose checksums are published must be those, unless `other_files` are meant.
    """
    if name not in READERS:
        raise InputError(f"benchmark '{name}' is unknown; choose one of {', '.join(READERS)}")
    if name in PDEBENCH_FILES and not other_files:
        check_md5(find(folder, PDEBENCH_FILES[name], PDEBENCH))
    return READERS[name](folder)


def hold_out(cases: Iterator[SourceCase], num: int, total: int) -> Iterator[SourceCase]:
    """Make the first `num` training cases the validation split, which none of the files has.

    InputError where these are not less than half of all cases.
    """
    if num > 0 and 2 * num >= total:
        raise InputError(
            f"{num} validation cases of {total} in all: expected less than half of them"
        )
    return _held_out(cases, num)


def _held_out(cases: Iterator[SourceCase], num: int) -> Iterator[SourceCase]:
    for case in cases:
        held = num > 0 and case.split == "train"
        num -= held
        yield replace(case, split="validation") if held else case


def _schema(name: str, dimension: int, fields: Sequence[Field], url: str, **more: Any) -> Schema:
    source = Source(f"{name}, as published", url, "as its source says")
    return imported_schema(name, dimension=dimension, fields=fields, source=source, **more)


def _same(files: Sequence[Path], *numbers: int) -> int:
    if len(set(numbers)) > 1:
        named = ", ".join(f"{file.name} {n}" for file, n in zip(files, numbers, strict=True))
        raise InputError(f"{files[0].parent}: the files hold different numbers of cases: {named}")
    return numbers[0]


def _enough(file: Path, there: int, wanted: int) -> None:
    if there < wanted:
        raise InputError(f"{file} holds {there} cases, the published split needs {wanted}")


def _first(file: Path, total: int) -> list[tuple[int, str]]:
    """Choose the first cases to train and those behind them to test."""
    _enough(file, total, NUM_TRAIN + NUM_TEST)
    test = range(NUM_TRAIN, NUM_TRAIN + NUM_TEST)
    return [*((n, "train") for n in range(NUM_TRAIN)), *((n, "test") for n in test)]


def _first_and_last(file: Path, total: int) -> list[tuple[int, str]]:
    """Choose the first cases to train and the file's last to test."""
    _enough(file, total, NUM_TRAIN + NUM_TEST)
    test = range(total - NUM_TEST, total)
    return [*((n, "train") for n in range(NUM_TRAIN)), *((n, "test") for n in test)]
