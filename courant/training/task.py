"""What is trained on what: an experiment and a dataset version brought together, checked, and read into memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from courant.data.batches import Batches, BatchOrder
from courant.data.fitting import wrong_sizes
from courant.data.loading import load_batches, load_windows
from courant.data.normalisation import Normaliser
from courant.data.samples import Batch
from courant.data.steady import load_steady_batches, load_steady_samples
from courant.experiment import AnyExperiment, Experiment, SteadyExperiment
from courant.training.loss import Loss
from courant.training.validation import Validation, validate_samples, validate_windows
from simgen.errors import InputError

if TYPE_CHECKING:
    from simgen.store.reader import Dataset


@dataclass(frozen=True)
class Task:
    """An experiment with its data on the training device."""

    experiment: AnyExperiment
    normaliser: Normaliser
    train: Batches
    validation: Validation | None
    """None where the version has no validation case"""

    @property
    def loss(self) -> Loss:
        return Loss.of(self.experiment.training.loss, self.normaliser)

    @classmethod
    def load(
        cls, experiment: AnyExperiment, dataset: Dataset, device: torch.device, rank: int = 0, world: int = 1
    ) -> Task:
        """Read the training and validation splits; InputError where experiment and dataset do not fit together.

        Training batches are those of worker `rank` of `world`.
        """
        normaliser = check_experiment(experiment, dataset)
        if not dataset.cases("train"):
            raise InputError(
                f"dataset {dataset.url} {dataset.version} has no accepted case to train on; generate more cases"
            )
        training = experiment.training
        order = BatchOrder(training.batch_size, training.samples_per_epoch, training.seed, rank, world)
        train = _load_training(experiment, dataset, normaliser, order, device)
        validation = None
        if dataset.cases("validation"):
            validation = _load_validation(experiment, dataset, normaliser, device)
        return cls(experiment, normaliser, train, validation)

    def predict(self, model: nn.Module, batch: Batch) -> Tensor:
        """(B, T, M, C) standardised, in the experiment's precision; T = 1 in steady problems."""
        experiment = self.experiment
        steps = experiment.data.window_steps if isinstance(experiment, Experiment) else None
        precision, model_config = experiment.training.precision, experiment.model
        with torch.autocast(batch.points.device.type, torch.bfloat16, enabled=precision == "bfloat16"):
            prediction: Tensor = model(
                batch.points, batch.features, batch.query_points,
                batch.query_features if model_config.num_query_features else None,
                mask=batch.mask,
                parameters=batch.parameters if model_config.num_parameters else None,
                anchors=batch.anchors if model_config.anchor_kind == "sampled" else None,
                num_steps=steps,
            )  # fmt: skip
        return prediction[:, None] if steps is None else prediction


def check_experiment(experiment: AnyExperiment, dataset: Dataset) -> Normaliser:
    """The normalisation of the experiment's data.

    InputError where the experiment is for another family, or its model's sizes are not those that the data has.
    """
    schema = dataset.schema
    if experiment.family != schema.family:
        raise InputError(
            f"experiment {experiment.name} is for {experiment.family}, dataset {dataset.url} holds {schema.family}; "
            "choose a recipe of that family"
        )
    if (experiment.task == "transient") != schema.transient:
        raise InputError(
            f"experiment {experiment.name} is {experiment.task}, {schema.family} is {'transient' if schema.transient else 'steady'}; "
            "choose a recipe of that family"
        )
    normaliser = Normaliser.of(dataset, experiment.data.fields, experiment.data.distance_kinds)
    wrong = wrong_sizes(experiment, normaliser)
    if wrong:
        channels = ", ".join(channel.name for channel in normaliser.channels)
        raise InputError(
            f"experiment {experiment.name}: {'; '.join(wrong)} for channels {channels} and patch kinds {', '.join(normaliser.patch_kinds)}"
        )
    return normaliser


def _load_training(
    experiment: AnyExperiment, dataset: Dataset, normaliser: Normaliser, order: BatchOrder, device: torch.device
) -> Batches:
    num_anchors = experiment.model.num_anchors
    if isinstance(experiment, SteadyExperiment):
        return load_steady_batches(dataset, normaliser, experiment.data, order, num_anchors, device)
    assert isinstance(experiment, Experiment)
    return load_batches(dataset, normaliser, experiment.data, order, num_anchors, device)


def _load_validation(
    experiment: AnyExperiment, dataset: Dataset, normaliser: Normaliser, device: torch.device
) -> Validation:
    """The validation samples on the device."""
    num, num_anchors = experiment.training.validation_windows, experiment.model.num_anchors
    if isinstance(experiment, SteadyExperiment):
        samples = load_steady_samples(dataset, "validation", normaliser, experiment.data, num, num_anchors, device)
        return validate_samples(samples, normaliser)
    assert isinstance(experiment, Experiment)
    trajectories, windows = load_windows(dataset, "validation", normaliser, experiment.data, num, num_anchors, device)
    return validate_windows(trajectories, windows, experiment.data, normaliser)
