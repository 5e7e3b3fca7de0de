"""Read a run's normalisation, and with it the problem that its model solves."""

from __future__ import annotations

from courant.data.normalisation import Normaliser, powers_of
from courant.data_config import SteadyData
from courant.experiment import Experiment
from courant.problems import Problem, problem_of
from courant.runs.directory import RunDirectory
from simgen.errors import InputError


def read_problem(run: RunDirectory, experiment: Experiment) -> Problem:
    """Raise InputError where the normalisation is invalid or not for the experiment's model."""
    try:
        problem = problem_of(experiment, Normaliser.from_json(run.read_object("normaliser.json")))
        wrong = [*problem.wrong_sizes(), *_wrong_scale(problem)]
    except InputError as error:
        raise InputError(
            f"{run.url}/normaliser.json: {error}; the run is damaged, train it again"
        ) from error
    if wrong:
        raise InputError(
            f"{run.url}: experiment.json does not fit normaliser.json ({'; '.join(wrong)}); train"
            " again"
        )
    return problem


def _wrong_scale(problem: Problem) -> list[str]:
    """Say where fields do not scale as the experiment asks: predictions would have other units."""
    data, normaliser = problem.experiment.data, problem.normaliser
    asked = data.scaled_by if isinstance(data, SteadyData) else {}
    expected = powers_of(asked, normaliser.channels, normaliser.parameters)
    return [] if expected == normaliser.powers else ["data.scaled_by is not what powers say"]
