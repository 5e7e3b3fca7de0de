"""Export cases for ParaView: the fluid's points and the boundary's faces, with all fields.

    <folder>/<id>.vtu, <id>_boundary.vtu                        a steady case
    <folder>/<id>.pvd, <id>_boundary.pvd and <id>/*.vtu         a transient case: open the .pvd,
                                                                which knows the times

A case without a mesh on record has points in place of cells: show them as Point Gaussian,
or through ParaView's Delaunay and Point Volume Interpolator filters. A collection (.pvd) is written
after its files, and a file under another name until it is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

import numpy as np
import zarr

from simgen.cell_shapes import Shape, cells_of, faces_of
from simgen.errors import InputError
from simgen.store.local_files import local_path
from simgen.store.read import Dataset, StoredCase


def export_vtu(
    dataset: Dataset,
    folder: str | Path,
    cases: list[str] | None = None,
    every: int = 1,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Path]:
    """Write `cases` (default: all accepted), every n-th snapshot of each; return the files to open.

    Raises InputError for a case that does not exist or was not accepted, for two whose files would
    have the same name, and for a folder that cannot be written.
    """
    chosen = [dataset[case] for case in (dataset.cases() if cases is None else cases)]
    refused = [case for case in chosen if case.status != "accepted"]
    if refused:
        raise InputError(
            f"case {refused[0].id} was {refused[0].status} and has no fields: {refused[0].reason}"
        )
    _check_names(dataset, [case.id for case in chosen])
    written, place = [], local_path(str(folder))
    try:
        place.mkdir(parents=True, exist_ok=True)
        for done, case in enumerate(chosen, start=1):
            written += _write_case(case, place, every)
            on_progress(done, len(chosen))
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror or error}") from error
    return written


def _check_names(dataset: Dataset, cases: list[str]) -> None:
    """InputError where the boundary of one case would overwrite another case."""
    if not dataset.schema.boundary:
        return
    for case in cases:
        if (other := f"{case}_boundary") in cases:
            raise InputError(
                f"cases {case} and {other} would both write {other}: export one at a time, each"
                " into a folder of its own"
            )


@dataclass(frozen=True)
class _Cloud:
    """Cells or faces with everything that does not change with time, and the fields."""

    shape: Shape
    fixed: Mapping[str, np.ndarray]
    fields: Mapping[str, zarr.Array]


def _clouds(case: StoredCase) -> dict[str, _Cloud]:
    """Yield a case's points, and its boundary's if there is one, by the name of their files."""
    schema = case.dataset.schema
    fields = {field.name: case[field.name] for field in schema.fields}
    clouds = {case.id: _Cloud(cells_of(case), case.constants(), fields)}
    if schema.boundary:
        boundary = case.boundary
        clouds[f"{case.id}_boundary"] = _Cloud(
            faces_of(case, boundary.points),
            {"normal": boundary.normals, "area": boundary.areas, "patch": boundary.patch},
            {field.name: boundary[field.name] for field in schema.boundary_fields},
        )
    return clouds


def _write_case(case: StoredCase, folder: Path, every: int) -> list[Path]:
    clouds = _clouds(case)
    if case.time is None:
        for name, cloud in clouds.items():
            fields = {key: np.asarray(of[:]) for key, of in cloud.fields.items()}
            _write(folder / f"{name}.vtu", cloud.shape, {**cloud.fixed, **fields})
        return [folder / f"{name}.vtu" for name in clouds]
    (folder / case.id).mkdir(exist_ok=True)
    steps = range(0, len(case.time), every)
    for name, cloud in clouds.items():
        whole = {key: np.asarray(of[:]) for key, of in cloud.fields.items()}
        files = [f"{case.id}/{name}_{step:05d}.vtu" for step in steps]
        for step, file in zip(steps, files, strict=True):
            at_step = {key: values[step] for key, values in whole.items()}
            _write(folder / file, cloud.shape, {**cloud.fixed, **at_step})
        times = case.time[steps.start :: every].tolist()
        _write_collection(folder / f"{name}.pvd", dict(zip(files, times, strict=True)))
    return [folder / f"{name}.pvd" for name in clouds]


def _write(path: Path, shape: Shape, data: Mapping[str, np.ndarray]) -> None:
    part = path.with_name(f".{path.name}.part")
    shape.filled(data).write(str(part), file_format="vtu")
    part.replace(path)


def _write_collection(path: Path, files: Mapping[str, float]) -> None:
    part = path.with_name(f".{path.name}.part")
    write_collection(part, files)
    part.replace(path)


def write_collection(path: Path, files: Mapping[str, float]) -> None:
    """Write a .pvd file, which names files relative to itself and the time of each, in seconds."""
    entries = "\n".join(
        f'  <DataSet timestep="{time!r}" file={quoteattr(file)}/>' for file, time in files.items()
    )
    path.write_text(
        '<?xml version="1.0"?>\n<VTKFile type="Collection" version="0.1">\n'
        f" <Collection>\n{entries}\n </Collection>\n</VTKFile>\n"
    )
