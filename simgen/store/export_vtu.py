"""Cases as files that ParaView opens: the fluid's points and the boundary's faces, with all fields.

    <folder>/<id>.vtu, <id>_boundary.vtu                        a steady case
    <folder>/<id>.pvd, <id>_boundary.pvd and <id>/*.vtu         a transient case: open the .pvd, which knows the times

Cells come as points (the store keeps no connectivity): show them as Point Gaussian, or through ParaView's Delaunay and Point
Volume Interpolator filters. A collection (.pvd) is written after its files, and a file under another name until it is whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from xml.sax.saxutils import quoteattr

import numpy as np

from simgen.errors import InputError
from simgen.store.reader import Dataset, StoredCase
from simgen.store.vtk_points import constant_arrays, point_mesh


def export_vtu(
    dataset: Dataset,
    folder: str | Path,
    cases: list[str] | None = None,
    every: int = 1,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Path]:
    """Write `cases` (all accepted ones by default), every n-th snapshot of each; the files to open.

    Raises InputError for a case that is not there or was not accepted, and for a folder that cannot be written.
    """
    chosen = [dataset[case] for case in (cases or dataset.cases())]
    refused = [case for case in chosen if case.status != "accepted"]
    if refused:
        raise InputError(f"case {refused[0].id} was {refused[0].status} and has no fields: {refused[0].reason}")
    written = []
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        for done, case in enumerate(chosen, start=1):
            written += _write_case(case, Path(folder), every)
            on_progress(done, len(chosen))
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror or error}") from error
    return written


def _write_case(case: StoredCase, folder: Path, every: int) -> list[Path]:
    names = [field.name for field in case.dataset.schema.fields]
    boundary = case.boundary
    constant = constant_arrays(case.volumes, case.distance, case.patch_kinds)
    clouds = {
        case.id: (case.points, constant, {name: case[name] for name in names}),
        f"{case.id}_boundary": (
            boundary.points,
            {"normal": boundary.normals, "area": boundary.areas, "patch": boundary.patch},
            {name: boundary[name] for name in names},
        ),
    }
    if case.time is None:
        for name, (points, fixed, fields) in clouds.items():
            _write(folder / f"{name}.vtu", points, {**fixed, **{key: np.asarray(of[:]) for key, of in fields.items()}})
        return [folder / f"{name}.vtu" for name in clouds]
    (folder / case.id).mkdir(exist_ok=True)
    steps = range(0, len(case.time), every)
    for name, (points, fixed, fields) in clouds.items():
        whole = {key: np.asarray(of[:]) for key, of in fields.items()}
        files = [f"{case.id}/{name}_{step:05d}.vtu" for step in steps]
        for step, file in zip(steps, files, strict=True):
            _write(folder / file, points, {**fixed, **{key: values[step] for key, values in whole.items()}})
        _write_collection(folder / f"{name}.pvd", dict(zip(files, case.time[steps.start :: every], strict=True)))
    return [folder / f"{name}.pvd" for name in clouds]


def _write(path: Path, points: np.ndarray, data: Mapping[str, np.ndarray]) -> None:
    part = path.with_name(f".{path.name}.part")
    point_mesh(points, data).write(str(part), file_format="vtu")
    part.replace(path)


def _write_collection(path: Path, files: Mapping[str, float]) -> None:
    entries = "\n".join(f'  <DataSet timestep="{time:g}" file={quoteattr(file)}/>' for file, time in files.items())
    part = path.with_name(f".{path.name}.part")
    part.write_text(
        f'<?xml version="1.0"?>\n<VTKFile type="Collection" version="0.1">\n <Collection>\n{entries}\n </Collection>\n</VTKFile>\n'
    )
    part.replace(path)
