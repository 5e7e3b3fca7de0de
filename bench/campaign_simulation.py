"""Simulate a campaign: thousands of cases on hundreds of workers, with measured costs a case.

One driver submits cases, takes their results and commits them, one thing at a time and in the order
of `flows.solving`: cases that end shortly after a commit share the next one. Nothing else is shared
by the workers.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass

import numpy as np

from flows.solving import COMMIT_SHARE as SHARE
from flows.solving import LAST_OF_EACH, longest_first_at_the_end

#: Seconds of a family's cases differ by about as much: of the cylinder's trial cases, the shortest
#: takes half as long as the longest.
SPREAD = 1 / 3


@dataclass(frozen=True)
class Costs:
    """Core-seconds; those that depend on the number of cases on record are `base + slope * N`."""

    submit_s: float
    """Driver: submitting a case, and taking its result"""
    commit_base_s: float
    commit_slope_s: float
    """Driver: a commit"""

    def commit_s(self, num_on_record: int) -> float:
        """Time of a commit."""
        return self.commit_base_s + self.commit_slope_s * num_on_record


@dataclass(frozen=True)
class Simulated:
    """What came out."""

    utilisation: float
    """The cases' own time over that of all workers, from the first submission to the last commit"""
    wall_s: float
    num_commits: int
    driver_busy: float


def simulate(costs: Costs, cases: int, workers: int, case_s: float, seed: int = 0) -> Simulated:
    """Carry out a campaign of cases of `case_s` on average."""
    drawn = np.random.default_rng(seed).uniform(1 - SPREAD, 1 + SPREAD, cases) * case_s
    left = iter(longest_first_at_the_end(list(drawn), float, LAST_OF_EACH * workers))
    ends: list[float] = []  # of running cases
    queue: deque[tuple[float, float]] = deque()  # submitted cases, and when; no worker is free
    now = busy = not_before = 0.0
    free, waiting, on_record, commits = workers, 0, 0, 0
    upcoming = next(left, None)

    def begin(at: float) -> None:
        nonlocal free
        while free and queue:
            submitted, takes = queue.popleft()
            free -= 1
            heapq.heappush(ends, max(at, submitted) + takes)

    while on_record < cases:
        room = len(ends) + len(queue) < 2 * workers
        over = upcoming is None and not ends and not queue
        if waiting and (now >= not_before or over):
            took = costs.commit_s(on_record)
            on_record, waiting, commits = on_record + waiting, 0, commits + 1
            not_before = now + took / SHARE
        elif upcoming is not None and room:
            took = costs.submit_s
            queue.append((now + took, upcoming))
            upcoming = next(left, None)
        else:
            took = 0.0
            now = max(now, min(ends[0], not_before) if waiting else ends[0])
        now, busy = now + took, busy + took
        begin(now)
        # Workers take the next case by themselves, while the driver does something else.
        while ends and ends[0] <= now:
            at = heapq.heappop(ends)
            free, waiting = free + 1, waiting + 1
            begin(at)
    share = float(drawn.sum()) / (workers * now)
    return Simulated(share, float(now), commits, float(busy / now))
