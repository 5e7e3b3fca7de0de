"""The public benchmarks' recipes against the paper's tables, and on generated cases.

Tables tab:community-benchmarks-overview, tab:courant-shared-hparams and tab:courant-training.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import courant
import simgen
from courant.experiment import Experiment, TransientData
from courant.problems import open_problem
from courant.recipes import RECIPES, get_recipe
from courant.runs.directory import RunDirectory
from courant.runs.record import read_records
from courant.training.train import fit, set_up_run
from simgen.errors import InputError
from simgen.imports.benchmarks import CellGrid, DarcyGrid, SorptionGrid, generate_benchmark
from simgen.store.read import Dataset

TRAINING = {
    "elasticity": (1000, 1, 5e-5, 1e-5, "cosine"),
    "pipe": (1000, 4, 1e-4, 1e-5, "cosine"),
    "airfoil": (1000, 8, 5e-4, 1e-4, "cosine"),
    "darcy-flow": (1000, 4, 5e-4, 1e-5, "cosine"),
    "diffusion-sorption": (500, 20, 5e-4, 1e-4, "step"),
    "compressible-flow-3d": (500, 2, 5e-4, 1e-4, "cosine"),
}
#: Features, outputs, features of the queries (Darcy's permeability) and dimension.
SIZES = {
    "elasticity": (2, 1, 0, 2),
    "pipe": (2, 1, 0, 2),
    "airfoil": (2, 1, 0, 2),
    "darcy-flow": (1, 1, 1, 2),
    "diffusion-sorption": (10, 1, 0, 1),
    "compressible-flow-3d": (50, 5, 0, 3),
}
GENERATED = {
    "darcy": ("darcy-flow", DarcyGrid(21, 2)),
    "diffusion-sorption": ("diffusion-sorption", SorptionGrid(16, 101)),
    "elasticity": ("elasticity", CellGrid(8, 4, 1)),
}
COMMUNITY = [*TRAINING, "darcy-flow-published", "diffusion-sorption-published"]


@pytest.fixture(scope="module", params=GENERATED)
def dataset(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    family, grid = GENERATED[request.param]
    url = str(tmp_path_factory.mktemp("store") / family)
    generate_benchmark(request.param, url, 4, 1, num_validation=1, grid=grid)
    return simgen.open_dataset(url)


@pytest.mark.parametrize("name", COMMUNITY)
def test_the_architecture_is_the_one_of_all_community_benchmarks(name: str) -> None:
    model = get_recipe(name).model
    assert (model.width, model.num_heads, model.num_levels, model.ffn_multiple) == (128, 3, 6, 2)
    assert (model.anchor_kind, model.bandwidth) == ("sampled", 0.3)
    assert model.num_anchors == (64 if model.transient else 256)
    if model.transient:
        assert (model.solver, model.step_size) == ("euler", 1.0)


@pytest.mark.parametrize("name", COMMUNITY)
def test_training_follows_the_table_of_its_dataset(name: str) -> None:
    experiment, row = get_recipe(name), name.removesuffix("-published")
    training = experiment.training
    assert (
        training.epochs,
        training.batch_size,
        training.learning_rate,
        training.weight_decay,
        training.schedule,
    ) == TRAINING[row]
    assert training.loss == "relative-l2"
    assert (training.clip_norm == 0.1) == (name == "airfoil")
    assert training.derivative_weight == (0.1 if row == "darcy-flow" else 0.0)
    model = experiment.model
    sizes = (model.num_features, model.num_outputs, model.num_query_features, model.dimension)
    assert sizes == SIZES[row]
    if isinstance(experiment.data, TransientData):
        assert (experiment.data.input_steps, experiment.data.window_steps) == (10, 10)
    if training.schedule == "step":
        assert (training.step_epochs, training.step_factor) == (100, 0.5)


def brief(name: str, **training: Any) -> Experiment:
    return get_recipe(name).derive(
        model={"width": 16, "num_heads": 2, "num_anchors": 4, "num_levels": 1},
        training={"epochs": 2, "batch_size": 2, "samples_per_epoch": 4, **training},
    )


def test_recipes_of_generated_benchmarks_train_on_them_and_predict(
    dataset: Dataset, tmp_path: Path
) -> None:
    name = dataset.schema.family
    assert {name, f"{name}-small"} <= set(RECIPES)
    for recipe in (name, f"{name}-small"):
        assert open_problem(get_recipe(recipe), dataset).wrong_sizes() == []
    torch.set_num_threads(1)
    run = RunDirectory(tmp_path) / "brief"
    fit(brief(name), dataset, run)
    surrogate, case = courant.load(run.url, device="cpu"), dataset[dataset.cases("test")[0]]
    predicted = surrogate.predict_case(case)
    assert np.isfinite(predicted).all()
    if name != "diffusion-sorption":
        return
    stored = np.asarray(case["concentration"][:])
    assert predicted.shape == (10, case.num_points, 1)
    asked = surrogate.predict(case.points, initial=stored[:10])
    np.testing.assert_allclose(asked, predicted, atol=1e-5)
    late = surrogate.predict_case(case, start_s=float(case.time[12]))
    np.testing.assert_allclose(
        surrogate.predict(case.points, initial=stored[3:13]), late, atol=1e-5
    )
    with pytest.raises(InputError, match=r"initial \(concentration\.u at 10 times 5 s apart, the"):
        surrogate.predict(case.points, initial=stored[9])
    with pytest.raises(InputError, match="has no snapshot at -5 s"):
        surrogate.predict_case(case, start_s=float(case.time[8]))


def test_derivatives_need_the_whole_of_a_common_grid(dataset: Dataset, tmp_path: Path) -> None:
    name = dataset.schema.family
    with pytest.raises(InputError, match="derivative_weight needs the whole grid"):
        brief(name, derivative_weight=0.1).derive(data={"queries_per_sample": 8})
    experiment = brief(name, derivative_weight=0.1)
    if dataset.schema.grid_shape is None:
        with pytest.raises(InputError, match=r"elasticity are no common structured grid; set it"):
            set_up_run(experiment, dataset, str(tmp_path))
        assert not list(tmp_path.iterdir())
        return
    plain, weighed = (RunDirectory(tmp_path) / each for each in ("plain", "weighed"))
    fit(brief(name, derivative_weight=0.0), dataset, plain)
    fit(experiment, dataset, weighed)
    # The same weights and batches at first: derivatives come on top.
    assert read_records(weighed)[0].train_loss > 1.01 * read_records(plain)[0].train_loss
