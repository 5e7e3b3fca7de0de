"""Steady batches: what is stored, padded exactly, the same from memory and from the store; their
inputs are geometry, boundary conditions and parameters, and nothing that was solved.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import simgen
from courant.data.batch import BatchOrder
from courant.data.normalisation import Normaliser
from courant.experiment import SteadyData
from courant.problems.steady import SteadyBatches, SteadySource
from simgen.errors import InputError
from simgen.store.read import Dataset, StoredCase
from tests.data.conftest import assert_drawn, assert_same, problem_on
from tests.world import SPACE, publish_ducts

KNOWN = SteadyData(fields=("velocity.x", "velocity.z"), prescribed={"velocity": ("inlet",)})
MESH = KNOWN.model_copy(update={"encoder": "mesh"})
CONFIG = KNOWN.model_copy(update={"points_per_sample": 30, "queries_per_sample": 20})
ORDER = BatchOrder(batch_size=4, samples_per_epoch=None, seed=7)

CPU = torch.device("cpu")


def batches(
    ducts: Dataset, config: SteadyData, order: BatchOrder = ORDER, streamed: bool = False
) -> SteadyBatches:
    source = SteadySource(ducts, ducts.cases("train"), problem_on(ducts, config))
    return SteadyBatches(source, order, CPU, streamed=streamed)


def test_a_whole_batch_holds_the_stored_fields_padded_and_masked(ducts: Dataset) -> None:
    normaliser = Normaliser.of(ducts, CONFIG.fields)
    numbers, batch = next(batches(ducts, KNOWN).epoch(1))
    assert batch.query_mask is not None, "ducts differ in their number of cells"
    assert batch.mask is None, "and have as many boundary faces"
    for row, number in enumerate(numbers.tolist()):
        case = ducts[ducts.cases("train")[number]]
        n = case.num_points
        truth = normaliser.standardise(np.asarray(case["velocity"][:])[:, [0, 2]])
        distance = normaliser.distance_channels((case.distance, case.direction), n)
        same = np.testing.assert_array_equal
        same(batch.query_mask[row], np.arange(batch.query_points.shape[1]) < n)
        same(batch.targets[row, 0, :n], truth)
        same(batch.query_points[row, :n], normaliser.points(case.points))
        same(batch.query_features[row, :n], distance)
        shares = [(case.parameters[p.name] - p.low) / (p.high - p.low) for p in SPACE.parameters]
        np.testing.assert_allclose(batch.parameters[row], 2 * np.array(shares) - 1, atol=1e-6)


def test_drawn_points_are_points_of_the_case_with_its_values(ducts: Dataset) -> None:
    (numbers, whole), (same_numbers, drawn) = (
        next(batches(ducts, config).epoch(1)) for config in (KNOWN, CONFIG)
    )
    assert torch.equal(numbers, same_numbers)
    assert (drawn.points.shape, drawn.targets.shape) == ((4, 30, 3), (4, 1, 20, 2))
    assert_drawn(drawn, whole)


def test_workers_share_a_batch_as_one_worker_would_see_it(ducts: Dataset) -> None:
    _, whole = next(batches(ducts, CONFIG).epoch(1))
    for rank in range(2):
        _, part = next(batches(ducts, CONFIG, BatchOrder(4, None, 7, rank, 2)).epoch(1))
        assert torch.equal(part.points, whole.points[rank::2])
        assert torch.equal(part.targets, whole.targets[rank::2])


def test_batches_from_the_store_are_those_from_memory(ducts: Dataset) -> None:
    (_, first), (_, other) = (next(batches(ducts, CONFIG).epoch(epoch)) for epoch in (1, 2))
    assert not torch.equal(first.points, other.points)
    for config in (CONFIG, KNOWN):
        both = (batches(ducts, config, streamed=is_streamed).epoch(3) for is_streamed in (0, 1))
        for (numbers, one), (others, other) in zip(*both, strict=True):
            assert torch.equal(numbers, others)
            assert_same(one, other)


@pytest.mark.parametrize(("budget", "is_streamed"), [(1.0, False), (1e-6, True)])
def test_a_split_beyond_the_budget_is_streamed_and_any_other_is_not(
    ducts: Dataset, budget: float, is_streamed: bool
) -> None:
    config = CONFIG.model_copy(update={"resident_gb": budget})
    made = problem_on(ducts, config).training(ducts, ORDER, CPU)
    assert made.streamed is is_streamed


@pytest.fixture
def normaliser(ducts: Dataset) -> Normaliser:
    return Normaliser.of(ducts, KNOWN.fields)


def inputs_of(case: StoredCase, config: SteadyData) -> dict[str, np.ndarray]:
    problem = problem_on(case.dataset, config)
    batch = problem.known_batch(**problem.read_known(case))
    return {name: tensor[0].numpy() for name, tensor in batch.tensors.items()}


@pytest.mark.parametrize("config", [KNOWN, MESH])
@pytest.mark.parametrize("fields_", [KNOWN.fields, ("velocity", "kinematic_pressure")])
def test_no_solved_value_reaches_the_models_inputs(
    ducts: Dataset, tmp_path: Path, config: SteadyData, fields_: tuple[str, ...]
) -> None:
    """Every solved value changed, in cells and on faces: to the bit the inputs stay the same."""
    url = publish_ducts(str(tmp_path / "branched-pipe"), 16, solved_scale=-3.0)
    other = simgen.open_dataset(url)
    problem = problem_on(ducts, config.model_copy(update={"fields": fields_}))
    read = [SteadySource(version, ducts.cases(), problem) for version in (ducts, other)]
    for number in range(len(ducts)):
        ours, theirs = (source.read(number) for source in read)
        assert not torch.equal(ours.targets, theirs.targets)
        assert_same(ours, replace(theirs, targets=ours.targets))


def test_boundary_features_are_the_prescribed_values_and_zero_elsewhere(
    ducts: Dataset, normaliser: Normaliser
) -> None:
    case = ducts[0]
    inputs = inputs_of(case, KNOWN)
    values = normaliser.restore(inputs["features"])
    inlet = case.boundary.patch == 0
    prescribed = case.boundary["velocity"][:][inlet][:, [0, 2]]
    np.testing.assert_allclose(values[inlet], prescribed, atol=1e-5)
    np.testing.assert_allclose(values[~inlet], 0, atol=1e-5)
    assert np.abs(values[inlet]).max() > 0
    np.testing.assert_array_equal(inputs["points"], normaliser.points(case.boundary.points))
    np.testing.assert_array_equal(inputs["query_points"], normaliser.points(case.points))


def test_a_mesh_carries_the_condition_of_its_nearest_face_and_its_distance_field(
    ducts: Dataset, normaliser: Normaliser
) -> None:
    case = ducts[0]
    inputs = inputs_of(case, MESH)
    assert inputs["features"].shape == (case.num_points, 2 + 12)
    gaps = np.linalg.norm(case.points[:, None] - case.boundary.points[None], axis=-1)
    on_inlet = case.boundary.patch[gaps.argmin(1)] == 0
    values = normaliser.restore(inputs["features"][:, :2])
    assert on_inlet.any()
    prescribed = case.boundary["velocity"][:][gaps.argmin(1)][on_inlet][:, [0, 2]]
    assert np.abs(prescribed).max() > 0
    np.testing.assert_allclose(values[on_inlet], prescribed, atol=1e-5)
    np.testing.assert_allclose(values[~on_inlet], 0, atol=1e-5)
    distance = normaliser.distance_channels((case.distance, case.direction), case.num_points)
    np.testing.assert_array_equal(inputs["features"][:, 2:], distance)


def test_the_distance_field_may_be_taken_to_some_kinds_or_to_the_nearest_of_several(
    ducts: Dataset,
) -> None:
    case = ducts[0]
    field, num = (case.distance, case.direction), case.num_points
    every = Normaliser.of(ducts, KNOWN.fields).distance_channels(field, num)
    wall = Normaliser.of(ducts, KNOWN.fields, ("wall",)).distance_channels(field, num)
    np.testing.assert_array_equal(wall, every[:, 8:])
    ends = Normaliser.of(ducts, KNOWN.fields, ("inlet+outlet", "wall"))
    joined = ends.distance_channels(field, num)
    assert joined.shape[1] == ends.num_distance_channels == 8
    nearer = np.where((every[:, 0] < every[:, 4])[:, None], every[:, :4], every[:, 4:8])
    np.testing.assert_array_equal(joined[:, :4], nearer)
    assert Normaliser.from_json(ends.to_json()) == ends


def test_a_boundary_without_what_is_prescribed_is_an_error(ducts: Dataset) -> None:
    problem, case = problem_on(ducts, KNOWN), ducts[0]
    faces = {"points": case.boundary.points, "patch": case.boundary.patch}
    velocity = np.asarray(case.boundary["velocity"][:])
    asked = {"parameters": case.parameters, "distance": (case.distance, case.direction)}
    space = ducts.schema.parameters
    problem.prepare(space, case.points, boundary={**faces, "velocity": velocity}, **asked)
    for boundary, answer in (
        (faces, "boundary has no velocity"),
        ({**faces, "velocity": velocity[:, :1]}, r"expected \(\d+, 3 or more\)"),
    ):
        with pytest.raises(InputError, match=answer):
            problem.prepare(space, case.points, boundary=boundary, **asked)
