"""A trained model on Ray Serve: concurrent requests answered together, on a GPU where there is one.

HTTP is not Ray's here: its proxy keeps connections that send nothing for ever. `courant.serving.http_app` is served by this
process (`http_server`) and asks the deployment through its handle.
"""

from __future__ import annotations

import asyncio

import ray
from ray import serve
from ray.serve import Application
from ray.serve._private import replica
from ray.serve.handle import DeploymentHandle

from courant.prediction.surrogate import load
from courant.ray_embedded import LOOPBACK
from courant.serving.requests import Limits, ModelCard, Refusal, answer, describe, parse_request

MAX_BATCH = 16
BATCH_WAIT_S = 0.005
"""How long the first of several requests waits for others to go through the model with."""


@serve.deployment(name="courant", max_ongoing_requests=4 * MAX_BATCH)
class Served:
    """The model, loaded once."""

    def __init__(self, run: str, limits: Limits) -> None:
        _stay_on_loopback()
        self.surrogate, self.limits = load(run), limits

    @serve.batch(max_batch_size=MAX_BATCH, batch_wait_timeout_s=BATCH_WAIT_S)
    async def predict(self, bodies: list[bytes]) -> list[tuple[int, bytes]]:
        return await asyncio.to_thread(self._predict, bodies)

    def _predict(self, bodies: list[bytes]) -> list[tuple[int, bytes]]:
        requests = [parse_request(body, self.limits) for body in bodies]
        answers = answer(requests, self.surrogate, self.limits)
        return [(422 if isinstance(given, Refusal) else 200, given.model_dump_json().encode()) for given in answers]

    async def card(self) -> ModelCard:
        return describe(self.surrogate, self.limits)


def _stay_on_loopback() -> None:
    """On an embedded Ray, have this replica listen for other deployments on loopback alone.

    Ray opens that port to all networks, behind the token. It does so after the model is loaded.
    """
    if ray.util.get_node_ip_address() != LOOPBACK:
        return
    open_port = replica.add_port_to_grpc_server
    replica.add_port_to_grpc_server = lambda server, address: open_port(server, address.replace("[::]", LOOPBACK))


class RayModel:
    """What `http_app` asks: the deployment, by its handle."""

    def __init__(self, handle: DeploymentHandle) -> None:
        self._handle = handle

    async def predict(self, body: bytes) -> tuple[int, bytes]:
        status, content = await self._handle.predict.remote(body)
        return status, content

    async def card(self) -> ModelCard:
        card: ModelCard = await self._handle.card.remote()
        return card

    async def is_well(self) -> bool:
        return isinstance(await self.card(), ModelCard)


def application(run: str, limits: Limits) -> Application:
    """One model as a Serve application."""
    on_gpu = ray.cluster_resources().get("GPU", 0) >= 1
    options = {"num_gpus": 1 if on_gpu else 0}
    return Served.options(ray_actor_options=options).bind(run, limits)  # type: ignore[attr-defined]


def start(run: str, limits: Limits) -> RayModel:
    """Serve it from the Ray that this process is connected to; returns once the model is loaded."""
    serve.start(proxy_location="Disabled")
    return RayModel(serve.run(application(run, limits), name="courant", route_prefix=None))


def stop() -> None:
    serve.shutdown()
