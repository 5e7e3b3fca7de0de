"""`courant serve` and `courant explore`: a trained model over HTTP, until it is interrupted.

The explorer has designs solved by the deployment `generate/<family>`. The case joins the dataset
that the model was trained on, as a new version. It is a training case: a design that was chosen by
looking at the model's predictions is no fair test of them.
"""

from __future__ import annotations

import posixpath
import shlex
import signal
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

import courant
import simgen
from courant.experiment import parse_experiment
from courant.loopback import LOOPBACK, answered_names, in_address, listen
from courant.prediction.shared_mesh import meshing_family
from courant.recipes import RECIPES
from courant.report.verdict import known_verdict
from courant.runs.directory import RunDirectory
from courant.runs.record import open_recorded, read_dataset_record
from courant.serving import http_app
from courant.serving.predictions import Limits
from flows.settings import check_prefect, host_of, load_settings, prefect_url
from flows.terminal import errors, print_line
from simgen.cases import FAMILIES, get_family
from simgen.errors import InputError, SimgenError, first_line
from simgen.store.versions import read_on_record

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun


class DeploymentSolver:
    """The solver of a dataset's cases, as flow runs of its deployment on a Prefect server."""

    def __init__(
        self, deployment: UUID, dataset: str, family: str, settings: Mapping[str, float]
    ) -> None:
        self._deployment, self._dataset = deployment, dataset
        self._family, self._settings = get_family(family), dict(settings)
        self._lock = threading.Lock()
        self._cases: dict[str, str] = {}
        """The case's id by the run's"""

    def begin(self, design: Mapping[str, float]) -> http_app.Solve:
        """Start a run for a design, or return the one that is under way."""
        point = self._family.point(design, self._settings)
        with self._lock:
            for run in [run for run, case in self._cases.items() if case == point.id]:
                if not (under_way := self.look(run)).ended:
                    return under_way
            parameters = {
                "family": self._family.name,
                "cases": 1,
                "design_parameters": [dict(point.parameters)],
                "preset": next(iter(self._family.presets)),
                "settings": point.settings,
                "store": self._dataset.rpartition("/")[0],
                "split": "train",
                "retry_failed": True,
            }
            begun = self._start(parameters)
            self._cases[str(begun.id)] = point.id
        return self._described(begun)

    def look(self, solve: str) -> http_app.Solve:
        """Return how far a run is that this solver has begun."""
        if solve not in self._cases:
            raise InputError(f"{solve[:100]} is no run that this server has started")
        if (found := self._read(solve)) is not None:
            return self._described(found)
        reason = "the run was deleted on Prefect's server"
        return http_app.Solve(id=solve, state="Deleted", ended=True, url="", reason=reason)

    def _start(self, parameters: dict[str, Any]) -> FlowRun:
        with _prefect_client() as client:
            return client.create_flow_run_from_deployment(self._deployment, parameters=parameters)

    def _read(self, run: str) -> FlowRun | None:
        from prefect.exceptions import ObjectNotFound

        with _prefect_client() as client:
            try:
                return client.read_flow_run(UUID(run))
            except ObjectNotFound:
                return None

    def _described(self, run: FlowRun) -> http_app.Solve:
        """Return the run's state and, once it has ended, why there is no accepted case."""
        from prefect.utilities.urls import url_for

        name, state, reason = str(run.id), run.state, ""
        ended = state is not None and state.is_final()
        if state is not None and state.is_completed():
            found = read_on_record(self._dataset)
            row = found and found.design.get(self._cases[name])
            if not row:
                reason = "the dataset has no such case: the worker's differs"
            elif row["status"] != "accepted":
                reason = f"the case is {row['status']}: {row['reason']}"
        elif ended and state is not None:
            reason = f"the run ended as {state.name}: {state.message}"
        url = url_for("flow-run", obj_id=run.id) or ""
        label = (state and state.name) or "Scheduled"
        return http_app.Solve(id=name, state=label, ended=ended, url=url, reason=reason[:500])


def _prefect_client() -> SyncPrefectClient:
    from prefect.client.orchestration import get_client

    return get_client(sync_client=True)


def find_deployment(name: str) -> UUID:
    """Find a deployment by FLOW/DEPLOYMENT; InputError where there is none, or no server."""
    from prefect.exceptions import ObjectNotFound

    check_prefect(prefect_url() or "")
    try:
        with _prefect_client() as client:
            return client.read_deployment_by_name(name).id
    except ObjectNotFound:
        raise InputError(
            f"Prefect's server has no deployment {name}; prefect --no-prompt deploy --all makes it"
        ) from None


def offer_solver(
    record: Mapping[str, Any], dataset: simgen.Dataset | None, host: str
) -> http_app.Solving:
    """Return the solver for a run's designs, or the reason why there is none."""
    url, family = prefect_url(), record["family"]
    place = "" if dataset is None else dataset.url.rstrip("/")
    try:
        for is_wrong, reason in (
            (host not in LOOPBACK, "the solver is started only if the server is on loopback alone"),
            (dataset is None, "the run's dataset cannot be read from here"),
            (
                dataset is not None and dataset.schema.source is not None,
                "its cases were solved elsewhere: solve it there, and import it into the dataset",
            ),
            (url is None, "PREFECT_API_URL names no Prefect server"),
            (
                place.rpartition("/")[2] != family,
                f"the dataset is not at STORE/{family}, where its deployment would add to it",
            ),
            (
                "://" not in place and host_of(url or "") not in LOOPBACK,
                "the dataset is a folder of this machine, which the workers of another machine's"
                " Prefect server do not see",
            ),
        ):
            if is_wrong:
                return http_app.Solving(reason=reason)
        assert dataset is not None
        settings = record.get("settings") or dataset[0].settings
        deployment = find_deployment(f"generate/{family}")
    except SimgenError as error:
        return http_app.Solving(reason=str(error))
    return http_app.Solving(DeploymentSolver(deployment, place, family, settings))


