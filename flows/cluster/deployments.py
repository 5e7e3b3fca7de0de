"""Start runs of a deployment on the Prefect server of PREFECT_API_URL, and see how far they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from flows.cluster.prefect_server import answers
from simgen.errors import InputError


@dataclass(frozen=True)
class DeploymentRun:
    """A flow run, as Prefect's server has it."""

    id: str
    state: str
    """Prefect's name of it, such as Running"""
    ended: bool
    completed: bool
    message: str
    url: str
    """Of its page in Prefect's UI; empty where the server has none"""


@dataclass(frozen=True)
class Deployment:
    """A deployment on the server."""

    name: str
    id: UUID

    def begin(self, parameters: Mapping[str, Any]) -> DeploymentRun:
        """Start a run with these parameters in place of the deployment's."""
        from prefect.client.orchestration import get_client

        with get_client(sync_client=True) as client:
            run = client.create_flow_run_from_deployment(self.id, parameters=dict(parameters))
        return _described(run)

    def look(self, run: str) -> DeploymentRun:
        """Return a run of the deployment as it is now; one that was deleted has ended."""
        from prefect.client.orchestration import get_client
        from prefect.exceptions import ObjectNotFound

        with get_client(sync_client=True) as client:
            try:
                return _described(client.read_flow_run(UUID(run)))
            except ObjectNotFound:
                gone = "it was deleted on Prefect's server"
                return DeploymentRun(run, "Deleted", True, False, gone, "")


def api_url() -> str | None:
    """Return PREFECT_API_URL, of the environment or of Prefect's profile; None where not set."""
    from prefect.settings import PREFECT_API_URL

    return PREFECT_API_URL.value() or None


def find_deployment(name: str) -> Deployment:
    """Find a deployment by FLOW/DEPLOYMENT; InputError where there is none, or no server."""
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound

    url = api_url()
    if url is None:
        raise InputError("PREFECT_API_URL names no Prefect server")
    if not answers(url):
        raise InputError("the Prefect server of PREFECT_API_URL does not answer")
    try:
        with get_client(sync_client=True) as client:
            return Deployment(name, client.read_deployment_by_name(name).id)
    except ObjectNotFound:
        raise InputError(
            f"Prefect's server has no deployment {name}; prefect --no-prompt deploy --all makes it"
        ) from None


def _described(run: Any) -> DeploymentRun:
    from prefect.utilities.urls import url_for

    state = run.state
    return DeploymentRun(
        id=str(run.id),
        state=state.name if state else "Scheduled",
        ended=bool(state and state.is_final()),
        completed=bool(state and state.is_completed()),
        message=(state.message or "") if state else "",
        url=url_for("flow-run", obj_id=run.id) or "",
    )
