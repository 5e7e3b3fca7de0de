"""Read an experiment's data into memory for its training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from courant.data.batch import Batch
from courant.data.batches import Batches, BatchOrder
from courant.data.normalisation import Normaliser
from courant.ensemble.averaged import MembersApart
from courant.experiment import Experiment
from courant.field_model import TrainsApart
from courant.problems import Problem, open_problem
from courant.runs.directory import RunDirectory
from courant.runs.record import describe_run
from courant.training.anchor_start import anchor_start
from courant.training.locality import WithSpread
from courant.training.loss import Loss
from courant.training.validation import Validation
from simgen.errors import InputError

if TYPE_CHECKING:
    from simgen.store.access.reader import Dataset


@dataclass(frozen=True)
class Task:
    """An experiment with its data on the training device."""

    problem: Problem
    train: Batches
    validation: Validation | None
    """None where the version has no validation case"""
    grid: tuple[int, ...] = ()
    """The shape of the grid that all cases are; empty where the loss needs none"""
    anchors: Tensor | None = None
    """(L, 3), where learned anchors start; None where the model's own start stands"""

    @property
    def experiment(self) -> Experiment:
        return self.problem.experiment

    @property
    def normaliser(self) -> Normaliser:
        return self.problem.normaliser

    @property
    def loss(self) -> Loss:
        return Loss.of(self.experiment.training, self.normaliser, self.grid)

    @classmethod
    def load(
        cls,
        experiment: Experiment,
        dataset: Dataset,
        device: torch.device,
        rank: int = 0,
        world: int = 1,
    ) -> Task:
        """Read the training and validation splits.

        InputError where experiment and dataset do not fit together. Training batches are those of
        worker `rank` of `world`.
        """
        problem, training = open_problem(experiment, dataset), experiment.training
        grid = _grid_of(experiment, dataset)
        if not dataset.cases("train"):
            raise InputError(
                f"dataset {dataset.url} {dataset.version} has no accepted case to train on;"
                " generate more cases"
            )
        order = BatchOrder(
            training.batch_size, training.samples_per_epoch, training.seed, rank, world
        )
        train = problem.training(dataset, order, device)
        validation = None
        if dataset.cases("validation"):
            samples = problem.validation(dataset, training.validation_windows, device)
            validation = Validation(samples, problem.normaliser)
        anchors = anchor_start(experiment, dataset, problem.normaliser)
        return cls(problem, train, validation, grid, anchors)

    def trained(self, model: nn.Module) -> nn.Module:
        """Return what training steps call: the model, or with what else the loss needs of it.

        InputError for a model that cannot tell it.
        """
        if isinstance(model, TrainsApart):
            return MembersApart([self.trained(member) for member in model.trained_apart()])
        return WithSpread(model) if self.experiment.training.locality_weight else model

    def training_loss(self, trained: nn.Module, batch: Batch) -> Tensor:
        """Return the loss of a batch, of what `trained` made of a model."""
        weight = self.experiment.training.locality_weight
        inputs, queries = batch.for_model(self.experiment.model)
        mask = (batch.query_mask,) if weight else ()
        with self._precision(batch):
            made = trained(inputs, queries, self.problem.num_steps, *mask)
        if not isinstance(made, list):
            return self._loss_of(made, batch, weight)
        return torch.stack([self._loss_of(each, batch, weight) for each in made]).mean()

    def _loss_of(self, made: Tensor | tuple[Tensor, Tensor], batch: Batch, weight: float) -> Tensor:
        """Return the loss of a prediction, or of a prediction and the spread beside it."""
        if isinstance(made, Tensor):
            return self.loss(made, batch)
        prediction, spread = made
        return self.loss(prediction, batch) + weight * spread.float().mean()

    def predict(self, model: nn.Module, batch: Batch) -> Tensor:
        """Predict (B, T, M, C) standardised, in the experiment's precision; T = 1 if steady."""
        inputs, queries = batch.for_model(self.experiment.model)
        with self._precision(batch):
            prediction: Tensor = model(inputs, queries, self.problem.num_steps)
        return prediction

    def _precision(self, batch: Batch) -> torch.autocast:
        bfloat16 = self.experiment.training.precision == "bfloat16"
        return torch.autocast(batch.points.device.type, torch.bfloat16, enabled=bfloat16)


def set_up_run(experiment: Experiment, dataset: Dataset, runs_url: str) -> RunDirectory:
    """Make the run's directory and write down what is trained on what; train nothing yet.

    InputError where the experiment does not fit the dataset, StoreError where the directory cannot
    be written.
    """
    _grid_of(experiment, dataset)
    run = RunDirectory(runs_url) / experiment.run_id(dataset.snapshot_id)
    describe_run(run, experiment, dataset, open_problem(experiment, dataset).normaliser)
    return run


def _grid_of(experiment: Experiment, dataset: Dataset) -> tuple[int, ...]:
    """Return the shape of the cases' grid, if the loss has derivatives along it.

    InputError where the cases are not all one grid of three points or more along each axis.
    """
    if not experiment.training.derivative_weight:
        return ()
    grid = dataset.schema.grid_shape
    if grid is None or min(grid) < 3:
        raise InputError(
            f"training.derivative_weight: the cases of {dataset.url} are no common structured grid;"
            " set it to 0"
        )
    return grid
