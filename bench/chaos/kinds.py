"""The kinds of fault, and what each needs to strike."""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

Stage = Literal["starting", "solving", "recorded", "training", "evaluating"]
"""How far the job has come when a fault strikes, in this order."""
STAGES: tuple[Stage, ...] = ("starting", "solving", "recorded", "training", "evaluating")
Store = Literal["local", "s3"]
Server = Literal["none", "shared", "postgres"]
"""Prefect's: none, as commands need none; that of a deployment; or one over PostgreSQL"""

POSTGRES = "/usr/lib/postgresql/*/bin"


@dataclass(frozen=True)
class Kind:
    """One kind of fault."""

    name: str
    what: str
    stages: tuple[Stage, ...]
    store: Store | None = None
    """The only store that it can strike, where there is one"""
    server: Server = "none"
    """The server of schedules that it leads"""
    deployed: bool = False
    """Whether its schedule is a deployment that a Prefect worker runs"""
    needs: str = ""
    """Name of a condition of the machine, as in `MISSING`"""


ANYWHERE = STAGES
ON_S3: tuple[Stage, ...] = ("starting", "solving", "recorded", "training", "evaluating")

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("solver killed", "kill -9 of a running solver", ("solving",)),
        Kind("worker killed", "kill -9 of the process that solves a case", ("solving",)),
        Kind("driver killed", "kill -9 of the command", ANYWHERE),
        Kind(
            "Prefect worker killed",
            "kill -9 of `prefect worker` while it runs a deployment; another is started",
            ("solving", "training", "evaluating"),
            server="shared",
            deployed=True,
        ),
        Kind("solver stopped", "SIGSTOP of a running solver, SIGCONT later", ("solving",)),
        Kind("worker stopped", "SIGSTOP, SIGCONT of the process that solves", ("solving",)),
        Kind("driver stopped", "SIGSTOP, SIGCONT of the command", ANYWHERE),
        Kind("Ctrl-C", "Ctrl-C in the terminal: SIGINT to the process group", ANYWHERE),
        Kind("driver terminated", "SIGTERM to the command", ANYWHERE),
        Kind(
            "same command twice",
            "the same command started beside the first",
            ("starting", "solving", "recorded", "training"),
        ),
        Kind("scratch deleted", "the directory of a running case removed", ("solving",)),
        Kind("S3 restarted", "kill -9 of the S3 server, started again", ON_S3, store="s3"),
        Kind("S3 slow", "each block passes late", ON_S3, store="s3"),
        Kind("S3 answers 500", "every request is answered 500", ON_S3, store="s3"),
        Kind("S3 answers 503", "every request is answered 503 Slow Down", ON_S3, store="s3"),
        Kind("S3 cuts bodies", "answers end in the midst of their body", ON_S3, store="s3"),
        Kind("scratch full", "no byte left on the scratch disk", ("solving",), needs="mount"),
        Kind(
            "store full",
            "no byte left where dataset, runs and report lie",
            ("starting", "solving", "recorded", "training", "evaluating"),
            store="local",
            needs="mount",
        ),
        Kind(
            "clock set back",
            "the wall clock of the command and its processes goes back",
            ANYWHERE,
            store="local",
            needs="compiler",
        ),
        Kind(
            "PostgreSQL restarted",
            "the database of Prefect's server stopped at once and started again",
            ("solving", "training", "evaluating"),
            server="postgres",
            needs="PostgreSQL",
        ),
    )
}

_IS_THERE: Mapping[str, Callable[[], bool]] = {
    "mount": lambda: os.getuid() == 0 and shutil.which("mount") is not None,
    "compiler": lambda: shutil.which("cc") is not None,
    "PostgreSQL": lambda: os.getuid() == 0 and bool(glob.glob(POSTGRES)),  # noqa: PTH207
}
MISSING = {
    "mount": "needs root, to mount a small file system",
    "compiler": "needs a C compiler",
    "PostgreSQL": "needs root and Debian's postgresql",
}


def unavailable(kind: Kind) -> str | None:
    """Why this machine cannot have the fault; None where it can."""
    if kind.needs and not _IS_THERE[kind.needs]():
        return MISSING[kind.needs]
    return None
