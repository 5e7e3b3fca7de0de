"""Write predictions to files: .npz with arrays, .vtu with one state, .pvd with all of a rollout.

A file takes its name once it is complete. Where it cannot be written is said before anything is
computed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from courant.data.normalisation import Channel
from simgen.cell_shapes import Shape
from simgen.errors import InputError
from simgen.publish.export_vtu import write_collection


def check_output(out: Path, suffixes: Sequence[str], is_rollout: bool | None = None) -> None:
    """Raise InputError for another suffix, and for a place where no file can be written.

    `is_rollout` is whether the model predicts several times, where that is known already.
    """
    if out.suffix not in suffixes:
        names = " or ".join(f"prediction{suffix}" for suffix in suffixes)
        raise InputError(f"{out} has no suffix of {', '.join(suffixes)}: name the file {names}")
    if out.suffix == ".pvd" and is_rollout is False:
        raise InputError(f"{out}: a steady prediction has no times; name the file {out.stem}.vtu")
    folder = next(parent for parent in out.absolute().parents if parent.exists())
    if not folder.is_dir():
        reason = f"{folder} is a file"
    elif not os.access(folder, os.W_OK | os.X_OK):
        reason = f"permission denied in {folder}"
    elif out.is_dir():
        reason = "it is a folder"
    else:
        return
    raise InputError(f"{out} cannot be written: {reason}; choose another place")


@contextlib.contextmanager
def whole_file(out: Path) -> Iterator[Path]:
    """Yield where to write; afterwards that is renamed to `out`. InputError where it cannot be."""
    part = out.with_name(f".{out.stem}.part{out.suffix}")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        yield part
        part.replace(out)
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"{out} cannot be written: {reason}; choose another place") from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def write_arrays(out: Path, arrays: Mapping[str, Any]) -> None:
    """Write a .npz file."""
    with whole_file(out) as part:
        np.savez_compressed(part, **arrays)


def write_state(shape: Shape, fields: Mapping[str, np.ndarray], out: Path) -> None:
    """Write a mesh with fields as .vtu."""
    with whole_file(out) as part:
        shape.filled(fields).write(part, file_format="vtu")


def write_series(
    shape: Shape, states: Sequence[tuple[float, Mapping[str, np.ndarray]]], out: Path
) -> None:
    """Write each time's fields as .vtu into a folder, then the .pvd that names them.

    Files of a series that was there before are replaced once all of this one are written.
    """
    folder = out.with_name(out.stem)
    begun, names = folder / f".{out.stem}.part", {}
    shutil.rmtree(begun, ignore_errors=True)  # of a command that was killed
    try:
        for number, (time, fields) in enumerate(states):
            name = f"{out.stem}_{number:05d}.vtu"
            write_state(shape, fields, begun / name)
            names[name] = time
        with whole_file(out) as part:
            write_collection(part, {f"{folder.name}/{name}": names[name] for name in names})
            for name in names:
                (begun / name).replace(folder / name)
    finally:
        shutil.rmtree(begun, ignore_errors=True)
        with contextlib.suppress(OSError):  # it holds something
            folder.rmdir()


def by_field(
    values: np.ndarray, channels: Sequence[Channel], dimension: int, suffix: str = ""
) -> dict[str, np.ndarray]:
    """Split (N, C) into arrays by field, as ParaView knows them; `suffix` ends their names.

    A vector whose components are all modelled is (N, 3), in two dimensions with z = 0. Of any other
    field each modelled component is an array of its own, such as `velocity.x`: nothing stands in
    for those that are not modelled.
    """
    fields: dict[str, np.ndarray] = {}
    for name in dict.fromkeys(channel.field for channel in channels):
        columns = {each.component: c for c, each in enumerate(channels) if each.field == name}
        axes = "xyz"[: max(dimension, len(columns))]
        if set(columns) == set(axes):
            vector = values[:, [columns[axis] for axis in axes]]
            fields[f"{name}{suffix}"] = np.pad(vector, ((0, 0), (0, 3 - len(axes))))
        elif len(columns) == 1 and not set(columns) <= set("xyz"):
            fields[f"{name}{suffix}"] = values[:, next(iter(columns.values()))]
        else:
            for component, column in columns.items():
                fields[f"{name}.{component}{suffix}"] = values[:, column]
    return fields


def beside_solution(
    predicted: np.ndarray,
    truth: np.ndarray | None,
    channels: Sequence[Channel],
    dimension: int,
    band: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Return the predicted fields, where there are any with half-widths of their bands.

    Where there is a solution, that and the error as well.
    """
    fields = by_field(predicted, channels, dimension)
    if band is not None:
        fields |= by_field(band, channels, dimension, "_band")
    if truth is not None:
        fields |= by_field(truth, channels, dimension, "_solver")
        fields |= by_field(predicted - truth, channels, dimension, "_error")
    return fields
