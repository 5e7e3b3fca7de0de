"""A replayed function does what the function does, call by call; recording is stood in for where
there is no GPU."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from courant.training import step
from courant.training.step import WARM_UPS, Replayed, Tensors


class Recorded:
    """Stands for CUDA's recorder: recording runs nothing, a replay runs the work on the tensors
    that it was recorded with."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, call: Callable[[], Tensor]) -> Callable[[], Tensor]:
        self.count += 1
        output = torch.full((2,), float("nan"))

        def replay() -> Tensor:
            return output.copy_(call())

        return replay


def test_every_call_does_the_work_once_whatever_the_shapes_and_their_order() -> None:
    total, record = torch.zeros(2), Recorded()

    def add(inputs: Tensors) -> Tensor:
        total.add_(inputs["x"].sum(0))
        return total

    replayed, expected, outputs = Replayed(add, record), torch.zeros(2), []
    for number in range(12):
        x = torch.full((1 + number % 3, 2), float(number))
        expected = expected + x.sum(0)
        outputs.append((replayed({"x": x}), expected))
    assert record.count == 3, "one graph for each of the three shapes"
    for output, wanted in outputs[3 * WARM_UPS :]:
        assert torch.equal(output, wanted), "an output is not overwritten by later replays"


def test_inputs_that_come_and_go_are_other_shapes() -> None:
    record = Recorded()
    replayed = Replayed(lambda inputs: sum(inputs.values(), torch.zeros(2)), record)
    for _ in range(WARM_UPS + 2):
        assert replayed({"x": torch.ones(2)}).tolist() == [1, 1]
        assert replayed({"x": torch.ones(2), "mask": torch.ones(2)}).tolist() == [2, 2]
    assert record.count == 2


def test_beyond_so_many_shapes_the_rest_is_computed_plainly(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(step, "MOST_GRAPHS", 1)
    record = Recorded()
    replayed = Replayed(lambda inputs: inputs["x"][:2], record)
    for _ in range(WARM_UPS + 2):
        for size in (2, 3):
            assert replayed({"x": torch.arange(size)}).tolist() == [0, 1]
    assert record.count == 1
    assert "1 CUDA graphs recorded; other shapes are computed plainly" in caplog.text
