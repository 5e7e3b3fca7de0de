"""Show artifacts in Prefect's UI, and how far a case is; the work never waits for its server."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit
from uuid import UUID

from prefect import artifacts, get_run_logger

from flows.cluster.prefect_logs import outlive_readers
from flows.cluster.process_logs import start_logs
from flows.display import duration, write_progress
from flows.impatience import if_the_server_is_there
from flows.settings import OWN_PREFECT
from simgen.case import Progress
from simgen.design_space import DesignPoint

# Every flow imports this module.
outlive_readers()
start_logs()

NOT_SHOWN = "not shown in Prefect's UI"
#: A case's log gets a line after this much more progress, and this many seconds, at the earliest.
LOG_FRACTION, LOG_INTERVAL_S = 0.1, 5.0


class ProgressArtifact:
    """A bar in Prefect's UI, which a server that ends with its command does not have."""

    def __init__(self, key: str, description: str) -> None:
        self._id: UUID | None = None
        if OWN_PREFECT in os.environ:
            return
        with if_the_server_is_there(NOT_SHOWN):
            created = artifacts.create_progress_artifact(0.0, key=key, description=description)
            self._id = cast(UUID, created)

    def update(self, percent: float) -> None:
        """Move the bar, if there is one."""
        if self._id is not None:
            with if_the_server_is_there(NOT_SHOWN):
                artifacts.update_progress_artifact(self._id, percent)


def page_link(url: str) -> str:
    """Return Markdown that leads to a page: a link, or for object storage how to open it.

    A path is linked as file://, which a browser follows on the machine that it names.
    """
    scheme = urlsplit(url).scheme
    if scheme in ("http", "https", "file"):
        return f"[{url}]({url})"
    folder, _, name = url.rpartition("/")
    if scheme:
        return f"`{url}`; to open it: `aws s3 cp --recursive {folder} page`, then `page/{name}`"
    return f"[`{url}`]({Path(url).absolute().as_uri()}) on {platform.node()}"


def show_markdown(text: str, key: str, description: str | None = None) -> None:
    """Show a page of text."""
    with if_the_server_is_there(NOT_SHOWN):
        artifacts.create_markdown_artifact(text, key=key, description=description)


def show_table(rows: list[dict[str, Any]], key: str, description: str | None = None) -> None:
    """Show a table."""
    with if_the_server_is_there(NOT_SHOWN):
        artifacts.create_table_artifact(rows, key=key, description=description)


def show_image(url: str, key: str, description: str | None = None) -> None:
    """Show a picture, which may be a data URL."""
    with if_the_server_is_there(NOT_SHOWN):
        artifacts.create_image_artifact(url, key=key, description=description)


class CaseReport:
    """Report a case's progress: to a file for the terminal, to Prefect's log and an artifact."""

    def __init__(self, point: DesignPoint, directory: Path) -> None:
        self._logger, self._directory = get_run_logger(), directory
        self._logged, self._logged_at = 0.0, time.monotonic()
        parameters = ", ".join(f"{name} {value:g}" for name, value in point.parameters.items())
        self._logger.info("case %s: %s", point.id, parameters)
        self._artifact = ProgressArtifact(f"case-{point.id}", f"{point.family}: {parameters}")

    def __call__(self, progress: Progress) -> None:
        write_progress(progress, self._directory)
        further = progress.fraction - self._logged >= LOG_FRACTION
        if progress.fraction == 1 or (
            further and time.monotonic() - self._logged_at >= LOG_INTERVAL_S
        ):
            self._logged, self._logged_at = progress.fraction, time.monotonic()
            left = f", {duration(progress.eta_s)} left" if progress.eta_s else ""
            self._logger.info("%s%s", progress.message, left)
            if progress.fraction < 1:
                self._artifact.update(100 * progress.fraction)

    def waits(self) -> None:
        self._logger.info("another run on this machine solves this case: waiting for its result")

    def ended(self, line: str) -> None:
        self._logger.info(line)
        self._artifact.update(100.0)
