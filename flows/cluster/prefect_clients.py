"""Prefect's clients, which ask a server again that does not answer: from their first request on.

By themselves they do so only once it has answered them. Each flow and each task has a client of its
own, so a flow that began while its server was starting again would end in a traceback.
"""

from __future__ import annotations

from prefect.client.base import PrefectHttpxAsyncClient, PrefectHttpxSyncClient


def keep_asking() -> None:
    """Have all clients of this process take a refused connection for a server that comes back.

    For processes whose server has answered before; how often they ask is
    PREFECT_CLIENT_MAX_RETRIES.
    """
    connected = property(lambda self: True, lambda self, value: None)
    for client in (PrefectHttpxAsyncClient, PrefectHttpxSyncClient):
        client._has_connected = connected  # type: ignore[assignment]
