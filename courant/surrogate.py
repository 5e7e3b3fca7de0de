"""A trained model as an engineer uses it: physical units in and out, input checked, every error one line.

surrogate = courant.load("demo-run/runs/cylinder-flow-demo-0123456789")
velocity = surrogate.predict(points, initial=u0, parameters={"radius": 2.0, "center_x": 0.0, "center_y": 1.0}, steps=10)
velocity = surrogate.predict_case(dataset["00fcb869be4c"], start_s=200.0)      # (10, N, 2) m/s

Steady models are `courant.steady_surrogate`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from courant.data.fitting import wrong_sizes
from courant.data.geometry import DistanceField, distance_field
from courant.data.inputs import check_array, check_distance, check_parameters, check_points
from courant.data.normalisation import Normaliser
from courant.data.trajectories import TIME_TOLERANCE_S, read_states, select_anchors
from courant.dataset_record import read_dataset_record
from courant.experiment import AnyExperiment, Experiment, SteadyExperiment, parse_experiment
from courant.model import Courant
from courant.run_directory import RunDirectory
from courant.steady_surrogate import SteadySurrogate
from courant.trained_model import QUERY_CHUNK, CaseDecomposition, Prepared, TrainedModel, check_finite
from courant.weights import WEIGHTS, read_model
from simgen.errors import InputError

if TYPE_CHECKING:
    from simgen.store.reader import StoredCase


class _Inputs(NamedTuple):
    """What the model takes, batch of one."""

    points: Tensor
    features: Tensor
    query_points: Tensor
    query_features: Tensor
    anchors: Tensor | None


def load(url: str | Path, *, device: str | torch.device | None = None) -> Surrogate | SteadySurrogate:
    """The trained model of a run directory (local path or s3://), on the GPU where there is one unless told otherwise.

    The run may be somebody else's: every file is checked before anything is built, and no code in it runs.
    Raises InputError where there is no run or no weights yet, or what is there does not fit together; StoreError where
    it cannot be read.
    """
    run = RunDirectory(url)
    for name in ("experiment.json", WEIGHTS):
        if not run.exists(name):
            raise InputError(f"{run.url} has no {name}; give the folder of a trained run, <runs>/<name>-<hash>")
    experiment = parse_experiment(run.read_object("experiment.json"))
    normaliser, dataset = _read_normaliser(run, experiment), read_dataset_record(run)
    if dataset["family"] != experiment.family:
        raise InputError(
            f"{run.url}: experiment.json is for {experiment.family}, dataset.json for {dataset['family']}; train again"
        )
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    model = read_model(run, experiment.model).to(place)
    if isinstance(experiment, SteadyExperiment):
        return SteadySurrogate(run.url, experiment, normaliser, dataset, model)
    return Surrogate(run.url, experiment, normaliser, dataset, model)


def _read_normaliser(run: RunDirectory, experiment: AnyExperiment) -> Normaliser:
    """InputError where it is none, or is not for the experiment's model."""
    try:
        normaliser = Normaliser.from_json(run.read_object("normaliser.json"))
        wrong = wrong_sizes(experiment, normaliser)
    except InputError as error:
        raise InputError(f"{run.url}/normaliser.json: {error}; the run is damaged, train it again") from error
    if wrong:
        raise InputError(f"{run.url}: experiment.json does not fit normaliser.json ({'; '.join(wrong)}); train again")
    return normaliser


class Surrogate(TrainedModel):
    """A trained transient model. C channels in `channels`' order, K patch kinds."""

    experiment: Experiment

    def __init__(
        self, url: str, experiment: Experiment, normaliser: Normaliser, dataset: dict[str, Any], model: Courant
    ) -> None:
        super().__init__(url, normaliser, dataset, model)
        self.experiment = experiment

    @property
    def step_s(self) -> float:
        """Time between predicted states."""
        return self.experiment.data.step_s

    def times(self, start_s: float, steps: int | None = None) -> np.ndarray:
        """(T,) s: when the predicted states of a rollout from `start_s` are."""
        return start_s + self.step_s * np.arange(1, self._steps(steps) + 1)

    def predict(
        self,
        points: np.ndarray,
        *,
        initial: np.ndarray,
        parameters: Mapping[str, float] | None = None,
        distance: DistanceField | None = None,
        queries: np.ndarray | None = None,
        query_distance: DistanceField | None = None,
        steps: int | None = None,
    ) -> np.ndarray:
        """(T, M, C): the states at `queries` after 1..T = `steps` times `step_s` seconds (None: as many as trained on).

        points (N, 2 or 3) m, cell centres or any scattering that covers the domain, and initial (N, C), the state there.
        queries (M, 2 or 3) m, where to predict; None = at `points`. The geometry comes from `parameters` (the
        family's design parameters) or from `distance` = (distance (N, K) m, direction (N, K, 3)), as a stored case has them.

        Raises InputError for unknown or missing parameters, wrong shapes and values that are not finite; warns of
        parameters outside the design space and of points outside the domain of the training cases.
        """
        prepared = self.prepare(
            points, initial=initial, parameters=parameters, distance=distance, queries=queries,
            query_distance=query_distance, steps=steps,
        )  # fmt: skip
        return check_finite(self._run(prepared)[0])

    def prepare(  # type: ignore[override]
        self,
        points: np.ndarray,
        *,
        initial: np.ndarray,
        parameters: Mapping[str, float] | None = None,
        distance: DistanceField | None = None,
        queries: np.ndarray | None = None,
        query_distance: DistanceField | None = None,
        steps: int | None = None,
    ) -> Prepared:
        """The checks of `predict`, for `predict_prepared`."""
        if parameters is not None:
            check_parameters(parameters, self.dataset["parameters"], self.dataset["family"])
        given = check_points(points, "points", self.normaliser)
        field = self._distance(given, parameters, distance, "distance")
        shape = (len(given), len(self.channels))
        state = check_array(initial, shape, f"initial ({', '.join(self.channels)} at each point)")
        if queries is None:
            wanted, query_field = given, field
        else:
            wanted = check_points(queries, "queries", self.normaliser)
            query_field = self._distance(wanted, parameters, query_distance, "query_distance")
        inputs = self._inputs(given, field, self.normaliser.standardise(state), wanted, query_field)
        return _prepared(inputs, self._steps(steps))

    def predict_case(self, case: StoredCase, *, start_s: float | None = None, steps: int | None = None) -> np.ndarray:
        """(T, N, C): the rollout from the stored snapshot at `start_s` (None: where training windows begin)."""
        return check_finite(self._run(_prepared(self._case_inputs(case, start_s), self._steps(steps)))[0])

    def decompose_case(
        self, case: StoredCase, *, start_s: float | None = None, steps: int | None = None
    ) -> CaseDecomposition:
        """The rollout of `predict_case` as an offset and one contribution per anchor."""
        inputs = self._case_inputs(case, start_s)
        if inputs.anchors is None:
            raise InputError(
                f"{self.url}: anchors of kind '{self.experiment.model.anchor_kind}' have no fixed position to show"
            )
        with torch.inference_mode():
            parts = self.model.decompose(
                inputs.points, inputs.features, inputs.query_points, inputs.query_features,
                num_steps=self._steps(steps), anchors=inputs.anchors,
            )  # fmt: skip
            contributions = parts.whole().contributions[0].cpu().numpy()
        std = np.asarray(self.normaliser.std, np.float32)
        return CaseDecomposition(
            offset=self.normaliser.restore(parts.offset.cpu().numpy()),
            contributions=contributions * std,
            anchors=self.normaliser.restore_points(inputs.anchors[0].cpu().numpy()),
        )

    def snapshot(self, case: StoredCase, start_s: float | None = None) -> int:
        """The number of the case's snapshot at `start_s` (None: the first that training windows begin at).

        InputError where there is none.
        """
        time = np.asarray(case.time)
        if start_s is None:
            return self._first_start(case, time)
        nearest = int(np.abs(time - start_s).argmin())
        if abs(time[nearest] - start_s) > TIME_TOLERANCE_S * max(1.0, abs(start_s)):
            raise InputError(
                f"case {case.id} has no snapshot at {start_s:g} s; its snapshots run from {time[0]:g} to {time[-1]:g} s, the nearest is {time[nearest]:g} s"
            )
        return nearest

    def _first_start(self, case: StoredCase, time: np.ndarray) -> int:
        """As training takes it: the first snapshot at the experiment's `start_s` or later."""
        begin = self.experiment.data.start_s
        first = int(np.searchsorted(time, begin - TIME_TOLERANCE_S))
        if first == len(time):
            raise InputError(
                f"case {case.id} ends at {time[-1]:g} s: no window of training begins there, from {begin:g} s on"
            )
        return first

    def _case_inputs(self, case: StoredCase, start_s: float | None) -> _Inputs:
        if tuple(case.patch_kinds) != self.normaliser.patch_kinds:
            raise InputError(
                f"case {case.id} has patch kinds {', '.join(case.patch_kinds)}, the model knows {', '.join(self.normaliser.patch_kinds)}"
            )
        frame = self.snapshot(case, start_s)
        state = read_states(case, self.normaliser.channels, slice(frame, frame + 1))[0]
        points, field = np.asarray(case.points), (np.asarray(case.distance), np.asarray(case.direction))
        return self._inputs(points, field, self.normaliser.standardise(state), points, field)

    def _inputs(
        self,
        points: np.ndarray,
        field: DistanceField,
        state: np.ndarray,
        queries: np.ndarray,
        query_field: DistanceField,
    ) -> _Inputs:
        """Normalised tensors; `state` is standardised already."""
        positions = self._tensor(self.normaliser.points(points))
        features = np.concatenate([state, self.normaliser.distance(*field)], axis=-1)
        model = self.experiment.model
        return _Inputs(
            points=positions,
            features=self._tensor(features),
            query_points=self._tensor(self.normaliser.points(queries)),
            query_features=self._tensor(self.normaliser.distance(*query_field)),
            anchors=select_anchors(positions, model.num_anchors) if model.anchor_kind == "sampled" else None,
        )

    @torch.inference_mode()
    def _run(self, prepared: Prepared) -> np.ndarray:
        """(B, T, M, C)"""
        assert prepared.steps is not None
        inputs, anchors = prepared.tensors, prepared.tensors.get("anchors")
        if anchors is None:
            anchors = self.model.place_anchors(inputs["points"])
        latent = self.model.encode(inputs["points"], inputs["features"], anchors=anchors)
        states = self.model.decode(
            self.model.rollout(latent, prepared.steps),
            inputs["query_points"],
            inputs["query_features"],
            anchors=anchors,
            chunk=QUERY_CHUNK,
        )
        return self.normaliser.restore(states.cpu().numpy())

    def _steps(self, steps: int | None) -> int:
        steps = self.experiment.data.window_steps if steps is None else steps
        if steps < 1:
            raise InputError(f"steps = {steps}: ask for at least one")
        return steps

    def _distance(
        self, points: np.ndarray, parameters: Mapping[str, float] | None, given: DistanceField | None, name: str
    ) -> DistanceField:
        if given is not None:
            return check_distance(given, len(points), self.normaliser.patch_kinds, name)
        if parameters is None:
            raise InputError(f"give the geometry: parameters={{...}} or {name}=(distance, direction)")
        return distance_field(self.dataset["family"], points, parameters)


def _prepared(inputs: _Inputs, steps: int) -> Prepared:
    return Prepared({name: value for name, value in inputs._asdict().items() if value is not None}, steps)
