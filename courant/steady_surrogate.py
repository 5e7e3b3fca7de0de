"""A trained steady model as an engineer uses it: geometry, boundary conditions and design parameters in, solved fields out.

surrogate = courant.load("runs/branched-pipe-small-0123456789")
velocity = surrogate.predict_case(dataset["00fcb869be4c"])                      # (N, C) m/s
velocity = surrogate.predict(points, parameters=..., boundary=..., distance=(distance, direction))
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from courant.data.geometry import DistanceField
from courant.data.inputs import check_boundary, check_distance, check_parameters, check_points
from courant.data.known import KnownCase, prepare_inputs, read_known
from courant.data.normalisation import Normaliser
from courant.data.samples import Batch
from courant.data.steady import as_batch
from courant.data.trajectories import select_anchors
from courant.experiment import SteadyExperiment
from courant.model import Courant
from courant.trained_model import QUERY_CHUNK, CaseDecomposition, Prepared, TrainedModel, check_finite
from simgen.errors import InputError

if TYPE_CHECKING:
    from simgen.store.reader import StoredCase


class SteadySurrogate(TrainedModel):
    """A trained steady model. C channels in `channels`' order, K patch kinds."""

    experiment: SteadyExperiment

    def __init__(
        self, url: str, experiment: SteadyExperiment, normaliser: Normaliser, dataset: dict[str, Any], model: Courant
    ) -> None:
        super().__init__(url, normaliser, dataset, model)
        self.experiment = experiment

    def predict(
        self,
        points: np.ndarray,
        *,
        parameters: Mapping[str, float] | None = None,
        boundary: Any = None,
        distance: DistanceField | None = None,
    ) -> np.ndarray:
        """(M, C): the steady fields at points (M, 3) m.

        parameters: the family's design parameters, by name. boundary: the boundary's faces, as a stored case's `boundary` or a
        mapping {"points": (B, 3) m, "patch": (B,) kinds, "velocity": (B, 3) m/s where it is prescribed}. distance = (distance
        (M, K) m, direction (M, K, 3)) at the points, to every patch kind, as a stored case has them. A model whose encoder
        reads the mesh takes `points` for its mesh: they have to cover the domain.

        Raises InputError for what is missing, wrong names, wrong shapes and values that are not finite; warns of parameters
        outside the design space and of points outside the domain of the training cases.
        """
        prepared = self.prepare(points, parameters=parameters, boundary=boundary, distance=distance)
        return check_finite(self._run(prepared)[0])

    def prepare(  # type: ignore[override]
        self,
        points: np.ndarray,
        *,
        parameters: Mapping[str, float] | None = None,
        boundary: Any = None,
        distance: DistanceField | None = None,
    ) -> Prepared:
        """The checks of `predict`, for `predict_prepared`."""
        if parameters is None:
            names = ", ".join(each["name"] for each in self.dataset["parameters"])
            raise InputError(f"give parameters={{...}}, the design parameters {names}")
        check_parameters(parameters, self.dataset["parameters"], self.dataset["family"])
        wanted = check_points(points, "points", self.normaliser)
        if distance is None:
            raise InputError(
                f"give distance=(distance, direction) at the points, to {', '.join(self.normaliser.patch_kinds)}, as a stored case has them"
            )
        field = check_distance(distance, len(wanted), self.normaliser.patch_kinds, "distance")
        conditions = check_boundary(boundary, self.normaliser, self.experiment.data)
        return _prepared(self._inputs(KnownCase(wanted, field, conditions, parameters)))

    def predict_case(self, case: StoredCase) -> np.ndarray:
        """(N, C) at the case's cells, from its geometry, boundary conditions and parameters; its solved fields are not read."""
        return check_finite(self._run(_prepared(self._case_inputs(case)))[0])

    def decompose_case(self, case: StoredCase, cells: np.ndarray | None = None) -> CaseDecomposition:
        """The prediction of `predict_case` as an offset and one contribution per anchor, at some cells (None: at all of them).

        The contributions are as many fields as there are anchors: name the cells that you need of a large case.
        """
        inputs = self._case_inputs(case)
        model = self.experiment.model
        if model.anchor_kind != "sampled":
            raise InputError(f"{self.url}: anchors of kind '{model.anchor_kind}' have no fixed position to show")
        chosen = slice(None) if cells is None else torch.as_tensor(cells, device=self.device)
        with torch.inference_mode():
            parts = self.model.decompose(
                inputs.points, inputs.features, inputs.query_points[:, chosen],
                inputs.query_features[:, chosen] if model.num_query_features else None,
                parameters=inputs.parameters if model.num_parameters else None, anchors=inputs.anchors,
            )  # fmt: skip
            contributions = parts.whole().contributions[0].cpu().numpy()
        return CaseDecomposition(
            offset=self.normaliser.restore(parts.offset.cpu().numpy()),
            contributions=contributions * np.asarray(self.normaliser.std, np.float32),
            anchors=self.normaliser.restore_points(inputs.anchors[0].cpu().numpy()),
        )

    def _case_inputs(self, case: StoredCase) -> Batch:
        if tuple(case.patch_kinds) != self.normaliser.patch_kinds:
            raise InputError(
                f"case {case.id} has patch kinds {', '.join(case.patch_kinds)}, the model knows {', '.join(self.normaliser.patch_kinds)}"
            )
        return self._inputs(read_known(case, self.normaliser, self.experiment.data))

    def _inputs(self, known: KnownCase) -> Batch:
        """A batch of one on the device; its targets are empty."""
        inputs = prepare_inputs(known, self.normaliser, self.experiment.data)
        anchors = select_anchors(torch.from_numpy(inputs.points)[None], self.experiment.model.num_anchors)
        return as_batch(inputs, anchors, np.zeros((0, len(self.channels)), np.float32)).map(
            lambda value: value.to(self.device)
        )

    @torch.inference_mode()
    def _run(self, prepared: Prepared) -> np.ndarray:
        """(B, M, C)"""
        model, inputs = self.experiment.model, prepared.tensors
        anchors = inputs["anchors"] if model.anchor_kind == "sampled" else self.model.place_anchors(inputs["points"])
        latent = self.model.encode(
            inputs["points"],
            inputs["features"],
            parameters=inputs["parameters"] if model.num_parameters else None,
            anchors=anchors,
        )
        field = self.model.decode(
            latent,
            inputs["query_points"],
            inputs["query_features"] if model.num_query_features else None,
            anchors=anchors,
            chunk=QUERY_CHUNK,
        )
        return self.normaliser.restore(field.cpu().numpy())


def _prepared(inputs: Batch) -> Prepared:
    """The mesh's masks are None: one case has nothing to pad."""
    return Prepared({name: value for name, value in vars(inputs).items() if value is not None})
