"""What is trained on what: an experiment and a dataset version brought together, checked, and read into memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from courant.data.batches import Batches, BatchOrder
from courant.data.loading import load_batches, load_windows
from courant.data.normalisation import Normaliser
from courant.data.samples import Batch
from courant.experiment import Experiment
from courant.training.validation import Validation
from simgen.errors import InputError

if TYPE_CHECKING:
    from simgen.store.reader import Dataset


@dataclass(frozen=True)
class Task:
    """An experiment with its data on the training device."""

    experiment: Experiment
    normaliser: Normaliser
    train: Batches
    validation: Validation | None
    """None where the version has no validation case"""

    @classmethod
    def load(
        cls, experiment: Experiment, dataset: Dataset, device: torch.device, rank: int = 0, world: int = 1
    ) -> Task:
        """Read the training and validation splits; InputError where experiment and dataset do not fit together.

        Training batches are those of worker `rank` of `world`.
        """
        normaliser = Normaliser.of(dataset, experiment.data.fields)
        check_experiment(experiment, dataset, normaliser)
        if not dataset.cases("train"):
            raise InputError(
                f"dataset {dataset.url} {dataset.version} has no accepted case to train on; generate more cases"
            )
        training = experiment.training
        order = BatchOrder(training.batch_size, training.samples_per_epoch, training.seed, rank, world)
        train = load_batches(dataset, normaliser, experiment.data, order, experiment.model.num_anchors, device)
        return cls(experiment, normaliser, train, _load_validation(experiment, dataset, normaliser, device))

    def predict(self, model: nn.Module, batch: Batch) -> Tensor:
        """(B, T, M, C) standardised, in the experiment's precision."""
        precision, model_config = self.experiment.training.precision, self.experiment.model
        with torch.autocast(batch.points.device.type, torch.bfloat16, enabled=precision == "bfloat16"):
            return model(
                batch.points, batch.features, batch.query_points, batch.query_features,
                mask=batch.mask,
                anchors=batch.anchors if model_config.anchor_kind == "sampled" else None,
                num_steps=self.experiment.data.window_steps,
            )  # fmt: skip


def check_experiment(experiment: Experiment, dataset: Dataset, normaliser: Normaliser) -> None:
    """InputError where the experiment is for another family, or its model's sizes are not those that the data has."""
    if experiment.family != dataset.schema.family:
        raise InputError(
            f"experiment {experiment.name} is for {experiment.family}, dataset {dataset.url} holds {dataset.schema.family}; "
            "choose a recipe of that family"
        )
    num_channels, num_distance = len(normaliser.channels), normaliser.num_distance_channels
    expected = {
        "num_features": num_channels + num_distance,
        "num_outputs": num_channels,
        "num_query_features": num_distance,
        "num_parameters": 0,
        "dimension": 3,
        "transient": True,
    }
    wrong = [
        f"model.{name} = {getattr(experiment.model, name)}, expected {value}"
        for name, value in expected.items()
        if getattr(experiment.model, name) != value
    ]
    if wrong:
        channels = ", ".join(channel.name for channel in normaliser.channels)
        raise InputError(
            f"experiment {experiment.name}: {'; '.join(wrong)} for channels {channels} and patch kinds {', '.join(normaliser.patch_kinds)}"
        )


def _load_validation(
    experiment: Experiment, dataset: Dataset, normaliser: Normaliser, device: torch.device
) -> Validation | None:
    """The validation windows on the device; None where the split is empty."""
    if not dataset.cases("validation"):
        return None
    num = experiment.training.validation_windows
    trajectories, windows = load_windows(
        dataset, "validation", normaliser, experiment.data, num, experiment.model.num_anchors, device
    )
    return Validation(trajectories, windows, experiment.data, normaliser)
