"""Serve a trained model on Ray Serve: concurrent requests are answered together, on a GPU if any.

HTTP is not Ray's here: its proxy keeps connections that send nothing for ever.
`courant.serving.http_app` is served by this process (`http_server`) and asks the deployment through
its handle.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import uuid
from pathlib import Path

import ray
from ray import serve
from ray.serve import Application
from ray.serve._private import replica
from ray.serve._private.request_router import PowerOfTwoChoicesRequestRouter
from ray.serve.config import RequestRouterConfig
from ray.serve.handle import DeploymentHandle

from courant.loopback import LOOPBACK
from courant.prediction.surrogate import load
from courant.serving.answers import answer, in_parts
from courant.serving.explorer import Explored
from courant.serving.requests import Limits, ModelCard, describe, parse_request
from courant.serving.routes import Route, answer_route, status_of
from simgen.solving.preparation import keep_process_ready

QUEUE_S = 10.0
"""How long a request waits for the replica to say that it can take it"""
MAX_BATCH = 16
BATCH_WAIT_S = 0.005
"""How long the first of several requests waits for others to share a pass through the model"""


class PatientRouter(PowerOfTwoChoicesRequestRouter):
    """Wait for the one replica, which on a busy machine answers after Ray's tenth of a second."""

    queue_len_response_deadline_s = QUEUE_S
    max_queue_len_response_deadline_s = QUEUE_S


@serve.deployment(
    name="courant",
    max_ongoing_requests=4 * MAX_BATCH,
    request_router_config=RequestRouterConfig(request_router_class=PatientRouter),
)
class Served:
    """The model, loaded once."""

    def __init__(self, run: str, limits: Limits, dataset: str | None) -> None:
        _stay_on_loopback()
        self.surrogate, self.limits = load(run), limits
        self.explored = Explored.open(self.surrogate, limits, dataset)
        if self.surrogate.step_s is None:
            keep_process_ready()

    @serve.batch(max_batch_size=MAX_BATCH, batch_wait_timeout_s=BATCH_WAIT_S)
    async def predict(self, bodies: list[bytes]) -> list[tuple[int, bytes]]:
        return await asyncio.to_thread(self._predict, bodies)

    def _predict(self, bodies: list[bytes]) -> list[tuple[int, bytes]]:
        requests = [parse_request(body, self.limits) for body in bodies]
        return [
            (status_of(given), given.model_dump_json().encode())
            for part in in_parts(requests, self.surrogate, self.limits)
            for given in answer(part, self.surrogate, self.limits)
        ]

    async def explore(self, route: Route, body: bytes) -> tuple[int, bytes]:
        given = await asyncio.to_thread(answer_route, route, body, self.explored)
        return status_of(given), given.model_dump_json().encode()

    async def card(self) -> ModelCard:
        return describe(self.surrogate, self.limits)


def _stay_on_loopback() -> None:
    """On an embedded Ray, make this replica listen on loopback alone.

    Ray opens the port for other deployments to all networks, behind the token. It does so after the
    model is loaded.
    """
    if ray.util.get_node_ip_address() != LOOPBACK:
        return
    open_port = replica.add_port_to_grpc_server
    replica.add_port_to_grpc_server = lambda server, address: open_port(
        server, address.replace("[::]", LOOPBACK)
    )


class RayModel:
    """The deployment, asked by its handle."""

    def __init__(self, handle: DeploymentHandle, name: str) -> None:
        self._handle, self.name = handle, name

    async def predict(self, body: bytes) -> tuple[int, bytes]:
        status, content = await self._handle.predict.remote(body)
        return status, content

    async def explore(self, route: Route, body: bytes) -> tuple[int, bytes]:
        status, content = await self._handle.explore.remote(route, body)
        return status, content

    async def card(self) -> ModelCard:
        card: ModelCard = await self._handle.card.remote()
        return card

    async def is_well(self) -> bool:
        return isinstance(await self.card(), ModelCard)


def application(run: str, limits: Limits, dataset: str | None) -> Application:
    """Build one model as a Serve application."""
    on_gpu = ray.cluster_resources().get("GPU", 0) >= 1
    options = {"num_gpus": 1 if on_gpu else 0}
    return Served.options(ray_actor_options=options).bind(run, limits, dataset)  # type: ignore[attr-defined]


def start(run: str, limits: Limits, dataset: str | None = None) -> RayModel:
    """Start serving on the connected Ray; return once the model is loaded.

    `dataset` is the place of the run's dataset; None where it must not be opened.
    """
    # The command says what a person needs to know.
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    serve.start(proxy_location="Disabled")
    # Its own name: a cluster may serve other models, and this one twice.
    name = f"courant-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    handle = serve.run(application(run, limits, dataset), name=name, route_prefix=None)
    return RayModel(handle, name)


def stop(model: RayModel) -> None:
    """Stop serving, and leave Ray, which would print that its own controller was killed.

    What else a joined cluster serves stays.
    """
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        if not os.environ.get("RAY_ADDRESS"):
            serve.shutdown()
        else:
            serve.delete(model.name)
        ray.shutdown()
