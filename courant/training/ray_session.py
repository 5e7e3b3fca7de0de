"""The Ray that training and sweeps run on, and where Ray keeps its own notes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow.fs  # type: ignore[import-untyped]
import ray

from courant.run_directory import RunDirectory


@contextmanager
def ray_session(quiet: bool) -> Iterator[None]:
    """The Ray that is there, else an embedded one that ends with the body."""
    if ray.is_initialized():
        yield
        return
    ray.init(include_dashboard=False, log_to_driver=not quiet, logging_level=logging.WARNING)
    try:
        yield
    finally:
        ray.shutdown()


def ray_storage(folder: RunDirectory) -> tuple[str, pyarrow.fs.FileSystem | None]:
    """Ray's notes lie beside what they are about, on the same storage, which every node reaches."""
    if "://" not in folder.url:
        return folder.url, None
    return folder.path(""), pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(folder.filesystem))
