"""Predict stored cases and prepared requests with a trained model, in physical units."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from courant.data.batch import Batch
from courant.data.normalisation import Normaliser
from courant.experiment import Experiment
from courant.field_model import Decomposes, FieldDecomposition, FieldModel, Inputs, Queries
from courant.prediction.bands import Bands, read_bands
from courant.prediction.prepared import NotFiniteError, Prepared, check_finite
from courant.problems import Problem, Space
from courant.runs.dataset_record import open_recorded
from courant.runs.directory import RunDirectory
from simgen.errors import InputError

if TYPE_CHECKING:
    from simgen.store.access.reader import Dataset
    from simgen.store.access.stored_case import StoredCase

QUERY_CHUNK = 65_536


class Predictor:
    """A trained model with its normalisation; `Surrogate` adds what users ask of it.

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

    def prepare(self, points: np.ndarray, *, steps: int | None = None, **parts: Any) -> Prepared:
        """Check a request, whose parts `Surrogate.predict` explains, for `predict_prepared`."""
        batch = self.problem.prepare(self._space, points, steps=steps, **parts)
        return self._prepared(batch, steps)

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
    ) -> Prepared:
        """Turn a stored case into a request for `predict_prepared`."""
        return self._prepared(self.problem.case_inputs(case, start_s), steps)

    def predict_prepared(self, requests: Sequence[Prepared]) -> list[np.ndarray]:
        """Return what `Surrogate.predict` returns for each request.

        Requests of the same sizes go through the model as one batch.
        """
        groups: dict[tuple[Any, ...], list[int]] = {}
        for number, request in enumerate(requests):
            groups.setdefault(request.sizes, []).append(number)
        answers: dict[int, np.ndarray] = {}
        for numbers in groups.values():
            values = self._run(
                [requests[number].batch for number in numbers], requests[numbers[0]].steps
            )
            answers |= zip(numbers, map(self.problem.presented, values), strict=True)
        return [answers[number] for number in range(len(requests))]

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
        self, prepared: Prepared, cells: np.ndarray | None = None
    ) -> FieldDecomposition:
        """Take the prediction of a request apart, at some of its points."""
        if not isinstance(self.model, Decomposes):
            raise InputError(
                f"{self.url}: a model of kind {self.model.config.kind} does not decompose its"
                " predictions"
            )
        inputs, queries = prepared.batch.for_model(self.model.config)
        if cells is not None:
            queries = queries.part(torch.as_tensor(cells, device=self.device))
        with torch.inference_mode():
            return self.model.decompose(inputs, queries, prepared.steps)

    def model_inputs(
        self, case: StoredCase, start_s: float | None = None
    ) -> tuple[Inputs, Queries]:
        """Return what the model itself takes for a stored case, normalised, as a batch of one."""
        prepared = self.prepare_case(case, start_s)
        return prepared.batch.for_model(self.model.config)

    def places(self, anchors: np.ndarray) -> np.ndarray:
        """Return (L, 3) m from (L, d) normalised; anchors of a 2D model have z = 0."""
        return self.normaliser.restore_points(np.pad(anchors, ((0, 0), (0, 3 - anchors.shape[1]))))

    def _prepared(self, batch: Batch, steps: int | None) -> Prepared:
        return Prepared(batch.map(lambda value: value.to(self.device)), self.problem.steps(steps))

    @torch.inference_mode()
    def _run(self, batches: Sequence[Batch], steps: int) -> np.ndarray:
        """(B, T, M, C)"""
        batch = Batch.joined(batches)
        inputs, queries = batch.for_model(self.model.config)
        states = self.model.predict(inputs, queries, steps, chunk=QUERY_CHUNK)
        values = self.normaliser.restore(states.cpu().numpy())
        return values if batch.scale is None else values * batch.scale.cpu().numpy()[:, None, None]
