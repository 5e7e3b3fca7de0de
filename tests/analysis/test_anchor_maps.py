"""Maps of anchors are the weights of the model itself: in the decoder, and in the encoder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from courant.analysis.error_addresses import map_anchors, representative_anchors
from courant.field_model import Inputs
from courant.model import Courant, CourantConfig
from courant.model.config import AnchorKind, WindowPlace
from courant.prediction.surrogate import Surrogate
from flows.cli.app import app
from simgen.errors import InputError
from simgen.store.read import Dataset, StoredCase
from tests.model.literal import explicit_attention, literal_forward

NUM_POINTS, NUM_ANCHORS, LEVELS = 23, 6, 3


@pytest.mark.parametrize(
    ("kind", "window"), [("sampled", "both"), ("learned", "both"), ("abstract", "none")]
)
def test_reading_is_the_attention_of_the_equations(window: WindowPlace, kind: AnchorKind) -> None:
    torch.manual_seed(0)
    model = Courant(
        CourantConfig(
            num_features=2,
            num_outputs=1,
            num_query_features=0,
            num_parameters=0,
            dimension=2,
            transient=False,
            width=16,
            num_anchors=NUM_ANCHORS,
            num_levels=LEVELS - 1,
            anchor_kind=kind,
            gaussian_window=window,
        )
    ).double()
    with torch.no_grad():  # Let windows move, which they do not at the start of a training.
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    points = torch.rand(2, NUM_POINTS, 2, dtype=torch.float64) * 2 - 1
    features = torch.randn(2, NUM_POINTS, 2, dtype=torch.float64)
    mask = torch.ones(2, NUM_POINTS, dtype=torch.bool)
    mask[1, -5:] = False
    expected: list[Tensor] = []

    def record(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        if k.shape[-2] == NUM_POINTS:
            one_hot = torch.eye(NUM_POINTS, dtype=q.dtype).expand(*k.shape[:-1], -1)
            expected.append(explicit_attention(q, k, one_hot, bias).mean(dim=1))
        return explicit_attention(q, k, v, bias)

    literal_forward(model, points, features, points[:, :7], mask=mask, attention=record)
    found = model.reading(Inputs(points, features, mask), [4, 1])
    assert found.weights.shape == (2, LEVELS, 2, NUM_POINTS)
    for level, weights in enumerate(expected):
        np.testing.assert_allclose(found.weights[:, level], weights[:, [4, 1]].detach(), atol=1e-6)
    np.testing.assert_allclose(found.weights.sum(-1), 1, rtol=1e-6)
    assert not found.weights[1, ..., -5:].any()
    assert len(found.anchors) == (LEVELS if window == "both" else 0)


@pytest.fixture
def case(dataset: Dataset) -> StoredCase:
    return dataset[dataset.cases("test")[0]]


def test_maps_of_a_rollout_are_its_decoder_weights(surrogate: Surrogate, case: StoredCase) -> None:
    start = surrogate.problem.shown_start(case)
    found = map_anchors(surrogate, case, [5, 2], start)
    whole = surrogate.decomposition(case, start_s=start).whole()
    weights = whole.weights[0].mean(dim=1).numpy()  # (T, M, L)
    np.testing.assert_allclose(found.weights, weights[..., [5, 2]].swapaxes(1, 2), rtol=1e-5)
    assert (found.dominant == weights.argmax(-1)).mean() > 0.99
    assert found.times is not None and len(found.times) == 2
    assert found.reading is not None and found.reading.shape == (2, 2, case.num_points)
    np.testing.assert_allclose(found.read_points, case.points, atol=1e-4)
    assert found.moved is None and found.displacements is None
    with pytest.raises(InputError, match="anchor 8: this model has anchors 0 to 7"):
        map_anchors(surrogate, case, [8], start)


@pytest.mark.parametrize("kind", ["sampled", "learned"])
def test_how_far_levels_move_anchors_is_told_in_metres(
    surrogate: Surrogate, case: StoredCase, kind: AnchorKind
) -> None:
    windows = {"gaussian_window": "encoder", "anchor_kind": kind}
    config = surrogate.problem.experiment.derive(model=windows).model
    model = Courant(config)
    assert model.windows is not None
    with (
        torch.no_grad()
    ):  # The displacement's weights are zero at the start: only the bias is left.
        model.windows.updates["1"].displacement.bias[:2] = torch.tensor([0.3, 0.4])
    windowed = Surrogate(surrogate.url, surrogate.problem, surrogate.dataset, model)
    found = map_anchors(windowed, case, [0], surrogate.problem.shown_start(case))
    assert found.displacements is not None
    np.testing.assert_allclose(found.displacements[0], 0, atol=1e-4)
    np.testing.assert_allclose(
        found.displacements[1], 0.5 * surrogate.normaliser.length_scale, rtol=1e-4
    )


def test_representative_anchors_are_strong_and_differ_in_how_they_swing() -> None:
    energies = np.array([9.0, 8.0, 7.0, 6.0, 0.1, 0.1, 0.1, 0.1])
    variance = np.array([0.1, 0.9, 0.5, np.nan, 1.0, 1.0, 1.0, 1.0])
    assert representative_anchors(energies, variance) == [1, 2, 3]
    assert representative_anchors(energies[::-1], None) == [7, 6, 5]
    assert representative_anchors(np.ones(1), np.ones(1)) == [0]


def test_the_command_writes_maps_of_the_anchors_that_are_named(
    surrogate: Surrogate, case: StoredCase, tmp_path: Path
) -> None:
    asked = ["analyse", "maps", surrogate.url, "--anchor", "5", "--anchor", "2"]
    done = CliRunner().invoke(app, [*asked, "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    with np.load(tmp_path / f"{case.id}_maps.npz") as arrays:
        assert arrays["chosen"].tolist() == [5, 2]
        assert arrays["weights"].shape == (2, 2, case.num_points)
        assert arrays["reading"].shape == (2, 2, case.num_points) and "moved" not in arrays
