"""Place a served model on the Ray cluster of RAY_ADDRESS; `http_app` asks it by its handle."""

import contextlib
import logging
import os
import uuid
from pathlib import Path
from typing import cast

import ray
from ray import serve
from ray.serve.handle import DeploymentHandle

from courant.serving.http_app import MAX_CONNECTIONS, ServedModel
from courant.serving.predictions import Answer, Limits, ModelCard


class Replica(ServedModel):
    """The model in a process of the cluster."""

    def __init__(self, run: str, limits: Limits, dataset: str | None, verdict: str) -> None:
        super().__init__(ServedModel.load(run, limits, dataset, verdict).explored)


class RayModel:
    """The deployment, asked by its handle."""

    def __init__(self, handle: DeploymentHandle, name: str) -> None:
        self._handle, self.name = handle, name

    async def predict(self, body: bytes) -> Answer:
        return cast(Answer, await self._handle.predict.remote(body))

    async def explore(self, route: str, body: bytes) -> Answer:
        return cast(Answer, await self._handle.explore.remote(route, body))

    async def card(self) -> ModelCard:
        return cast(ModelCard, await self._handle.card.remote())


def start(run: str, limits: Limits, dataset: str | None = None, verdict: str = "") -> RayModel:
    """Start serving on the cluster; return once the model is loaded. None opens no dataset."""
    # The command prints what a person needs to know.
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    serve.start(proxy_location="Disabled")
    # Its own name: a cluster may serve other models, and this one twice.
    name = f"courant-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    on_gpu = ray.cluster_resources().get("GPU", 0) >= 1
    deployment = serve.deployment(
        name="courant",
        max_ongoing_requests=MAX_CONNECTIONS,
        ray_actor_options={"num_gpus": 1 if on_gpu else 0},
    )(Replica)
    handle = serve.run(deployment.bind(run, limits, dataset, verdict), name=name, route_prefix=None)
    return RayModel(handle, name)


def stop(model: RayModel) -> None:
    """Stop serving this model; others that the cluster serves stay."""
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        serve.delete(model.name)
        ray.shutdown()
