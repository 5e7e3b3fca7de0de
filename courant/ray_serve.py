"""A trained model behind HTTP, on Ray Serve: typed requests, concurrent ones answered together, health, limits.

POST /predict   PredictRequest -> Prediction; 422 with the reason where the request cannot be answered, 413 where it is too large
GET  /model     what the model is and needs: ModelCard
GET  /health    200 once the model is loaded
"""

# No `from __future__ import annotations` here: FastAPI reads the real types, in a process that gets the class by value.
import asyncio
from typing import Any

import ray
from fastapi import FastAPI, HTTPException
from ray import serve
from ray.serve import Application
from ray.serve.config import HTTPOptions

from courant.body_limit import BodyLimit
from courant.serving import Limits, ModelCard, Prediction, PredictRequest, Refusal, answer, describe
from courant.surrogate import load

MAX_BATCH = 16
BATCH_WAIT_S = 0.005
"""How long the first of several requests waits for others to go through the model with."""


def application(run: str, limits: Limits) -> Application:
    """One model as a Serve application."""
    api = FastAPI(title="Courant", description=f"Predictions of {run}")
    api.add_middleware(BodyLimit, max_bytes=int(limits.max_megabytes * 1e6))

    on_gpu = ray.cluster_resources().get("GPU", 0) >= 1

    @serve.deployment(
        name="courant", max_ongoing_requests=4 * MAX_BATCH, ray_actor_options={"num_gpus": 1 if on_gpu else 0}
    )
    @serve.ingress(api)
    class Served:
        def __init__(self) -> None:
            self.surrogate = load(run)

        @serve.batch(max_batch_size=MAX_BATCH, batch_wait_timeout_s=BATCH_WAIT_S)
        async def _answer(self, requests: list[PredictRequest]) -> list[Prediction | Refusal]:
            return await asyncio.to_thread(answer, requests, self.surrogate, limits)

        @api.post("/predict")
        async def predict(self, request: PredictRequest) -> Prediction:
            given: Any = await self._answer(request)
            if isinstance(given, Refusal):
                raise HTTPException(422, given.reason)
            return given

        @api.get("/model")
        async def model(self) -> ModelCard:
            return describe(self.surrogate, limits)

        @api.get("/health")
        async def health(self) -> dict[str, str]:
            return {"status": "ready"}

    return Served.bind()  # type: ignore[attr-defined]


def start(run: str, host: str, port: int, limits: Limits) -> None:
    """Serve it from the Ray that this process is connected to; returns once the model answers."""
    serve.start(http_options=HTTPOptions(host=host, port=port))
    serve.run(application(run, limits), name="courant")


def stop() -> None:
    serve.shutdown()
