"""A steady model sees geometry, boundary conditions and parameters, and nothing that was solved."""

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch

import simgen
from courant.data.batch import Batch
from courant.data.normalisation import Normaliser
from courant.data_config import SteadyData
from courant.problems.steady import SteadySource
from simgen.store.read import Dataset, StoredCase
from tests.data.conftest import problem_on
from tests.world import publish_ducts

CONFIG = SteadyData(fields=("velocity.x", "velocity.z"), prescribed={"velocity": ("inlet",)})
MESH = CONFIG.model_copy(update={"encoder": "mesh"})


@pytest.fixture
def normaliser(ducts: Dataset) -> Normaliser:
    return Normaliser.of(ducts, CONFIG.fields)


def inputs_of(case: StoredCase, config: SteadyData) -> dict[str, np.ndarray]:
    problem = problem_on(case.dataset, config)
    batch = problem.known_batch(**problem.read_known(case))
    return {name: tensor[0].numpy() for name, tensor in batch.tensors.items()}


@pytest.mark.parametrize("config", [CONFIG, MESH])
@pytest.mark.parametrize("fields_", [CONFIG.fields, ("velocity", "kinematic_pressure")])
def test_no_solved_value_reaches_the_models_inputs(
    ducts: Dataset, tmp_path: Path, config: SteadyData, fields_: tuple[str, ...]
) -> None:
    """Every solved value changed, in cells and on faces: the inputs stay the same to the bit, and
    the targets do not.
    """
    other = simgen.open_dataset(
        publish_ducts(str(tmp_path / "branched-pipe"), 16, solved_scale=-3.0)
    )
    problem = problem_on(ducts, config.model_copy(update={"fields": fields_}))
    read = [SteadySource(version, ducts.cases(), problem) for version in (ducts, other)]
    for number in range(len(ducts)):
        ours, theirs = (source.read(number) for source in read)
        assert not torch.equal(ours.targets, theirs.targets)
        for field in fields(Batch):
            one, two = getattr(ours, field.name), getattr(theirs, field.name)
            assert (
                field.name == "targets" or (one is None and two is None) or torch.equal(one, two)
            ), field.name


def test_boundary_features_are_the_prescribed_values_and_zero_elsewhere(
    ducts: Dataset, normaliser: Normaliser
) -> None:
    case = ducts[0]
    inputs = inputs_of(case, CONFIG)
    values = normaliser.restore(inputs["features"])
    inlet = case.boundary.patch == 0
    np.testing.assert_allclose(
        values[inlet], case.boundary["velocity"][:][inlet][:, [0, 2]], atol=1e-5
    )
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
    np.testing.assert_array_equal(
        inputs["features"][:, 2:],
        normaliser.distance_channels((case.distance, case.direction), case.num_points),
    )


def test_the_distance_field_may_be_taken_to_some_kinds_or_to_the_nearest_of_several(
    ducts: Dataset,
) -> None:
    case = ducts[0]
    field, num = (case.distance, case.direction), case.num_points
    every = Normaliser.of(ducts, CONFIG.fields).distance_channels(field, num)
    wall = Normaliser.of(ducts, CONFIG.fields, ("wall",)).distance_channels(field, num)
    np.testing.assert_array_equal(wall, every[:, 8:])
    ends = Normaliser.of(ducts, CONFIG.fields, ("inlet+outlet", "wall"))
    joined = ends.distance_channels(field, num)
    assert joined.shape[1] == ends.num_distance_channels == 8
    nearer = np.where((every[:, 0] < every[:, 4])[:, None], every[:, :4], every[:, 4:8])
    np.testing.assert_array_equal(joined[:, :4], nearer)
    assert Normaliser.from_json(ends.to_json()) == ends
