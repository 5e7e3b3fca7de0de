"""Write predictions as files: arrays of all steps, meshes for ParaView, or a table of a state.

A mesh has the design and the time as field data. A comment has the run and the version of its
dataset, whose fields these are, their units, and what they are good for.
"""

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from courant.data.normalisation import named_arrays
from courant.prediction.surrogate import Surrogate
from simgen.cell_mesh import Shape
from simgen.design_space import with_unit
from simgen.publish.export import write_collection, write_vtu
from simgen.whole_file import npz_bytes, whole_file


@dataclass(frozen=True)
class WrittenPrediction:
    """What is written of a prediction: T states, or the one of a steady model."""

    surrogate: Surrogate
    points: np.ndarray  # (N, 3) m
    shape: Shape
    times: Sequence[float] | None  # T times in seconds; None of a steady model
    values: np.ndarray  # (N, C) of a steady model, (T, N, C) of a transient one
    parameters: Mapping[str, float]  # As far as they are known
    band: np.ndarray | None = None  # Half-widths, shaped as the values
    solved: np.ndarray | None = None
    """The solver's values, shaped as the values; NaN at times that it has not reached"""
    by: str = ""  # What predicted the fields, such as POD + GP; empty for the network
    verdict: str = ""  # What the fields are good for

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The values, the half-widths and the solver's values, by the ending of their names."""
        found = {"": self.values, "_band": self.band, "_solver": self.solved}
        return {suffix: values for suffix, values in found.items() if values is not None}

    def write(self, out: Path, step: int = -1) -> str:
        """Write all steps as .npz, .pvd or .zip, one as .vtu or .csv; return how many, and times.

        Beside the prediction are the half-widths of its band and, where there is a solution, that
        and the error. An archive has what a .pvd would be, with the files that it names.
        """
        steps, kind = [0.0] if self.times is None else self.times, out.suffix
        out.parent.mkdir(parents=True, exist_ok=True)
        if kind == ".npz":
            content = {"points": self.points}
            content |= {} if self.times is None else {"time": np.asarray(self.times)}
            for column, name in enumerate(self.surrogate.channels):
                for suffix, values in self.arrays.items():
                    content[f"{name}{suffix}"] = values[..., column]
            with whole_file(out) as part:
                part.write_bytes(npz_bytes(content))
        elif kind == ".zip":
            with tempfile.TemporaryDirectory() as folder:
                self.write(Path(folder) / f"{out.stem}.pvd")
                shutil.make_archive(str(out.with_suffix("")), "zip", folder)
        elif kind == ".csv":
            columns = dict(zip("xyz", self.points.T, strict=True))
            for suffix, values in self._state(step).items():
                names = (f"{name}{suffix}" for name in self.surrogate.channels)
                columns |= zip(names, values.T, strict=True)
            pd.DataFrame(columns).to_csv(out, index=False, float_format="%.7g")
        elif self.times is None or kind == ".vtu":
            self._write_state(step, out)
        else:
            out.unlink(missing_ok=True)  # it names files that are written over
            out.with_suffix("").mkdir(exist_ok=True)
            files = {f"{out.stem}/{out.stem}_{n:05d}.vtu": time for n, time in enumerate(steps)}
            for number, name in enumerate(files):
                self._write_state(number, out.parent / name)
            with whole_file(out) as part:
                write_collection(part, files)
        if self.times is None:
            return ""
        of = f"the last of {len(steps)} steps" if kind == ".vtu" else f"{len(steps)} steps"
        return f"{of} from {steps[0]:g} to {steps[-1]:g} s"

    def _state(self, step: int) -> dict[str, np.ndarray]:
        """Return what is known at a step, (N, C) by the ending of its names, with the error."""
        is_steady = self.times is None
        state = {suffix: each if is_steady else each[step] for suffix, each in self.arrays.items()}
        if "_solver" in state and np.isnan(state["_solver"]).all():
            del state["_solver"]
        elif "_solver" in state:
            state["_error"] = state[""] - state["_solver"]
        return state

    def _write_state(self, step: int, out: Path) -> None:
        normaliser, dataset = self.surrogate.normaliser, self.surrogate.dataset
        fields: dict[str, np.ndarray] = {}
        for suffix, values in self._state(step).items():
            fields |= named_arrays(values, normaliser.channels, normaliser.dimension, suffix)
        time = None if self.times is None else self.times[step]
        # The names alone: the paths on this machine are not for everyone.
        run, place = (Path(url).name for url in (self.surrogate.url, dataset["url"]))
        units = {with_unit(of.field, of.unit): None for of in normaliser.channels}
        about = f"run {run}; dataset {place} {dataset['version']}; fields by"
        about += f" {self.by or 'the network'}: {', '.join(units)}; {self.verdict}"
        design = self.surrogate.space, self.parameters
        write_vtu(out, self.shape, fields, *design, time, about.rstrip("; "))
