"""A trained model as an engineer uses it: physical units in and out, input checked, every error one line.

surrogate = courant.load("demo-run/runs/cylinder-flow-demo-0123456789")
velocity = surrogate.predict_case(dataset["00fcb869be4c"], start_s=200.0)      # (10, N, 2) m/s
velocity = surrogate.predict(points, initial=u0, parameters={"radius": 2.0, ...}, steps=10)

surrogate = courant.load("runs/branched-pipe-small-0123456789")
velocity = surrogate.predict_case(dataset["00fcb869be4c"])                      # (N, C) m/s
velocity = surrogate.predict(points, parameters=..., boundary=..., distance=(distance, direction))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from courant.data.geometry import DistanceField
from courant.data.normalisation import Normaliser
from courant.data.samples import Batch
from courant.experiment import Experiment, parse_experiment
from courant.field_model import Decomposes, FieldModel
from courant.problems import Problem, Request, Space, problem_of
from courant.runs.dataset_record import read_dataset_record
from courant.runs.directory import RunDirectory
from courant.runs.weights import WEIGHTS, read_model
from simgen.errors import InputError

if TYPE_CHECKING:
    from simgen.store.reader import StoredCase

QUERY_CHUNK = 65_536


class CaseDecomposition(NamedTuple):
    """offset + contributions.sum(over anchors) equals the prediction, in physical units (Eq. exact-decomp)."""

    offset: np.ndarray
    """(C,)"""
    contributions: np.ndarray
    """(T, L, M, C) transient, (L, M, C) steady"""
    anchors: np.ndarray | None
    """(L, 3) m; None for anchors without positions"""


@dataclass(frozen=True)
class Prepared:
    """A request that has been checked, normalised and put on the device, as a batch of one."""

    batch: Batch
    steps: int

    @property
    def sizes(self) -> tuple[Any, ...]:
        """Requests that have these in common can go through the model together."""
        shapes = {name: tuple(value.shape) for name, value in vars(self.batch).items() if value is not None}
        return (self.steps, *shapes.items())


def check_finite(values: np.ndarray) -> np.ndarray:
    """The prediction as it is; InputError where a value is not finite."""
    if not np.isfinite(values).all():
        raise InputError(
            "the prediction is not finite: a value of the input lies too far outside of what the model was trained on"
        )
    return values


def load(url: str | Path, *, device: str | torch.device | None = None) -> Surrogate:
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
    problem, dataset = _read_problem(run, experiment), read_dataset_record(run)
    if dataset["family"] != experiment.family:
        raise InputError(
            f"{run.url}: experiment.json is for {experiment.family}, dataset.json for {dataset['family']}; train again"
        )
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    return Surrogate(run.url, problem, dataset, read_model(run, experiment.model).to(place))


def _read_problem(run: RunDirectory, experiment: Experiment) -> Problem:
    """InputError where the normalisation is none, or is not for the experiment's model."""
    try:
        problem = problem_of(experiment, Normaliser.from_json(run.read_object("normaliser.json")))
        wrong = problem.wrong_sizes()
    except InputError as error:
        raise InputError(f"{run.url}/normaliser.json: {error}; the run is damaged, train it again") from error
    if wrong:
        raise InputError(f"{run.url}: experiment.json does not fit normaliser.json ({'; '.join(wrong)}); train again")
    return problem


