"""Artifacts in Prefect's UI, as far as its server is there: the work does not wait for what is only
to be looked at.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any, cast
from uuid import UUID

import httpx
from prefect import artifacts
from prefect.settings import (
    PREFECT_API_REQUEST_TIMEOUT,
    PREFECT_CLIENT_MAX_RETRIES,
    temporary_settings,
)

logger = logging.getLogger(__name__)

#: Once, and no longer than this; the next picture comes soon.
TIMEOUT_S = 10.0


@contextlib.contextmanager
def _if_the_server_is_there() -> Iterator[None]:
    impatient = {PREFECT_CLIENT_MAX_RETRIES: 0, PREFECT_API_REQUEST_TIMEOUT: TIMEOUT_S}
    with temporary_settings(impatient):
        try:
            yield
        except (httpx.HTTPError, OSError) as error:
            logger.info("not shown in Prefect's UI: %s", error)


class ProgressArtifact:
    """A bar in Prefect's UI."""

    def __init__(self, key: str, description: str) -> None:
        self._id: UUID | None = None
        with _if_the_server_is_there():
            created = artifacts.create_progress_artifact(0.0, key=key, description=description)
            self._id = cast(UUID, created)

    def update(self, percent: float) -> None:
        """Move the bar, where there is one."""
        if self._id is not None:
            with _if_the_server_is_there():
                artifacts.update_progress_artifact(self._id, percent)


def show_markdown(text: str, key: str, description: str | None = None) -> None:
    """Show a page of text."""
    with _if_the_server_is_there():
        artifacts.create_markdown_artifact(text, key=key, description=description)


def show_table(rows: list[dict[str, Any]], key: str, description: str | None = None) -> None:
    """Show a table."""
    with _if_the_server_is_there():
        artifacts.create_table_artifact(rows, key=key, description=description)


def show_image(url: str, key: str, description: str | None = None) -> None:
    """Show a picture, which may be a data URL."""
    with _if_the_server_is_there():
        artifacts.create_image_artifact(url, key=key, description=description)
