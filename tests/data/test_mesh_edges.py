"""A model of edges gets those of each case's mesh, wherever whole meshes are read."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import courant
import simgen
from courant.data.geometry import read_edges
from courant.experiment import Experiment
from courant.problems import open_problem
from courant.recipes.compared import compared
from courant.runs.directory import RunDirectory
from courant.training.train import fit, set_up_run
from simgen.cell_mesh import HEXAHEDRON, QUAD, CellMesh
from simgen.errors import InputError
from simgen.point_cloud import PointCloud
from simgen.store.read import Dataset
from tests.baselines.tiny import OWN
from tests.world import publish_ducts, publish_waves, tiny_experiment, tiny_steady

WHOLE = {"points_per_sample": None, "queries_per_sample": 12}
BRIEF = {"epochs": 1, "samples_per_epoch": 4, "batch_size": 2, "validation_windows": 2}


def with_row(cloud: PointCloud) -> PointCloud:
    """Cells in a row along x: each shares a face with the ones beside it."""
    num_cells = len(cloud.points)
    corners = [(x, y, z) for x in range(num_cells + 1) for y, z in ((0, 0), (1, 0), (1, 1), (0, 1))]
    cells = [[HEXAHEDRON, 8, *range(4 * cell, 4 * cell + 8)] for cell in range(num_cells)]
    entries = np.concatenate([*cells, [QUAD, 4, 0, 1, 5, 4] * len(cloud.boundary.points)])
    return replace(cloud, mesh=CellMesh(np.array(corners, "f4"), entries.astype("i4")))


def expected_edges(num_cells: int) -> np.ndarray:
    """(N, 2): the cells before and behind each one of the row."""
    lists = np.stack([np.arange(num_cells) - 1, np.arange(num_cells) + 1], axis=1)
    lists[0], lists[-1] = (1, -1), (num_cells - 2, -1)
    return lists


@pytest.fixture(scope="module")
def meshed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Dataset]:
    folder = tmp_path_factory.mktemp("meshed")
    return {
        "transient": simgen.open_dataset(publish_waves(f"{folder}/cylinder-flow", change=with_row)),
        "steady": simgen.open_dataset(publish_ducts(f"{folder}/branched-pipe", change=with_row)),
    }


def of_edges(task: str) -> Experiment:
    like = tiny_experiment(**BRIEF) if task == "transient" else tiny_steady(**BRIEF)
    return compared(like.derive(data=WHOLE), "mgn").derive(model=OWN["mgn"])


@pytest.mark.parametrize("task", ["transient", "steady"])
def test_every_batch_has_the_faces_of_its_cases_meshes(
    task: str, meshed: dict[str, Dataset]
) -> None:
    torch.set_num_threads(1)
    dataset, experiment = meshed[task], of_edges(task)
    assert experiment.model.reads_edges
    problem = open_problem(experiment, dataset)
    case = dataset[dataset.cases("test")[0]]
    batch = problem.case_inputs(case, None, None)
    for edges in (read_edges(case), batch.neighbours[0]):
        np.testing.assert_array_equal(edges, expected_edges(case.num_points))
    cache = {"cache_gb": 0.0} if task == "transient" else {}
    streamed = experiment.derive(data={"resident_gb": 0.0, **cache})
    for shown in open_problem(streamed, dataset).validation(dataset, 2, torch.device("cpu"))():
        assert shown.neighbours is not None and shown.neighbours.shape[:2] == shown.points.shape[:2]
        real = torch.ones(shown.points.shape[:2]).bool() if shown.mask is None else shown.mask
        for lists, there in zip(shown.neighbours, real, strict=True):
            np.testing.assert_array_equal(lists[there], expected_edges(int(there.sum())))
            assert (lists[~there] == -1).all()


@pytest.mark.parametrize("task", ["transient", "steady"])
def test_it_trains_on_meshes_and_predicts_stored_cases(
    task: str, meshed: dict[str, Dataset], tmp_path: Path
) -> None:
    torch.set_num_threads(1)
    dataset, run = meshed[task], RunDirectory(tmp_path / "run")
    fit(of_edges(task), dataset, run)
    surrogate, case = courant.load(run.url, device="cpu"), dataset[dataset.cases("test")[0]]
    predicted = surrogate.predict_case(case)
    assert np.isfinite(predicted).all()
    known = {"initial": np.asarray(case["velocity"][0])}
    if task == "steady":
        known = {"boundary": case.boundary, "distance": (case.distance, case.direction)}
    with pytest.warns(UserWarning, match="points of a request have none"):
        asked = surrogate.predict(case.points, parameters=case.parameters, **known)
    assert asked.shape == predicted.shape and not np.allclose(asked, predicted)


def test_edges_need_whole_meshes_that_are_on_record(
    meshed: dict[str, Dataset], tmp_path: Path
) -> None:
    part = of_edges("steady").derive(data={"points_per_sample": 40})
    with pytest.raises(InputError, match="needs whole meshes: set data"):
        open_problem(part, meshed["steady"])
    bare = simgen.open_dataset(publish_waves(str(tmp_path / "cylinder-flow")))
    with pytest.raises(InputError, match=r'has no mesh on record.* set it to "nearest"'):
        set_up_run(of_edges("transient"), bare, str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()
