"""A `courant` command that is killed while it solves, and what its dataset holds by then."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from simgen.cases import get_family
from simgen.store.schema import Schema
from simgen.store.write import DatasetWriter
from tests.end_to_end.conftest import BIN, ROOT


def start_courant(environment: Mapping[str, str], *arguments: str) -> subprocess.Popen[bytes]:
    """The command at work, from the repository's root; what it prints goes to its stdout."""
    return subprocess.Popen(
        [str(BIN / "courant"), *arguments],
        env=environment,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def parent(process: int) -> int:
    """The process that started another."""
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def done_cases(url: str, family: str = "cylinder-flow") -> list[str]:
    """Cases on record at `url`, published or not."""
    if not (Path(url) / "refs").exists():
        return []
    try:
        return list(DatasetWriter.open(url, Schema.of(get_family(family))).known())
    except Exception:  # the repository is being created at this moment
        return []
