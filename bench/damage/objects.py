"""Ways to damage a repository on local disk, as a failing disk or a careless user would."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from simgen.store.versions import open_repository


def flip(path: Path, position: float = 0.5) -> None:
    """Invert one bit at a relative position."""
    content = bytearray(path.read_bytes())
    content[min(len(content) - 1, int(position * len(content)))] ^= 1
    path.write_bytes(content)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def remove(path: Path) -> None:
    path.unlink()


DAMAGES = pytest.mark.parametrize("damage", [flip, truncate, remove])


@contextlib.contextmanager
def restored(path: Path) -> Iterator[None]:
    """Give the object its content back afterwards."""
    content = path.read_bytes()
    try:
        yield
    finally:
        path.write_bytes(content)


def objects(url: str, kind: str) -> list[Path]:
    """The repository's files of a kind: chunks, manifests, snapshots."""
    return sorted(path for path in (Path(url) / kind).rglob("*") if path.is_file())


def snapshot_of(url: str, version: str) -> Path:
    return Path(url) / "snapshots" / open_repository(url).lookup_tag(version)
