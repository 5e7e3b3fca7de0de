"""`courant serve` and `courant explore`: a trained model over HTTP, until it is interrupted.

The explorer has designs solved by the deployment `generate/<family>`. The case joins the dataset
that the model was trained on, as a new version. It is a training case: a design that was chosen by
looking at the model's predictions is no fair test of them.
"""

from __future__ import annotations

import signal
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import simgen
from courant.experiment import parse_experiment
from courant.loopback import answered_names, in_address, listen
from courant.prediction.surrogate import load
from courant.runs.directory import RunDirectory
from courant.runs.record import open_recorded, read_dataset_record
from courant.serving.http_app import MAX_CONNECTIONS, HttpServer, Model, Solve, Solving, build_app
from courant.serving.model import ServedModel
from courant.serving.predictions import Limits
from flows.deployments import DeploymentRun, api_url, find_deployment
from flows.settings import LOOPBACK, host_of, load_settings
from flows.terminal import errors, print_line
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


def explore_model(
    run: str, host: str, port: int, place: str | None = None, names: Sequence[str] = ()
) -> None:
    """Serve a run, and tell where its page is; InputError for a model that has none.

    `place` is where its dataset lies now, if not where the run says; `names` as in `serve_model`.
    """
    parts = RunDirectory(run)
    experiment = parse_experiment(parts.read_object("experiment.json"))
    get_family(experiment.family)
    record = read_dataset_record(parts)
    dataset = _dataset(run, record, place)
    if dataset is None and experiment.task != "steady":
        raise InputError(
            f"{run} is a transient model: its page starts from the states of solved designs, and"
            " the dataset is not where it was; name its place with --dataset, or let the solver"
            " make the start: courant predict RUN --design ... --from-solver 100"
        )
    solving = offer_solver(record, dataset, host)
    page = f"explorer#{solving.token}" if solving.solver else "explorer"
    place = None if dataset is None else dataset.url
    serve_model(run, host, port, Limits(), page, place, solving, names)


def _dataset(run: str, record: Mapping[str, Any], place: str | None) -> Dataset | None:
    """Open the run's dataset; None, with a warning, where no place was named and none is found."""
    try:
        return open_recorded(run, record, place)
    except SimgenError as error:
        if place is not None:
            raise
        warnings.warn(f"no solved designs are shown: {error}", stacklevel=1)
        return None


def serve_model(
    run: str,
    host: str,
    port: int,
    limits: Limits,
    page: str = "docs",
    dataset: str | None = None,
    solving: Solving | None = None,
    names: Sequence[str] = (),
) -> None:
    """Serve a run until SIGTERM or Ctrl-C, which interrupts it like any command.

    On loopback, and where `names` are given, clients must ask for it by a name of loopback, by
    `host` or by one of `names`.

    `page` is what a person is told to open, `dataset` the place of the run's dataset (None: it is
    not opened), and `solving` starts the solver. With RAY_ADDRESS the model is placed on that
    cluster. InputError where the port is taken.
    """
    if load_settings().jobs_address:
        raise InputError(
            "courant serve joins a cluster of Ray by the address of its head, host:6379: give"
            " RAY_ADDRESS so, or unset it to serve from this machine"
        )
    listener = listen(host, port, MAX_CONNECTIONS)
    asked_to_end = threading.Event()
    with errors.status("loading the model"):
        model, stop = _load(run, limits, dataset)
        name = run.rstrip("/").rsplit("/", 1)[-1]
        hosts = answered_names(listener, host, names)
        app = build_app(name, model, limits, solving=solving, hosts=hosts)
        server = HttpServer(app, listener)
        server.start()
    try:
        address = f"http://{in_address(host)}:{port}"
        told = (
            f"serving  {address}/predict   what it takes: /model and /docs"
            if page == "docs"
            else f"open  {address}/{page}"
        )
        print_line(f"{told}   end with Ctrl-C")
        # Not earlier: while the model is loaded, Ctrl-C ends the command at once.
        signal.signal(signal.SIGTERM, lambda *_: asked_to_end.set())
        asked_to_end.wait()
    finally:
        server.stop()
        stop()


def _load(run: str, limits: Limits, dataset: str | None) -> tuple[Model, Callable[[], None]]:
    """Load the model here or on the cluster of RAY_ADDRESS, and return what stops it there."""
    if load_settings().ray_address is None:
        return ServedModel.load(run, limits, dataset), lambda: None
    from courant.ray_session import connect_ray

    connect_ray()
    from courant.serving import ray_serve

    try:
        placed = ray_serve.start(run, limits, dataset)
    except RuntimeError as error:
        load(run, device="cpu")  # which says what is wrong with a run; Ray's line does not
        raise InputError(f"{run} could not be served: {str(error).splitlines()[0]}") from error
    return placed, partial(ray_serve.stop, placed)
