"""What grows with the number of points and what does not, counted at torch's allocator."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from bench.measure import peak_bytes
from courant.model import attention
from courant.model import decoder as module
from courant.model.courant import Courant
from courant.model.decoder import blend
from tests.model.clouds import (
    CHOICES,
    Inputs,
    pad_cloud,
    random_inputs,
    random_model,
    relative_error,
)

CPU = torch.device("cpu")


def _train_once(model: Courant, inputs: Inputs) -> None:
    model(**inputs.arguments()).square().sum().backward()


@torch.no_grad()
@pytest.mark.parametrize("name", ["steady", "window, transient", "design parameters"])
def test_a_large_cloud_is_read_part_by_part(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(CHOICES[name], width=128, num_heads=3)
    model = random_model(config)
    inputs = pad_cloud(random_inputs(config, clouds=2, points=20_000), extra=700, filling=0.3)
    assert inputs.mask is not None
    inputs.mask[1] = False  # a cloud without a point

    def read() -> torch.Tensor:
        return model.encode(inputs.arguments()["inputs"])

    at_once, peak = read(), peak_bytes(read, CPU)
    monkeypatch.setattr(attention, "STREAMED_PART", 512)
    assert relative_error(read(), at_once) < 1e-5
    assert peak_bytes(read, CPU) < 0.5 * peak


def test_a_decomposition_in_chunks_does_not_grow_with_the_queries() -> None:
    config = CHOICES["steady"]
    model = random_model(config)

    def through(queries: int) -> int:
        inputs = random_inputs(config, clouds=1, queries=queries)
        decomposition = model.decompose(**inputs.arguments())

        def visit() -> None:
            for part in decomposition.chunks(500):
                assert part.contributions.isfinite().all()

        return peak_bytes(visit, CPU)

    assert through(20_000) < 1.1 * through(2_000)


def test_beyond_its_budget_the_decoder_keeps_no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    q = torch.randn(1, 3, 4_000, 8, requires_grad=True)
    k = torch.randn(1, 1, 3, 64, 8, requires_grad=True)
    table = torch.randn(1, 1, 3, 64, 2, requires_grad=True)
    weights = 4 * 3 * 4_000 * 64

    def step() -> None:
        blend(q, k, table).square().sum().backward()

    step()
    assert peak_bytes(step, CPU) > weights
    monkeypatch.setattr(module, "_KEEP", 0)
    monkeypatch.setattr(module, "_TILE", 2**13)
    assert peak_bytes(step, CPU) < 0.5 * weights


def test_windows_take_no_matrix_of_anchors_times_points() -> None:
    # Heads of 42 in 48: there is room for the columns.
    plain = replace(CHOICES["steady"], num_anchors=64, width=128)
    windowed = replace(plain, gaussian_window="both")
    peaks = {}
    for config in (plain, windowed):
        model = random_model(config)
        inputs = random_inputs(config, clouds=1, points=3_000, queries=3_000)
        inputs = replace(inputs, anchors=inputs.points[:, :64].clone())
        peaks[config] = peak_bytes(partial(_train_once, model, inputs), CPU)
    assert peaks[windowed] < 1.05 * peaks[plain]


def test_checkpointing_trades_time_for_the_encoders_activations() -> None:
    kept = replace(CHOICES["steady"], num_levels=5, width=64)
    peaks = {}
    for config in (kept, replace(kept, checkpoint_activations=True)):
        model, inputs = random_model(config), random_inputs(config, clouds=1, points=4_000)
        peaks[config.checkpoint_activations] = peak_bytes(partial(_train_once, model, inputs), CPU)
    assert peaks[True] < 0.6 * peaks[False]
