"""A seed -> a schedule: what is run, and which faults strike it when. The same on every machine.

The seeds go round the kinds of fault, so that any run of seeds as long as the list leads with each
kind once. What else strikes, and when, is drawn.
"""

import glob
import os
import random
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
    stages: tuple[Stage, ...] = STAGES
    """In which it can strike"""
    store: Store | None = None
    """The only store that it can strike, where there is one"""
    server: Server = "none"
    """The server of schedules that it leads"""
    deployed: bool = False
    """Whether its schedule is a deployment that a Prefect worker runs"""
    needs: str = ""
    """Name of a condition of the machine, as in `MISSING`"""


_SOLVING: tuple[Stage, ...] = ("solving",)
_AT_WORK: tuple[Stage, ...] = ("solving", "training", "evaluating")
KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("solver killed", "kill -9 of a running solver", _SOLVING),
        Kind("worker killed", "kill -9 of the process that solves a case", _SOLVING),
        Kind("driver killed", "kill -9 of the command"),
        Kind(
            "Prefect worker killed",
            "kill -9 of `prefect worker` while it runs a deployment; another is started",
            _AT_WORK,
            server="shared",
            deployed=True,
        ),
        Kind("solver stopped", "SIGSTOP of a running solver, SIGCONT later", _SOLVING),
        Kind("worker stopped", "SIGSTOP, SIGCONT of the process that solves", _SOLVING),
        Kind("driver stopped", "SIGSTOP, SIGCONT of the command"),
        Kind("Ctrl-C", "Ctrl-C in the terminal: SIGINT to the process group"),
        Kind("driver terminated", "SIGTERM to the command"),
        Kind("same command twice", "the same command started beside the first", STAGES[:-1]),
        Kind("scratch deleted", "the directory of a running case removed", _SOLVING),
        Kind("S3 restarted", "kill -9 of the S3 server, started again", store="s3"),
        Kind("S3 slow", "each block passes late", store="s3"),
        Kind("S3 answers 500", "every request is answered 500", store="s3"),
        Kind("S3 answers 503", "every request is answered 503 Slow Down", store="s3"),
        Kind("S3 cuts bodies", "answers end in the midst of their body", store="s3"),
        Kind("scratch full", "no byte left on the scratch disk", _SOLVING, needs="mount"),
        Kind(
            "store full",
            "no byte left where dataset, runs and report are",
            store="local",
            needs="mount",
        ),
        Kind(
            "clock set back",
            "the wall clock of the command and its processes goes back",
            store="local",
            needs="compiler",
        ),
        Kind(
            "PostgreSQL restarted",
            "the database of Prefect's server stopped at once and started again",
            _AT_WORK,
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


CASES = 4
EPOCHS = 8
#: Kinds that fit beside a deployment's own: its processes are not the command's.
BESIDE_A_DEPLOYMENT = ("solver killed", "worker killed", "solver stopped", "scratch deleted")


@dataclass(frozen=True)
class Moment:
    """When a fault strikes: at the `count`-th solver start, recorded case or epoch of an attempt,
    and so much later.
    """

    stage: Stage
    count: int
    delay_s: float

    def __str__(self) -> str:
        counted = {
            "starting": "",
            "solving": f" case {self.count}",
            "recorded": f" case {self.count}",
            "training": f" after epoch {self.count}" if self.count else " from the first process",
            "evaluating": "",
        }
        return f"{self.stage}{counted[self.stage]} + {self.delay_s:.2f} s"


@dataclass(frozen=True)
class Fault:
    """One strike; `lasts_s` for those that pass by themselves, `strength` from 0 to 1."""

    kind: str
    moment: Moment
    lasts_s: float
    strength: float


@dataclass(frozen=True)
class Schedule:
    """All that a seed decides."""

    seed: int
    store: Store
    server: Server
    deployed: bool
    faults: tuple[Fault, ...]


def draw(seed: int) -> Schedule:
    """The schedule of a seed, counted from 1."""
    drawn = random.Random(f"chaos {seed}")
    leading = list(KINDS.values())[(seed - 1) % len(KINDS)]
    store: Store = leading.store or ("s3" if drawn.random() < 0.25 else "local")
    others = [
        kind
        for kind in KINDS.values()
        if kind is not leading
        and not kind.deployed
        and kind.server in ("none", leading.server)
        and kind.store in (None, store)
        # Signatures of S3 hold for minutes, and two clocks in one schedule mean nothing more.
        and not (kind.needs == "compiler" and store == "s3")
    ]
    if leading.deployed:
        others = [KINDS[name] for name in BESIDE_A_DEPLOYMENT]
    num_others = drawn.choices((0, 1, 2), weights=(12, 6, 2))[0]
    kinds = [leading, *drawn.sample(others, k=min(num_others, len(others)))]
    faults = []
    counts = {"solving": (1, CASES), "recorded": (1, CASES), "training": (0, EPOCHS - 2)}
    longest = {"starting": 8.0, "solving": 0.6, "recorded": 0.6, "training": 1.5, "evaluating": 5.0}
    for kind in kinds:
        stage = drawn.choice(kind.stages)
        count = drawn.randint(*counts.get(stage, (0, 0)))
        moment = Moment(stage, count, round(drawn.uniform(0.0, longest[stage]), 2))
        lasts_s, strength = round(drawn.uniform(1.5, 6.0), 2), round(drawn.random(), 3)
        faults.append(Fault(kind.name, moment, lasts_s, strength))
    faults.sort(key=lambda fault: (STAGES.index(fault.moment.stage), fault.moment.count))
    return Schedule(seed, store, leading.server, leading.deployed, tuple(faults))
