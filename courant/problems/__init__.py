"""Find the kind of problem of an experiment, and check that it fits a dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from courant.data.geometry import read_edges
from courant.data.normalisation import Normaliser
from courant.experiment import Experiment, SteadyData
from courant.problems.problem import Problem, Window
from courant.problems.steady import SteadyProblem
from courant.problems.transient import TransientProblem
from simgen.errors import InputError

if TYPE_CHECKING:
    from simgen.store.read import Dataset

__all__ = ["Problem", "Window", "open_problem", "problem_of"]

PROBLEMS: dict[str, type[Problem]] = {of.kind: of for of in (TransientProblem, SteadyProblem)}


def problem_of(experiment: Experiment, normaliser: Normaliser) -> Problem:
    """Return the problem of an experiment whose data were checked before."""
    return PROBLEMS[experiment.task](experiment, normaliser)


def open_problem(experiment: Experiment, dataset: Dataset) -> Problem:
    """Return the problem of an experiment on a dataset; InputError where they do not fit."""
    family, task = dataset.schema.family, "transient" if dataset.schema.transient else "steady"
    if (experiment.family, experiment.task) != (family, task):
        raise InputError(
            f"experiment {experiment.name} is for {experiment.family} ({experiment.task}), dataset"
            f" {dataset.url} holds {family} ({task}); leave --recipe out, or choose one of that"
            " family"
        )
    data = experiment.data
    scaled_by = data.scaled_by if isinstance(data, SteadyData) else None
    normaliser = Normaliser.of(dataset, data.fields, data.distance_kinds, data.given, scaled_by)
    problem = problem_of(experiment, normaliser)
    if wrong := problem.wrong_sizes():
        channels = ", ".join(channel.name for channel in normaliser.channels)
        given = ", ".join(channel.name for channel in normaliser.given)
        kinds = ", ".join(normaliser.stored_kinds)
        raise InputError(
            f"experiment {experiment.name}: {'; '.join(wrong)} for channels {channels}"
            f"{given and f', given {given}'} and patch kinds {kinds or 'none'}"
        )
    if problem.reads_edges and (ids := dataset.cases()):
        read_edges(dataset[ids[0]])
    return problem
