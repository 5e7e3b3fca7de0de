"""Leaving out one anchor changes a prediction by as much as was planted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor

from courant.analysis import case_scores
from courant.analysis.case_scores import ablation_effects
from courant.field_model import Inputs, Queries

SIZES = torch.tensor([4.0, 3.0, 2.0, 1.0, 0.5])
"""Of the anchors' latents when they are encoded"""
STEPS = 3


class Planted:
    """Each anchor has its own third of a line, times its latent, which a step multiplies."""

    def __init__(self, factors: Tensor) -> None:
        self.factors = factors
        self.inner_step, self.inner_solver = 1.0, "euler"

    def encode(self, inputs: Inputs) -> Tensor:
        return SIZES[None, :, None].clone()

    def derivative(self, Z: Tensor) -> Tensor:
        return Z * (self.factors[:, None] - 1)

    def rollout(self, Z: Tensor, num_steps: int) -> Tensor:
        return torch.stack([Z * self.factors[:, None] ** n for n in range(1, num_steps + 1)], dim=1)

    def place_anchors(self, points: Tensor, mask: Tensor | None = None) -> None:
        return None

    def decode(
        self,
        Z: Tensor,
        queries: Queries,
        *,
        anchors: Tensor | None = None,
        chunk: int | None = None,
    ) -> Tensor:
        own = queries.points[..., :1].long() == torch.arange(len(SIZES))
        return own.float() @ Z


def surrogate(model: Any, step_s: float | None) -> Any:
    points = torch.arange(len(SIZES) * 600)[None, :, None] % len(SIZES)
    inputs = Inputs(points.float(), points.float())
    return SimpleNamespace(
        model=model,
        step_s=step_s,
        problem=SimpleNamespace(num_steps=STEPS),
        model_inputs=lambda case, start: (inputs, Queries(points.float())),
    )


def test_effects_before_and_after_the_processor_are_those_planted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(case_scores, "TOGETHER", 2)
    # What is encoded strongest decays fastest.
    factors = torch.tensor([0.1, 0.5, 1.0, 1.5, 4.0])
    found = ablation_effects(surrogate(Planted(factors), 10.0), cast(Any, None), 0.0)
    assert found is not None and found.before is not None
    last = (SIZES * factors**STEPS).numpy()
    np.testing.assert_allclose(found.after, last**2 / len(SIZES), rtol=1e-2)
    np.testing.assert_allclose(found.before, found.after, rtol=1e-5)
    scores = found.scores(last**2)
    assert scores == pytest.approx({"ablation_after": 1.0, "ablation_before": 1.0})
    assert found.scores(SIZES.numpy())["ablation_after"] == pytest.approx(-1.0)


def test_a_steady_model_has_no_effects_before_a_processor() -> None:
    found = ablation_effects(surrogate(Planted(torch.ones(5)), None), cast(Any, None), None)
    assert found is not None and found.before is None
    assert list(found.scores(SIZES.numpy() ** 2)) == ["ablation_after"]


def test_a_model_that_decodes_only_its_own_states_is_left_out() -> None:
    assert ablation_effects(surrogate(object(), 10.0), cast(Any, None), 0.0) is None
