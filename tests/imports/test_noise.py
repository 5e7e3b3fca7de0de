"""Rounding noise is no channel of a model, and a diverged case is not trained on."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import simgen
from courant.data.normalisation import Normaliser
from courant.problems import open_problem
from courant.recipes.fitted import fitted_recipe
from courant.runs.directory import RunDirectory
from courant.runs.record import read_records
from courant.training.train import fit
from simgen.errors import InputError
from simgen.imports import Field, Parameter, Source, SourceCase, import_cases, imported_schema
from simgen.store.read import Dataset

VELOCITY = Field("velocity", "m/s", ("x", "y", "z"))
SCHEMA = imported_schema(
    "wedge",
    dimension=3,
    fields=(VELOCITY, Field("wall", "m", ("value",), role="given")),
    source=Source("Somewhere", "https://example.org", "CC0"),
    parameters=(Parameter("speed", "m/s", 0, 9),),
    splits="drawn",
)
Change = Callable[[int, np.ndarray], np.ndarray]


def wedge(number: int, velocity: np.ndarray) -> np.ndarray:
    """Rounding is all of the third component, and none of it is far from zero."""
    noise = np.random.default_rng(number).normal(size=len(velocity))
    return velocity * (1, 1, 0) + 5e-15 * noise[:, None] * (0, 0, 1)


def cases(change: Change, num: int = 9) -> Iterator[SourceCase]:
    for number in range(num):
        points = np.random.default_rng(number).uniform(0, 1, (60, 3))
        velocity = change(number, (1 + 0.1 * number) * np.sin(3 * points))
        fields = {"velocity": velocity, "wall": np.full(60, 0.1)}
        yield SourceCase(f"case-{number}", points, fields, parameters={"speed": number})


def imported(folder: Path, change: Change) -> Dataset:
    url = str(folder / "wedge")
    import_cases(url, SCHEMA, cases(change))
    return simgen.open_dataset(url)


def test_noise_is_no_channel(tmp_path: Path) -> None:
    dataset = imported(tmp_path, wedge)
    assert dataset.varying("velocity") == ("x", "y") and dataset.varying("wall") == ()
    experiment = fitted_recipe(dataset)
    normaliser = open_problem(experiment, dataset).normaliser
    assert [each.name for each in normaliser.channels] == ["velocity.x", "velocity.y"]
    assert normaliser.given == (), "it is the same 0.1 everywhere, but for the rounding of its mean"
    assert experiment.model.num_outputs == 2
    with pytest.raises(InputError, match=r"velocity\.z is constant .* leave it out of data\.field"):
        Normaliser.of(dataset, ("velocity.x", "velocity.z"))
    with pytest.raises(InputError, match=r"wall\.value is constant .* leave it out of data\.given"):
        Normaliser.of(dataset, ("velocity",), given=("wall",))


def test_a_weak_component_is_a_channel(tmp_path: Path) -> None:
    dataset = imported(tmp_path, lambda number, velocity: velocity * (1, 1, 1e-3))
    assert dataset.varying("velocity") == ("x", "y", "z")


def test_a_run_beside_a_diverged_case_learns(tmp_path: Path) -> None:
    dataset = imported(tmp_path, lambda number, velocity: velocity * (1e15 if number == 4 else 1))
    small = {"width": 24, "num_heads": 2, "num_anchors": 8, "num_levels": 1}
    short = {"epochs": 3, "samples_per_epoch": 16, "warmup_steps": 0, "learning_rate": 5e-3}
    experiment = fitted_recipe(dataset).derive(model=small, training=short)
    run = RunDirectory(tmp_path / "run")
    fit(experiment, dataset, run)
    assert all(0 < record.train_loss < 10 for record in read_records(run))
