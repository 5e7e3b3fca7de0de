"""Provide the Ray for training and sweeps, and the place of Ray's own notes."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import ray

from courant.ray_embedded import start_embedded_ray
from courant.runs.directory import RunDirectory

if TYPE_CHECKING:
    import pyarrow.fs  # type: ignore[import-untyped]


@contextmanager
def ray_session(quiet: bool) -> Iterator[None]:
    """Use the connected Ray or that of RAY_ADDRESS, else start an embedded one for the body."""
    if ray.is_initialized():
        yield
        return
    options = {"log_to_driver": not quiet, "logging_level": logging.WARNING}
    if os.environ.get("RAY_ADDRESS"):
        ray.init(**options)
    else:
        # Threads that wait for one another must not spin; OpenMP reads this when torch is loaded.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        start_embedded_ray(**options)
    try:
        yield
    finally:
        ray.shutdown()


def ray_storage(folder: RunDirectory) -> tuple[str, pyarrow.fs.FileSystem | None]:
    """Keep Ray's notes beside the run, on the same storage, which every node reaches."""
    if "://" not in folder.url:
        return folder.url, None
    import pyarrow.fs  # a second of a core, for those whose runs are on S3

    return folder.path(""), pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(folder.filesystem))
