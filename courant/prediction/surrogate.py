"""Load a trained model and predict in physical units, with checked input and one-line errors.

    surrogate = courant.load("demo-run/runs/cylinder-flow-demo-0123456789")
    surrogate.predict_case(dataset["b0159c13a91f"], start_s=200.0)  # (10, N, 2) m/s
    surrogate.predict(points, initial=u0, parameters={"radius": 2.0, ...}, steps=10)

    surrogate = courant.load("runs/branched-pipe-small-0123456789")
    surrogate.predict_case(dataset["b0159c13a91f"])  # (N, C) m/s
    surrogate.predict(points, parameters=..., boundary=..., distance=(distance, direction))

There is one way of a prediction: `prepare` (a user's arguments) or `prepare_case` (a stored case)
returns a `Batch` of one, and `predict_prepared` runs batches through the model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

import numpy as np
import torch

from courant.data.batch import Batch
from courant.data.geometry import DistanceField
from courant.data.normalisation import Normaliser, powers_of
from courant.data_config import SteadyData
from courant.experiment import Experiment, parse_experiment
from courant.field_model import Decomposes, Exports, FieldDecomposition, FieldModel, Inputs, Queries
from courant.prediction.bands import Bands, read_bands
from courant.prediction.design import PredictedDesign, predict_design
from courant.prediction.monitor import Monitor, MonitoredPrediction, read_monitor, watch_rollout
from courant.problems import Problem, Space, problem_of
from courant.problems.problem import NotFiniteError, check_finite
from courant.runs.directory import RunDirectory
from courant.runs.record import (
    check_trained,
    open_recorded,
    read_dataset_record,
    warn_of_unfinished,
)
from courant.runs.weights import read_model
from simgen.errors import InputError

if TYPE_CHECKING:
    from simgen.store.read import Dataset, StoredCase

QUERY_CHUNK = 65_536
"""Query points that go through the decoder at a time"""
NORMALISER = "normaliser.json"


class CaseDecomposition(NamedTuple):
    """A prediction in physical units: offset + contributions.sum(over anchors).

    The sum equals the prediction (Eq. exact-decomp).
    """

    offset: np.ndarray
    """(C,)"""
    contributions: np.ndarray
    """(T, L, M, C) transient, (L, M, C) steady"""
    anchors: np.ndarray | None
    """(L, 3) m; None for anchors without positions"""


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


class Surrogate:
    """A trained model with its normalisation: predictions in physical units, in numpy arrays.

    C channels in `channels`' order, K patch kinds.
    """

    def __init__(
        self,
        url: str,
        problem: Problem,
        dataset: dict[str, Any],
        model: FieldModel,
        weights: str = "",
    ) -> None:
        self.url, self.problem = url, problem
        self.weights = weights
        """Digest of the file that the model came from; what was calibrated is of these weights"""
        self.dataset = dataset
        """url, version, snapshot_id and family of the dataset version of the training"""
        self.model = model.eval()
        self.device = next(model.parameters()).device
        self._space = Space(dataset["family"], dataset["parameters"])

    def __repr__(self) -> str:
        trained_on = f"{self.dataset['family']} {self.dataset['version']}"
        return (
            f"<{self.problem.kind} surrogate of {', '.join(self.channels)} on {trained_on}:"
            f" {self.url}>"
        )

    @property
    def experiment(self) -> Experiment:
        return self.problem.experiment

    @property
    def normaliser(self) -> Normaliser:
        return self.problem.normaliser

    @property
    def channels(self) -> tuple[str, ...]:
        return tuple(channel.name for channel in self.normaliser.channels)

    @property
    def step_s(self) -> float | None:
        """Time between predicted states; None for a steady model."""
        return self.problem.step_s

    @property
    def decomposes(self) -> bool:
        """Whether its predictions can be taken apart."""
        return isinstance(self.model, Decomposes)

    @cached_property
    def bands(self) -> Bands | None:
        """How far predictions were off in `courant calibrate`; None where that was not done."""
        return read_bands(RunDirectory(self.url), self.weights)

    def times(self, start_s: float, steps: int | None = None) -> np.ndarray | None:
        """Return (T,) s, the times of a rollout's states from `start_s`; None if steady."""
        return self.problem.times(start_s, self.problem.steps(steps))

    def open_dataset(self, url: str | Path | None = None) -> Dataset:
        """Open the dataset version of the training, at `url` if it lies elsewhere by now.

        Its snapshot id is checked. InputError where it is another one, or found nowhere.
        """
        return open_recorded(self.url, self.dataset, None if url is None else str(url))

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

    def prepare(self, points: np.ndarray, **parts: Any) -> Batch:
        """Check the arguments of `predict`; return a batch of one on the model's device."""
        return self._on_device(self.problem.prepare(self._space, points, **parts))

    def predict_case(
        self, case: StoredCase, *, start_s: float | None = None, steps: int | None = None
    ) -> np.ndarray:
        """Predict a stored case: (T, N, C) of a transient model, (N, C) of a steady one.

        The rollout starts from the stored snapshot at `start_s` (None: where training windows
        begin). A steady prediction starts from the case's geometry, boundary conditions and
        parameters.
        """
        prepared = self.prepare_case(case, start_s, steps)
        try:
            return check_finite(self.predict_prepared([prepared])[0])
        except NotFiniteError as error:
            raise NotFiniteError(f"{self.url}, case {case.id}: {error}") from None

    def predict_last(
        self, case: StoredCase, *, start_s: float | None = None, steps: int | None = None
    ) -> np.ndarray:
        """Predict a stored case, and return its last state alone: (N, C) of either kind of model.

        `start_s` and `steps` are those of `predict_case`.
        """
        predicted = self.predict_case(case, start_s=start_s, steps=steps)
        return predicted.reshape(-1, *predicted.shape[-2:])[-1]

    def prepare_case(
        self, case: StoredCase, start_s: float | None = None, steps: int | None = None
    ) -> Batch:
        """Return the inputs of a stored case as a batch of one on the model's device."""
        return self._on_device(self.problem.case_inputs(case, start_s, steps))

    def predict_prepared(self, requests: Sequence[Batch]) -> list[np.ndarray]:
        """Return what `predict` returns for each request.

        Requests of the same sizes go through the model as one batch.
        """
        groups: dict[tuple[Any, ...], list[int]] = {}
        for number, request in enumerate(requests):
            sizes = tuple((name, value.shape) for name, value in request.tensors.items())
            groups.setdefault(sizes, []).append(number)
        predicted: dict[int, np.ndarray] = {}
        for numbers in groups.values():
            values = self._run(Batch.joined([requests[number] for number in numbers]))
            predicted |= zip(numbers, map(self.problem.presented, values), strict=True)
        return [predicted[number] for number in range(len(requests))]

    def decomposition(
        self,
        case: StoredCase,
        *,
        start_s: float | None = None,
        steps: int | None = None,
        cells: np.ndarray | None = None,
    ) -> FieldDecomposition:
        """Take a prediction apart in the model's units, without computing any contribution yet.

        Its `chunks` compute them for some of the cells at a time, with one encoding for all.
        """
        return self.decompose_prepared(self.prepare_case(case, start_s, steps), cells)

    def decompose_prepared(
        self, prepared: Batch, cells: np.ndarray | None = None
    ) -> FieldDecomposition:
        """Take the prediction of a request apart, at some of its points."""
        if not isinstance(self.model, Decomposes):
            raise InputError(
                f"{self.url}: a model of kind {self.model.config.kind} does not decompose its"
                " predictions"
            )
        inputs, queries = prepared.for_model(self.model.config)
        if cells is not None:
            queries = queries.part(torch.as_tensor(cells, device=self.device))
        with torch.inference_mode():
            return self.model.decompose(inputs, queries, prepared.num_steps)

    def model_inputs(
        self, case: StoredCase, start_s: float | None = None
    ) -> tuple[Inputs, Queries]:
        """Return what the model itself takes for a stored case, normalised, as a batch of one."""
        prepared = self.prepare_case(case, start_s)
        return prepared.for_model(self.model.config)

    def places(self, anchors: np.ndarray) -> np.ndarray:
        """Return (L, 3) m from (L, d) normalised; anchors of a 2D model have z = 0."""
        return self.normaliser.restore_points(np.pad(anchors, ((0, 0), (0, 3 - anchors.shape[1]))))

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
        normaliser = self.normaliser.at(case.parameters)
        with torch.inference_mode():
            contributions = parts.whole().contributions[0].cpu().numpy()
        places = None if parts.anchors is None else parts.anchors[0].detach().cpu().numpy()
        return CaseDecomposition(
            offset=normaliser.restore(parts.offset.cpu().numpy()),
            contributions=self.problem.presented(
                contributions * np.asarray(normaliser.std, np.float32)
            ),
            anchors=None if places is None else self.places(places),
        )

    def export(self, folder: str | Path) -> list[Path]:
        """Write <part>.pt2 for each part of the model, which need torch alone, and normaliser.json.

        The second has the numbers that convert physical units to the model's. Returns the files.
        InputError for a model that cannot be exported, and a folder that cannot be written.
        """
        if not isinstance(self.model, Exports):
            raise InputError(f"a model of kind {self.model.config.kind} has no export to programs")
        try:
            programs = self.model.export()
        except ValueError as error:
            raise InputError(f"the model cannot be exported: {error}") from error
        place = Path(folder)
        try:
            place.mkdir(parents=True, exist_ok=True)
            for part, program in programs.items():
                torch.export.save(program, place / f"{part}.pt2")
            (place / NORMALISER).write_text(json.dumps(self.normaliser.to_json(), indent=1))
        except OSError as error:
            raise InputError(f"{place} cannot be written: {error.strerror}") from error
        return [*(place / f"{part}.pt2" for part in programs), place / NORMALISER]

    def _on_device(self, batch: Batch) -> Batch:
        return batch.map(lambda value: value.to(self.device))

    @torch.inference_mode()
    def _run(self, batch: Batch) -> np.ndarray:
        """Return (B, T, M, C) in physical units."""
        inputs, queries = batch.for_model(self.model.config)
        states = self.model.predict(inputs, queries, batch.num_steps, chunk=QUERY_CHUNK)
        values = self.normaliser.restore(states.cpu().numpy())
        return values if batch.scale is None else values * batch.scale.cpu().numpy()[:, None, None]


def read_problem(run: RunDirectory, experiment: Experiment) -> Problem:
    """Raise InputError where the normalisation is invalid or not for the experiment's model."""
    try:
        problem = problem_of(experiment, Normaliser.from_json(run.read_object("normaliser.json")))
        wrong = [*problem.wrong_sizes(), *_wrong_scale(problem)]
    except InputError as error:
        raise InputError(
            f"{run.url}/normaliser.json: {error}; the run is damaged, train it again"
        ) from error
    if wrong:
        raise InputError(
            f"{run.url}: experiment.json does not fit normaliser.json ({'; '.join(wrong)}); train"
            " again"
        )
    return problem


def _wrong_scale(problem: Problem) -> list[str]:
    """Say where fields do not scale as the experiment asks: predictions would have other units."""
    data, normaliser = problem.experiment.data, problem.normaliser
    asked = data.scaled_by if isinstance(data, SteadyData) else {}
    expected = powers_of(asked, normaliser.channels, normaliser.parameters)
    return [] if expected == normaliser.powers else ["data.scaled_by is not what powers say"]
