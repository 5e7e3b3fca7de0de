from collections.abc import Callable

import pytest
import torch

from courant.experiment import Experiment
from courant.runs.record import EpochRecord
from tests.world import tiny_experiment

torch.set_num_threads(1)


@pytest.fixture
def tiny() -> Experiment:
    return tiny_experiment()


class KilledError(Exception):
    """Stands for the end of the process at this very moment."""


def kill_at(epoch: int) -> Callable[[EpochRecord], None]:
    def on_epoch(record: EpochRecord) -> None:
        if record.epoch == epoch:
            raise KilledError

    return on_epoch
