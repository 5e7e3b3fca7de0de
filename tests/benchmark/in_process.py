"""Train and assess in this process, as Ray's processes do, without waiting for them."""

from collections.abc import Sequence

import simgen
from courant.benchmark.assess import assess
from courant.benchmark.phases import carry_out
from courant.benchmark.request import Request
from courant.runs.record import write_status
from courant.sweeps.sweep import Trial
from courant.training.loop import TrainingError, fit


class Here:
    """Remembers what it was asked to train and to assess."""

    def __init__(self, request: Request) -> None:
        self.dataset = simgen.open_dataset(request.dataset_url, request.version)
        self.trained: list[str] = []
        self.assessed: list[str] = []

    def train(self, trials: Sequence[Trial], own_processes: bool) -> None:
        for trial in trials:
            self.trained.append(trial.experiment.name)
            try:
                fit(trial.experiment, self.dataset, trial.run)
            except TrainingError as error:
                write_status(trial.run, "failed", reason=str(error))

    def assess(self, trials: Sequence[Trial]) -> None:
        for trial in trials:
            self.assessed.append(trial.experiment.name)
            assess(trial.run.url, self.dataset.url)


def run_here(request: Request) -> tuple[Here, list[Trial]]:
    """Do what is left of a benchmark."""
    request.write()
    here = Here(request)
    return here, carry_out(request, here, lambda phase, num: None)