class Surrogate:
    """A trained model with its normalisation. C channels in `channels`' order, K patch kinds."""

    def __init__(self, url: str, problem: Problem, dataset: dict[str, Any], model: FieldModel) -> None:
        self.url, self.problem = url, problem
        self.dataset = dataset
        """url, version, snapshot_id and family of the dataset version that it was trained on"""
        self.model = model.eval()
        self.device = next(model.parameters()).device
        self._space = Space(dataset["family"], dataset["parameters"])

    def __repr__(self) -> str:
        trained_on = f"{self.dataset['family']} {self.dataset['version']}"
        return f"<{self.problem.kind} surrogate of {', '.join(self.channels)} on {trained_on}: {self.url}>"

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
        """Whether `decompose_case` can take its predictions apart."""
        return isinstance(self.model, Decomposes)

    def times(self, start_s: float, steps: int | None = None) -> np.ndarray | None:
        """(T,) s: when the predicted states of a rollout from `start_s` are; None for a steady model."""
        return self.problem.times(start_s, self.problem.steps(steps))

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
        steps: int | None = None,
    ) -> np.ndarray:
        """Predict the fields of a design, at points (N, 2 or 3) m: cell centres or any scattering that covers the domain.

        A transient model answers with the states (T, M, C) after 1..T = `steps` times `step_s` seconds (None: as many as
        trained on). It takes `initial` (N, C), the state at the points; `queries` (M, 2 or 3) m, where to predict (None =
        at `points`); and the geometry from `parameters` or from `distance` and `query_distance`.

        A steady model answers with the fields (N, C). It takes `parameters`; `distance`; and `boundary`, the boundary's
        faces, as a stored case's `boundary` or a mapping {"points": (B, 3) m, "patch": (B,) kinds, "velocity": (B, 3) m/s
        where it is prescribed}. A model whose encoder reads the mesh takes `points` for its mesh.

        parameters: the family's design parameters, by name. distance = (distance (N, K) m, direction (N, K, 3)) to every
        patch kind, as a stored case has them.

        Raises InputError for what is missing or foreign, wrong names, wrong shapes and values that are not finite; warns of
        parameters outside the design space and of points outside the domain of the training cases.
        """
        prepared = self.prepare(
            points, initial=initial, parameters=parameters, boundary=boundary, distance=distance,
            queries=queries, query_distance=query_distance, steps=steps,
        )  # fmt: skip
        return check_finite(self.predict_prepared([prepared])[0])

    def prepare(self, points: np.ndarray, *, steps: int | None = None, **given: Any) -> Prepared:
        """The checks of `predict`, for `predict_prepared`."""
        batch = self.problem.prepare(Request(points, steps=steps, **given), self._space)
        return self._prepared(batch, steps)

    def predict_case(self, case: StoredCase, *, start_s: float | None = None, steps: int | None = None) -> np.ndarray:
        """(T, N, C) of a transient model: the rollout from the stored snapshot at `start_s` (None: where training windows
        begin). (N, C) of a steady one, from the case's geometry, boundary conditions and parameters."""
        prepared = self._prepared(self.problem.case_inputs(case, start_s), steps)
        return check_finite(self.predict_prepared([prepared])[0])

    def predict_prepared(self, requests: Sequence[Prepared]) -> list[np.ndarray]:
        """What `predict` answers to each request; those of the same sizes go through the model as one batch."""
        groups: dict[tuple[Any, ...], list[int]] = {}
        for number, request in enumerate(requests):
            groups.setdefault(request.sizes, []).append(number)
        answers: dict[int, np.ndarray] = {}
        for numbers in groups.values():
            values = self._run([requests[number].batch for number in numbers], requests[numbers[0]].steps)
            answers |= zip(numbers, map(self.problem.presented, values), strict=True)
        return [answers[number] for number in range(len(requests))]

    def decompose_case(
        self,
        case: StoredCase,
        *,
        start_s: float | None = None,
        steps: int | None = None,
        cells: np.ndarray | None = None,
    ) -> CaseDecomposition:
        """The prediction of `predict_case` as an offset and one contribution per anchor, at some cells (None: at all).

        The contributions are as many fields as there are anchors: name the cells that you need of a large case.
        """
        if not isinstance(self.model, Decomposes):
            raise InputError(f"{self.url}: a model of kind {self.model.config.kind} does not decompose its predictions")
        prepared = self._prepared(self.problem.case_inputs(case, start_s), steps)
        inputs, queries = prepared.batch.for_model(self.model.config)
        if cells is not None:
            queries = queries.part(torch.as_tensor(cells, device=self.device))
        with torch.inference_mode():
            parts = self.model.decompose(inputs, queries, prepared.steps)
            contributions = parts.whole().contributions[0].cpu().numpy()
        std = np.asarray(self.normaliser.std, np.float32)
        return CaseDecomposition(
            offset=self.normaliser.restore(parts.offset.cpu().numpy()),
            contributions=self.problem.presented(contributions * std),
            anchors=None if parts.anchors is None else self._places(parts.anchors[0].detach().cpu().numpy()),
        )

    def _prepared(self, batch: Batch, steps: int | None) -> Prepared:
        return Prepared(batch.map(lambda value: value.to(self.device)), self.problem.steps(steps))

    @torch.inference_mode()
    def _run(self, batches: Sequence[Batch], steps: int) -> np.ndarray:
        """(B, T, M, C)"""
        inputs, queries = Batch.joined(batches).for_model(self.model.config)
        states = self.model.predict(inputs, queries, steps, chunk=QUERY_CHUNK)
        return self.normaliser.restore(states.cpu().numpy())

    def _places(self, anchors: np.ndarray) -> np.ndarray:
        """(L, d) normalised -> (L, 3) m; a model of the plane has its anchors at z = 0."""
        return self.normaliser.restore_points(np.pad(anchors, ((0, 0), (0, 3 - anchors.shape[1]))))
