"""Start runs of a deployment on the Prefect server of PREFECT_API_URL, and see how far they are."""

from __future__ import annotations

import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from simgen.errors import InputError

ANSWER_S = 10.0


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
    """Return PREFECT_API_URL; None where it is not set."""
    return os.environ.get("PREFECT_API_URL") or None


def check_api(url: str) -> None:
    """InputError where no server answers there."""
    if not answers(url):
        raise InputError(
            f"Prefect's server at {url} (PREFECT_API_URL) does not answer; start it, or unset"
            " PREFECT_API_URL: no command needs a server"
        )


def answers(url: str) -> bool:
    """Check whether a server is there, which needs no password."""
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=ANSWER_S):
            return True
    except urllib.error.HTTPError as error:
        # A proxy may ask for authentication: the server is there. One of 500 and more, such as 502,
        # means that it has no answer of the server.
        return error.code < 500
    except (OSError, ValueError, http.client.HTTPException):  # no server, or no address of one
        return False


def find_deployment(name: str) -> Deployment:
    """Find a deployment by FLOW/DEPLOYMENT; InputError where there is none, or no server."""
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound

    url = api_url()
    if url is None:
        raise InputError("PREFECT_API_URL names no Prefect server")
    check_api(url)
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
