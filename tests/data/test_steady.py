"""Steady batches: what is stored, padded exactly, the same from memory and from the store, whoever
shares them.
"""

import numpy as np
import pytest
import torch

from courant.data.batch import BatchOrder
from courant.data.normalisation import Normaliser
from courant.data_config import SteadyData
from courant.problems.steady import SteadyBatches, SteadySource
from simgen.store.read import Dataset
from tests.data.conftest import assert_same, problem_on
from tests.world import SPACE

CONFIG = SteadyData(
    fields=("velocity.x", "velocity.z"),
    prescribed={"velocity": ("inlet",)},
    points_per_sample=30,
    queries_per_sample=20,
)
WHOLE = CONFIG.model_copy(update={"points_per_sample": None, "queries_per_sample": None})
ORDER = BatchOrder(batch_size=4, samples_per_epoch=None, seed=7)


CPU = torch.device("cpu")


def batches(
    ducts: Dataset, config: SteadyData, order: BatchOrder = ORDER, streamed: bool = False
) -> SteadyBatches:
    source = SteadySource(ducts, ducts.cases("train"), problem_on(ducts, config))
    return SteadyBatches(source, order, CPU, streamed=streamed)


def test_a_whole_batch_holds_the_stored_fields_padded_and_masked(ducts: Dataset) -> None:
    normaliser = Normaliser.of(ducts, CONFIG.fields)
    numbers, batch = next(batches(ducts, WHOLE).epoch(1))
    assert batch.query_mask is not None, "ducts differ in their number of cells"
    assert batch.mask is None, "and have as many boundary faces"
    for row, number in enumerate(numbers.tolist()):
        case = ducts[ducts.cases("train")[number]]
        n = case.num_points
        assert batch.query_mask[row].tolist() == [True] * n + [False] * (
            batch.query_points.shape[1] - n
        )
        truth = normaliser.standardise(np.asarray(case["velocity"][:])[:, [0, 2]])
        np.testing.assert_array_equal(batch.targets[row, 0, :n], truth)
        np.testing.assert_array_equal(batch.query_points[row, :n], normaliser.points(case.points))
        np.testing.assert_array_equal(
            batch.query_features[row, :n],
            normaliser.distance_channels((case.distance, case.direction), n),
        )
        shares = [(case.parameters[p.name] - p.low) / (p.high - p.low) for p in SPACE.parameters]
        np.testing.assert_allclose(batch.parameters[row], 2 * np.array(shares) - 1, atol=1e-6)


def test_drawn_points_are_points_of_the_case_with_its_values(ducts: Dataset) -> None:
    (numbers, whole), (same_numbers, drawn) = (
        next(batches(ducts, config).epoch(1)) for config in (WHOLE, CONFIG)
    )
    assert torch.equal(numbers, same_numbers)
    assert drawn.points.shape == (4, 30, 3)
    assert drawn.targets.shape == (4, 1, 20, 2)
    for row in range(4):
        places = torch.cdist(drawn.query_points[row], whole.query_points[row]).argmin(1)
        assert len(places.unique()) == 20, "drawn without repeats"
        assert torch.equal(drawn.targets[row], whole.targets[row][:, places])
        assert torch.equal(drawn.query_features[row], whole.query_features[row, places])
        places = torch.cdist(drawn.points[row], whole.points[row]).argmin(1)
        assert torch.equal(drawn.features[row], whole.features[row, places])


def test_workers_share_a_batch_as_one_worker_would_see_it(ducts: Dataset) -> None:
    _, whole = next(batches(ducts, CONFIG).epoch(1))
    for rank in range(2):
        _, part = next(batches(ducts, CONFIG, BatchOrder(4, None, 7, rank, 2)).epoch(1))
        assert torch.equal(part.points, whole.points[rank::2])
        assert torch.equal(part.targets, whole.targets[rank::2])


def test_batches_from_the_store_are_those_from_memory(ducts: Dataset) -> None:
    (_, first), (_, other) = (next(batches(ducts, CONFIG).epoch(epoch)) for epoch in (1, 2))
    assert not torch.equal(first.points, other.points)
    for config in (CONFIG, WHOLE):
        for (numbers, one), (others, other) in zip(
            batches(ducts, config).epoch(3),
            batches(ducts, config, streamed=True).epoch(3),
            strict=True,
        ):
            assert torch.equal(numbers, others)
            assert_same(one, other)


@pytest.mark.parametrize(("budget", "is_streamed"), [(1.0, False), (1e-6, True)])
def test_a_split_beyond_the_budget_is_streamed_and_any_other_is_not(
    ducts: Dataset, budget: float, is_streamed: bool
) -> None:
    config = CONFIG.model_copy(update={"resident_gb": budget})
    made = problem_on(ducts, config).training(ducts, ORDER, CPU)
    assert made.streamed is is_streamed and (made.num_bytes == 0) is is_streamed
