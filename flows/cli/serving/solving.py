"""Have a design of the explorer solved by the deployment `generate/<family>`.

The case joins the dataset that the model was trained on, as a new version. It is a training case: a
design that was chosen by looking at the model's predictions is no fair test of them.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Protocol

import simgen
from courant.serving.solving import Solve, Solving
from flows.deployments import DeploymentRun, api_url, find_deployment
from flows.settings import LOOPBACK, host_of
from simgen.cases import get_family
from simgen.errors import InputError, SimgenError
from simgen.store.read import Dataset


class Runs(Protocol):
    """Declare what is needed of a deployment."""

    def begin(self, parameters: Mapping[str, Any]) -> DeploymentRun: ...

    def look(self, run: str) -> DeploymentRun: ...


class DeploymentSolver:
    """The solver of a dataset's cases, as runs of its deployment."""

    def __init__(
        self, runs: Runs, dataset: str, family: str, settings: Mapping[str, float]
    ) -> None:
        self._runs, self._dataset = runs, dataset
        self._family, self._settings = get_family(family), dict(settings)
        self._lock = threading.Lock()
        self._cases: dict[str, str] = {}
        """The case's id by the run's"""

    def begin(self, parameters: Mapping[str, float]) -> Solve:
        """Start a run for a design, or return the one that is under way."""
        point = self._family.point(parameters, self._settings)
        with self._lock:
            for run in [run for run, case in self._cases.items() if case == point.id]:
                if not (under_way := self._look(run)).ended:
                    return under_way
            asked = {
                "family": self._family.name,
                "cases": 1,
                "design_parameters": [dict(point.parameters)],
                "preset": next(iter(self._family.presets)),
                "settings": point.settings,
                "store": self._dataset.rpartition("/")[0],
                "split": "train",
                "retry_failed": True,
            }
            begun = self._runs.begin(asked)
            self._cases[begun.id] = point.id
        return self._described(begun)

    def look(self, solve: str) -> Solve:
        """Return how far a run is that this solver has begun."""
        if solve not in self._cases:
            raise InputError(f"{solve[:100]} is no run that this server has started")
        return self._look(solve)

    def _look(self, solve: str) -> Solve:
        return self._described(self._runs.look(solve))

    def _described(self, run: DeploymentRun) -> Solve:
        reason = ""
        if run.completed:
            reason = self._outcome(self._cases[run.id])
        elif run.ended:
            reason = f"the run ended as {run.state}: {run.message}"[:500]
        return Solve(id=run.id, state=run.state, ended=run.ended, url=run.url, reason=reason)

    def _outcome(self, case: str) -> str:
        """Say why the dataset has no accepted case of this id; empty where it has."""
        dataset = simgen.open_dataset(self._dataset)
        if case in dataset.cases():
            return ""
        if case not in dataset.design.index:
            return f"{dataset.version} of the dataset does not have it: the worker has another one"
        stored = dataset[case]
        return f"the case is {stored.status}: {stored.reason}"[:500]


def offer_solver(record: Mapping[str, Any], dataset: Dataset | None, host: str) -> Solving:
    """Return the solver for a run's designs, or say why there is none."""
    try:
        return Solving(_solver(record, dataset, host))
    except SimgenError as error:
        return Solving(reason=str(error))


def _solver(record: Mapping[str, Any], dataset: Dataset | None, host: str) -> DeploymentSolver:
    if host not in LOOPBACK:
        raise InputError("the solver is started only where the server listens on loopback alone")
    url = api_url()
    if url is None:
        raise InputError("PREFECT_API_URL names no Prefect server")
    if dataset is None:
        raise InputError("the run's dataset cannot be read from here")
    family, place = record["family"], dataset.url.rstrip("/")
    if place.rpartition("/")[2] != family:
        raise InputError(
            f"the dataset is not at STORE/{family}, where its deployment would add to it"
        )
    if "://" not in place and host_of(url) not in LOOPBACK:
        raise InputError(
            "the dataset is a folder of this machine, which the workers of another machine's"
            " Prefect server do not see"
        )
    settings = record.get("settings") or dataset[0].settings
    return DeploymentSolver(find_deployment(f"generate/{family}"), place, family, settings)
