"""A seed -> a schedule: what is run, and which faults strike it when. The same on every machine.

The seeds go round the kinds, so that any run of seeds as long as the list leads with each kind
once. What else strikes, and when, is drawn.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from typing import Any

from bench.chaos.kinds import KINDS, STAGES, Kind, Server, Stage, Store

CASES = 3
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

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def draw(seed: int) -> Schedule:
    """The schedule of a seed, counted from 1."""
    drawn = random.Random(f"chaos {seed}")
    leading = list(KINDS.values())[(seed - 1) % len(KINDS)]
    store: Store = leading.store or ("s3" if drawn.random() < 0.25 else "local")
    others = _compatible(leading, store)
    num_others = drawn.choices((0, 1, 2), weights=(12, 6, 2))[0]
    kinds = [leading, *drawn.sample(others, k=min(num_others, len(others)))]
    faults = [_draw_fault(drawn, kind) for kind in kinds]
    faults.sort(key=lambda fault: (STAGES.index(fault.moment.stage), fault.moment.count))
    return Schedule(seed, store, leading.server, leading.deployed, tuple(faults))


def _compatible(leading: Kind, store: Store) -> list[Kind]:
    """Kinds that can strike in the same schedule."""
    if leading.deployed:
        return [KINDS[name] for name in BESIDE_A_DEPLOYMENT]
    return [
        kind
        for kind in KINDS.values()
        if kind is not leading
        and not kind.deployed
        and kind.server in ("none", leading.server)
        and kind.store in (None, store)
        # Signatures of S3 hold for minutes, and two clocks in one schedule say nothing more.
        and not (kind.needs == "compiler" and store == "s3")
    ]


def _draw_fault(drawn: random.Random, kind: Kind) -> Fault:
    stage = drawn.choice(kind.stages)
    counts = {"solving": (1, CASES), "recorded": (1, CASES), "training": (0, EPOCHS - 2)}
    count = drawn.randint(*counts.get(stage, (0, 0)))
    longest = {"starting": 8.0, "solving": 0.6, "recorded": 0.6, "training": 1.5, "evaluating": 5.0}
    delay = round(drawn.uniform(0.0, longest[stage]), 2)
    moment = Moment(stage, count, delay)
    return Fault(kind.name, moment, round(drawn.uniform(1.5, 6.0), 2), round(drawn.random(), 3))
