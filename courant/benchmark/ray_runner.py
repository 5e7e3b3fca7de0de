"""Train a benchmark's trials on Ray Tune, and assess them as tasks of Ray.

All state is in the run directories, so a benchmark that is run again does what is left.
"""

from __future__ import annotations

from collections.abc import Sequence

from courant.ray_session import WORKER_ENVIRONMENT, ray_session

# isort: split
import ray

from courant.benchmark.assess import assess
from courant.benchmark.phases import OnPhase, carry_out, contender_of
from courant.benchmark.request import Request
from courant.sweeps.ray_trials import Follower, OnTrial, Share, last_line, run_trials
from courant.sweeps.sweep import Trial
from courant.training.loop import TrainingError
from simgen.errors import InputError, SimgenError


def run_benchmark(
    request: Request,
    *,
    cpus_per_trial: float | None = None,
    gpus_per_trial: float | None = None,
    on_phase: OnPhase = lambda phase, num: None,
    on_trial: OnTrial | None = None,
) -> list[Trial]:
    """Train and assess whatever is not on record; return the trials that count.

    InputError for a folder that holds another benchmark, for a budget below one epoch of a model,
    or for resources that no node has; TrainingError for a trial that keeps dying.
    """
    request.write()
    with ray_session(quiet=on_trial is not None):
        share = Share.of(request.base, cpus_per_trial, gpus_per_trial)
        return carry_out(request, RayRunner(request, share, on_trial), on_phase)


class RayRunner:
    """As many trials at a time as there is room for."""

    def __init__(self, request: Request, share: Share, on_trial: OnTrial | None) -> None:
        self._request, self._share, self._on_trial = request, share, on_trial

    def train(self, trials: Sequence[Trial], own_processes: bool) -> None:
        """TrainingError for a trial that keeps dying."""
        request = self._request
        follower = Follower(trials, self._on_trial)
        dataset = (request.dataset_url, request.version)
        run_trials(
            trials, request.folder, dataset, self._share, follower, own_processes=own_processes
        )

    def assess(self, trials: Sequence[Trial]) -> None:
        """InputError for a trial that cannot be assessed, such as cases without a window."""
        task = ray.remote(_assess).options(
            num_cpus=self._share.cpus,
            num_gpus=self._share.gpus,
            runtime_env={"env_vars": WORKER_ENVIRONMENT},
        )
        place, threads = self._request.dataset_url, max(1, int(self._share.cpus))
        left = {task.remote(trial.run.url, place, threads): trial for trial in trials}
        told = ""
        try:
            while left:
                for done in ray.wait(list(left))[0]:
                    told = _told(done, left.pop(done)) or told
        finally:
            # Never one that has ended: its driver would not survive that.
            for each in _running(list(left)):
                ray.cancel(each)
        if told:
            raise InputError(told)


def _running(tasks: list[ray.ObjectRef[str]]) -> list[ray.ObjectRef[str]]:
    return ray.wait(tasks, num_returns=len(tasks), timeout=0)[1] if tasks else []


def _told(done: ray.ObjectRef[str], trial: Trial) -> str:
    try:
        return ray.get(done)
    except ray.exceptions.RayError as error:
        raise TrainingError(
            f"model {contender_of(trial)} was trained and could not be assessed"
            f" ({last_line(error)}, {trial.run.url}); run the same again to go on, or leave it out"
            " of --models"
        ) from error


def _assess(run_url: str, dataset_url: str, threads: int) -> str:
    """Assess in a process of Ray; return the line of an error that is the user's."""
    from courant.cpu_arithmetic import use_threads

    use_threads(threads)
    try:
        assess(run_url, dataset_url)
    except SimgenError as error:
        return str(error)
    return ""
