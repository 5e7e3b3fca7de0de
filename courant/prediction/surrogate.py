"""Load a trained model and predict in physical units, with checked input and one-line errors.

surrogate = courant.load("demo-run/runs/cylinder-flow-demo-0123456789")
surrogate.predict_case(dataset["b0159c13a91f"], start_s=200.0)  # (10, N, 2) m/s
surrogate.predict(points, initial=u0, parameters={"radius": 2.0, ...}, steps=10)

surrogate = courant.load("runs/branched-pipe-small-0123456789")
surrogate.predict_case(dataset["b0159c13a91f"])  # (N, C) m/s
surrogate.predict(points, parameters=..., boundary=..., distance=(distance, direction))
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import torch

from courant.data.geometry import DistanceField
from courant.experiment import parse_experiment
from courant.prediction.case_decomposition import CaseDecomposition, in_physical_units
from courant.prediction.design import PredictedDesign, predict_design
from courant.prediction.monitor import Monitor, MonitoredPrediction, read_monitor, watch_rollout
from courant.prediction.predictor import Predictor
from courant.prediction.prepared import check_finite
from courant.prediction.programs import write_programs
from courant.runs.dataset_record import read_dataset_record
from courant.runs.directory import RunDirectory
from courant.runs.problem_record import read_problem
from courant.runs.standing import check_trained, warn_of_unfinished
from courant.runs.weights import read_model
from simgen.errors import InputError

if TYPE_CHECKING:
    from simgen.store.access.stored_case import StoredCase


def load(url: str | Path, *, device: str | torch.device | None = None) -> Surrogate:
    """Load the trained model of a run directory (local path or s3://), by default on a GPU if any.

    The run may be somebody else's: every file is checked before anything is built, and no code in
    it runs. Raises InputError where there is no run or no weights yet, or where its files do not
    fit together; StoreError where it cannot be read.
    """
    run = RunDirectory(url)
    check_trained(run)
    experiment = parse_experiment(run.read_object("experiment.json"))
    problem, dataset = read_problem(run, experiment), read_dataset_record(run)
    if dataset["family"] != experiment.family:
        raise InputError(
            f"{run.url}: experiment.json is for {experiment.family}, dataset.json for"
            f" {dataset['family']}; train again"
        )
    warn_of_unfinished(run, experiment.training.epochs)
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    model, weights = read_model(run, experiment.model)
    return Surrogate(run.url, problem, dataset, model.to(place), weights)


class Surrogate(Predictor):
    """A trained model as users have it: designs, bands, decompositions, monitored rollouts."""

    @cached_property
    def monitor(self) -> Monitor | None:
        """Tell what rollouts usually look like; None where it was not calibrated."""
        return read_monitor(RunDirectory(self.url), self.weights)

    @overload
    def predict(
        self,
        points: np.ndarray,
        *,
        initial: np.ndarray | None = None,
        parameters: Mapping[str, float] | None = None,
        boundary: Any = None,
        distance: DistanceField | None = None,
        queries: np.ndarray | None = None,
        query_distance: DistanceField | None = None,
        given: Mapping[str, Any] | None = None,
        query_given: Mapping[str, Any] | None = None,
        steps: int | None = None,
        monitor: Literal[False] = False,
    ) -> np.ndarray: ...
    @overload
    def predict(
        self, points: np.ndarray, *, monitor: Literal[True], **parts: Any
    ) -> MonitoredPrediction: ...
    def predict(
        self, points: np.ndarray, *, monitor: bool = False, **parts: Any
    ) -> np.ndarray | MonitoredPrediction:
        """Predict the fields of a design at points (N, 2 or 3) m.

        These are cell centres, or any scattered points that cover the domain.

        A transient model returns the states (T, M, C) after 1..T = `steps` times `step_s` seconds
        (None: as many as trained on). It takes `initial` (N, C), the state at the points, or
        (I, N, C), the states one step apart with the oldest first, where `data.input_steps` is more
        than one; `queries` (M, 2 or 3) m, where to predict (None = at `points`); and the geometry
        from `parameters` or from `distance` and `query_distance`.

        A steady model returns the fields (N, C). It takes `parameters`; `distance`; and `boundary`,
        the boundary's faces, as a stored case's `boundary` or a mapping {"points": (B, 3) m,
        "patch": (B,) kinds, "velocity": (B, 3) m/s where it is prescribed}. A model whose encoder
        reads the mesh takes `points` for its mesh.

        given: the dataset's given fields, such as a permeability, by name: (N, components) or (N,)
        at the points; for a transient model at the start. `query_given` is the same at the queries.

        parameters: the family's design parameters, by name. distance = (distance (N, K) m,
        direction (N, K, 3)) to every patch kind, as a stored case has them.

        monitor: also tell from the latents whether the rollout keeps to the dynamics of the
        training, as `MonitoredPrediction`; after `courant analyse monitor`.

        Raises InputError for missing or superfluous arguments, wrong names, wrong shapes and values
        that are not finite; warns of parameters outside the design space and of points outside the
        domain of the training cases.
        """
        prepared = self.prepare(points, **parts)
        quality = watch_rollout(self, self.monitor, prepared) if monitor else None
        values = check_finite(self.predict_prepared([prepared])[0])
        return values if quality is None else MonitoredPrediction(values, quality)

    def predict_design(self, parameters: Mapping[str, float], **options: Any) -> PredictedDesign:
        """Predict a design that nobody has solved, as `design.predict_design` does."""
        return predict_design(self, parameters, **options)

    def decompose_case(
        self,
        case: StoredCase,
        *,
        start_s: float | None = None,
        steps: int | None = None,
        cells: np.ndarray | None = None,
    ) -> CaseDecomposition:
        """Split the prediction of `predict_case` into an offset and one contribution per anchor.

        At some cells (None: at all). The contributions are as many fields as there are anchors: for
        a large case, name the cells that you need.
        """
        parts = self.decomposition(case, start_s=start_s, steps=steps, cells=cells)
        return in_physical_units(self, parts, case.parameters)

    def export(self, folder: str | Path) -> list[Path]:
        """Write programs that predict with torch alone; InputError where a model has none."""
        return write_programs(self.model, self.normaliser, folder)
