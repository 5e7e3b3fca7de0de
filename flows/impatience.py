"""Send requests to Prefect's server that the work does not wait for."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

import httpx
from prefect.exceptions import ObjectNotFound
from prefect.settings import (
    PREFECT_API_REQUEST_TIMEOUT,
    PREFECT_CLIENT_MAX_RETRIES,
    temporary_settings,
)

logger = logging.getLogger(__name__)

#: One attempt, and no longer than this.
TIMEOUT_S = 10.0


@contextlib.contextmanager
def if_the_server_is_there(what: str) -> Iterator[None]:
    """Ask the server once and briefly; if it is away, a line in the log says what is skipped."""
    impatient = {PREFECT_CLIENT_MAX_RETRIES: 0, PREFECT_API_REQUEST_TIMEOUT: TIMEOUT_S}
    with temporary_settings(impatient):
        try:
            yield
        # A server that was started on another database knows nothing of this run.
        except (httpx.HTTPError, OSError, ObjectNotFound) as error:
            logger.info("%s: %s", what, error)
