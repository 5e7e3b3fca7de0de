"""`courant serve` and `courant explore`: a trained model over HTTP, until it is interrupted."""

from __future__ import annotations

import signal
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from courant.experiment import parse_experiment
from courant.loopback import answered_names, in_address, listen
from courant.prediction.surrogate import load
from courant.runs.dataset_record import open_recorded, read_dataset_record
from courant.runs.directory import RunDirectory
from courant.serving.http_app import MAX_CONNECTIONS, HttpServer, Model, build_app
from courant.serving.model import ServedModel
from courant.serving.predictions import Limits
from courant.serving.solving import Solving
from flows.cli.serving.solving import offer_solver
from flows.settings import load_settings
from flows.terminal import errors, say
from simgen.cases import get_family
from simgen.errors import InputError, SimgenError
from simgen.store.read import Dataset


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
        say(f"{told}   end with Ctrl-C")
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