def terminal_commands(
    run: str, dataset: str, recipe: str, record: Mapping[str, Any]
) -> dict[str, str]:
    """Return the commands that the page shows, as far as there are such; see `SolvingOffer`."""
    family, store, runs = record["family"], *map(posixpath.dirname, (dataset, run))
    found = {}
    if family in FAMILIES:
        settings = FAMILIES[family].options(record["settings"] or {})
        generate = f"courant generate {family} --store {shlex.quote(store)}{settings}"
        found["solve"] = f"{generate} --designs design.csv --split train"
        found["calibrate"] = (
            f"{generate} --cases 60 --sampler uniform --seed 7 --split calibration\n"
            f"courant calibrate {shlex.quote(run)}"
        )
    every = recipe.replace(family, f"{family}-all-fields")
    if "-all-fields" not in recipe and every in RECIPES:
        found["all_fields"] = (
            f"courant train {shlex.quote(dataset)} --recipe {every}"
            f" --runs {shlex.quote(runs or 'RUNS')}"
        )
    return found


def explore_model(
    run: str, host: str, port: int, place: str | None = None, names: Sequence[str] = ()
) -> None:
    """Serve a run and print where its page is; `place` is where its dataset lies now."""
    parts = RunDirectory(run)
    experiment = parse_experiment(parts.read_object("experiment.json"))
    record = read_dataset_record(parts)
    try:
        dataset = open_recorded(run, record, place)
    except SimgenError as error:
        if place is not None:
            raise
        warnings.warn(f"no solved designs are shown: {error}", stacklevel=1)
        dataset = None
    if experiment.family not in FAMILIES:
        meshing_family(dataset or open_recorded(run, record, place))
    if dataset is None and experiment.task != "steady":
        raise InputError(
            f"{run} is a transient model: its page starts from the states of solved designs, and"
            " the dataset is not where it was; name its place with --dataset, or let the solver"
            " make the start: courant predict RUN --design ... --from-solver 100"
        )
    solving = replace(
        offer_solver(record, dataset, host),
        # Clients of another machine learn nothing of this one's folders.
        commands=terminal_commands(
            run if host in LOOPBACK and not names else "RUN",
            dataset.url if dataset and host in LOOPBACK and not names else "STORE/DATASET",
            experiment.name,
            record,
        ),
        verdict=str(known_verdict(parts) or ""),
    )
    page = f"explorer#{solving.token}" if solving.solver else "explorer"
    url = None if dataset is None else dataset.url
    serve_model(run, host, port, Limits(), page, url, solving, names)


def serve_model(
    run: str,
    host: str,
    port: int,
    limits: Limits,
    page: str = "docs",
    dataset: str | None = None,
    solving: http_app.Solving | None = None,
    names: Sequence[str] = (),
) -> None:
    """Serve a run until SIGTERM or Ctrl-C, which interrupts it like any command.

    On loopback, and where `names` are given, clients must ask for it by a name of loopback, by
    `host` or by one of `names`. `page` is printed for a person to open, `dataset` the place of the
    run's dataset (None: it is not opened), and `solving` starts the solver. With RAY_ADDRESS the
    model is placed on that cluster. InputError where the port is taken.
    """
    if load_settings().jobs_address:
        raise InputError(
            "courant serve joins a cluster of Ray by the address of its head, host:6379: give"
            " RAY_ADDRESS so, or unset it to serve from this machine"
        )
    listener = listen(host, port, http_app.MAX_CONNECTIONS)
    asked_to_end = threading.Event()
    with ExitStack() as until:
        with errors.status("loading the model"):
            model, stop = _load(run, limits, dataset, solving.verdict if solving else "")
            until.callback(stop)
            name = run.rstrip("/").rsplit("/", 1)[-1]
            hosts = answered_names(listener, host, names)
            app = http_app.build_app(name, model, limits, solving=solving, hosts=hosts)
            until.enter_context(http_app.running(app, listener))
        address = f"http://{in_address(host)}:{listener.getsockname()[1]}"
        if page == "docs":
            line = f"serving  {address}/predict   what it takes: /model and /docs"
        else:
            line = f"open  {address}/{page}"
        print_line(f"{line}   end with Ctrl-C")
        # Not earlier: while the model is loaded, Ctrl-C ends the command at once.
        signal.signal(signal.SIGTERM, lambda *_: asked_to_end.set())
        asked_to_end.wait()


def _load(
    run: str, limits: Limits, dataset: str | None, verdict: str
) -> tuple[http_app.Model, Callable[[], None]]:
    """Load the model here or on the cluster of RAY_ADDRESS, and return what stops it there."""
    if load_settings().ray_address is None:
        return http_app.ServedModel.load(run, limits, dataset, verdict), lambda: None
    from courant.ray_session import connect_ray

    connect_ray()
    from courant.serving import ray_serve

    try:
        placed = ray_serve.start(run, limits, dataset, verdict)
    except RuntimeError as error:
        courant.load(run, device="cpu")  # which says what is wrong with a run; Ray's line does not
        raise InputError(f"{run} could not be served: {first_line(error)}") from error
    return placed, partial(ray_serve.stop, placed)
