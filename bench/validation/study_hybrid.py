"""Does it pay that the solver runs on from a rollout's last good state? Cylinders, three ways.

    courant analyse monitor OUT/hybrid/RUN
    python -m bench.validation hybrid --out OUT

A hybrid rollout goes by the model until the run's monitor flags it, and from the state before that
by icoFoam for some seconds, again and again; or it changes at fixed intervals. Both are compared
with the model alone, and with what needs no model: the solver runs on for some seconds, and then
its last period is repeated. All begin with the solver's own state, in the start-up of the wake and
in the grown wake. Errors are root mean squares over the training cases' standard deviation; at
equal phase, the solution's moment is the one within a period that fits best.
OUT/hybrid.jsonl keeps what was measured: a study that was cut off goes on.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.interpolate import make_interp_spline

import courant
from bench.report import publish
from bench.validation.study_warm_start import once, write_point, write_start
from courant.prediction.surrogate import Surrogate
from simgen.cases import get_family
from simgen.cases.cylinder.family import MEAN_VELOCITY
from simgen.cases.cylinder.shedding import shedding
from simgen.foam.field import read_field
from simgen.foam.mesh import read_geometry, time_directories
from simgen.foam.run import run_application
from simgen.point_cloud import PointCloud

NEEDS = "one run of the cylinder, with its monitor,"
CYLINDERS = 14
#: s: where rollouts start (in the start-up, in the grown wake), and how long they are.
STARTS: Sequence[float] = (100.0, 500.0)
SPAN = 500.0
#: s of the model (None: until flagged), and of the solver, in turns.
Turns = Sequence[tuple[float | None, float]]
TURNS: Turns = ((None, 30.0), (None, 60.0), (100.0, 30.0), (140.0, 60.0))
#: s that the solver runs on before its last period is repeated.
BEFORE = (0.0, 100.0, 200.0)
#: s before the end in which a period is looked for.
REMEMBERED = 300.0
#: Windows of the training's length, over the rollout, whose last error is that of one window.
WINDOWS = 9
STROUHAL = 0.01

Found = dict[str, Any]


def main(out: Path, short: bool) -> None:
    surrogate = courant.load(out / "hybrid", device="cpu")
    dataset, step_s = surrogate.open_dataset(), surrogate.step_s or 0.0
    starts, span, turns = STARTS, SPAN, TURNS
    if short:
        starts, span, turns = (2 * step_s,), 6 * step_s, ((None, step_s), (2 * step_s, step_s))
    ways: list[Found] = []
    for case in dataset.cases("test")[: 1 if short else CYLINDERS]:
        key = f"{case}, {surrogate.weights[:12]}"
        asked = surrogate, dataset[case].parameters, starts, span, turns
        ways += once(out / "hybrid.jsonl", key, _cylinder, *asked)["ways"]
    rows = []
    for start, way in dict.fromkeys((each["from (s)"], each["way"]) for each in ways):
        of = [each for each in ways if (each["from (s)"], each["way"]) == (start, way)]
        off = [each["Strouhal off"] for each in of if each["Strouhal off"] is not None]
        names = "by solver", "of solver's core-s", "error", "equal phase", "of a window's error"
        rows.append(
            {
                "from (s)": start,
                "way": way,
                **{name: float(np.median([each[name] for each in of])) for name in names},
                "no larger": len([1 for each in of if each["of a window's error"] <= 1]),
                "Strouhal off": float(np.median(off)) if off else "",
                "within 1 %": len([1 for each in off if each <= STROUHAL]),
                "cylinders": len(of),
            }
        )
    publish(out, "hybrid", rows, "Rollouts of cylinders, medians", ways=ways)


def _cylinder(
    scratch: Path,
    surrogate: Surrogate,
    design: Mapping[str, float],
    starts: Sequence[float],
    span: float,
    turns: Turns,
) -> Found:
    """Solve a design, and roll it out from each start."""
    point = get_family("cylinder-flow").point(design, surrogate.dataset["settings"])
    shutil.rmtree(scratch, ignore_errors=True)
    whole, case = write_point(point, scratch), scratch / "case"
    shutil.copytree(whole, case)
    run_application("icoFoam", whole)
    folders = time_directories(whole)
    times = np.array([at for at, _ in folders])
    states = np.stack([read_field(folder / "U").internal[:, :2] for _, folder in folders])
    points, ways, step_s = read_geometry(case).centres, [], surrogate.step_s or 0.0
    at, steps = (points, times, states), round(span / step_s)
    for start in starts:
        pressure = read_field(folders[int(np.abs(times - start).argmin())][1] / "p").internal
        wake = _Wake(surrogate, case, design, *at, start, pressure, step_s, steps)
        ways += _ways(wake, turns)
    shutil.rmtree(scratch)
    return {"design": dict(design), "ways": ways}


def _ways(wake: _Wake, turns: Turns) -> list[Found]:
    """Measure each way to go on from the start, beside the solver's."""
    first = wake.states[wake.at(wake.start)]
    strouhal = wake.strouhal(wake.states[wake.after(wake.start, wake.steps)])
    length, span = wake.surrogate.problem.steps(None), wake.steps * wake.step_s
    begins = np.linspace(wake.start, wake.start + span - length * wake.step_s, WINDOWS)
    last = [
        wake.errors(wake.predict(wake.states[wake.at(begin)], length)[0], begin)[0][-1]
        for begin in begins.round()
    ]
    ways: list[Found] = []

    def add(way: str, states: np.ndarray, by_solver: float, core_s: float) -> None:
        equal, phase = wake.errors(states, wake.start)
        ways.append(
            {
                "from (s)": wake.start,
                "way": way,
                "by solver": by_solver,
                "of solver's core-s": core_s / solver_s,
                "error": float(equal.mean()),
                "equal phase": float(phase.mean()),
                "of a window's error": float(equal.mean() / np.mean(last)),
                "Strouhal off": abs(wake.strouhal(states) / strouhal - 1) if strouhal else None,
            }
        )

    resumed, _, solver_s = wake.solve(first, wake.pressure, 0, wake.steps)
    add("the solver, resumed", resumed, 1.0, solver_s)
    states, _, spent = wake.predict(first, wake.steps)
    add("the model alone", states, 0.0, spent)
    for fixed, solved in turns:
        until = "until flagged" if fixed is None else f"for {fixed:g} s"
        add(f"the model {until}, the solver for {solved:g} s", *wake.hybrid(fixed, solved))
    for before in BEFORE:
        way = f"the solver for {before:g} s, its last period repeated"
        share = min(before / span, 1.0)
        add(way, wake.repeated(share * span), share, solver_s * share)
    return ways


def _between(target: np.ndarray, states: np.ndarray) -> float:
    """Return the least mean square distance from the lines between successive states (T, N, 2)."""
    ways = np.diff(states, axis=0)
    gap = target - states[:-1]
    lengths = np.square(ways).sum(axis=(1, 2))
    share = np.clip((gap * ways).sum(axis=(1, 2)) / np.maximum(lengths, 1e-12), 0, 1)
    return float(np.square(gap - share[:, None, None] * ways).mean(axis=(1, 2)).min())


def _period(states: np.ndarray) -> float | None:
    """Return before how many states (T, N, 2) the last one has been; None where it has not.

    The least distance from it behind the first greatest one, refined by a parabola; of two periods
    where there are so many, which is twice as exact.
    """
    away = np.square(states - states[-1]).mean(axis=(1, 2))[::-1]
    rises = np.diff(away) > 0
    falls = np.flatnonzero(~rises)
    again = np.flatnonzero(rises[falls[0] :]) if len(falls) else falls
    if not len(again):
        return None

    def lowest(at: int) -> float:
        below, middle, above = away[at - 1 : at + 2]
        return float(at + 0.5 * (below - above) / (below - 2 * middle + above))

    first = int(falls[0] + again[0])
    near = away[2 * first - 3 : 2 * first + 4]
    if len(near) == 7 and 0 < (best := int(near.argmin())) < 6:
        return lowest(2 * first - 3 + best) / 2
    return lowest(first)


@dataclass(frozen=True)
class _Wake:
    """A design on the solver's mesh, with the solver's states at all stored times."""

    surrogate: Surrogate
    case: Path
    """Not solved: its mesh and dictionaries"""
    design: Mapping[str, float]
    points: np.ndarray
    time: np.ndarray
    states: np.ndarray
    """(T, N, 2)"""
    start: float
    pressure: np.ndarray
    """(N, 1) at the start"""
    step_s: float
    steps: int
    """Of the rollout"""

    @property
    def interval_s(self) -> float:
        return float(np.diff(self.time).mean())

    def at(self, moment: float) -> int:
        return int(np.abs(self.time - moment).argmin())

    def after(self, start: float, steps: int) -> np.ndarray:
        """Return the indices of the steps after a moment."""
        return np.array([self.at(start + k * self.step_s) for k in range(1, steps + 1)], int)

    def predict(self, state: np.ndarray, steps: int) -> tuple[np.ndarray, int, float]:
        """Return the model's next states, how many come before a flag, and core-seconds."""
        begin, of = time.process_time(), {"initial": state, "parameters": self.design}
        request = self.surrogate.prepare(self.points, **of, steps=steps)
        (states,) = self.surrogate.predict_prepared([request])
        flagged = self.surrogate.rollout_quality(request).flagged_at
        return states, steps if flagged is None else flagged - 1, time.process_time() - begin

    def solve(
        self, state: np.ndarray, pressure: np.ndarray, done: int, steps: int
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """Return the solver's next states, its last pressure, and core-seconds."""
        begin, now = time.process_time(), self.start + done * self.step_s
        directory = self.case.with_name("part")
        shutil.copytree(self.case, directory)
        velocity = np.pad(state, ((0, 0), (0, 1)))
        write_start(directory, f"{now:g}", {"U": velocity, "p": pressure})
        control = directory / "system/controlDict"
        text = re.sub(
            r"endTime .*;", f"endTime {now + steps * self.step_s:g};", control.read_text()
        )
        control.write_text(re.sub(r"writeInterval .*;", f"writeInterval {self.step_s:g};", text))
        log, _ = run_application("icoFoam", directory)
        folders = [folder for at, folder in time_directories(directory) if at > now + 1e-6]
        states = np.stack([read_field(folder / "U").internal[:, :2] for folder in folders])
        pressure = read_field(folders[-1] / "p").internal
        shutil.rmtree(directory)
        return states, pressure, (log.cpu_s or 0.0) + time.process_time() - begin

    def hybrid(self, fixed: float | None, solved: float) -> tuple[np.ndarray, float, float]:
        """Go by the model until it is flagged or for `fixed` s, then by the solver for `solved` s.

        Returns the states, the share of them that the solver computed, and core-seconds.
        """
        state, pressure = self.states[self.at(self.start)], self.pressure
        parts: list[np.ndarray] = []
        done, by_solver, spent = 0, 0, 0.0
        while done < self.steps:
            left = self.steps - done
            most = left if fixed is None else min(left, max(1, round(fixed / self.step_s)))
            states, good, took = self.predict(state, most)
            good = good if fixed is None else most
            parts, done, spent = [*parts, states[:good]], done + good, spent + took
            state = states[good - 1] if good else state
            if steps := min(self.steps - done, max(1, round(solved / self.step_s))):
                states, pressure, took = self.solve(state, pressure, done, steps)
                parts, done, spent = [*parts, states], done + steps, spent + took
                state, by_solver = states[-1], by_solver + steps
        return np.concatenate(parts), by_solver / self.steps, spent

    def repeated(self, before: float) -> np.ndarray:
        """Return the solver's states for `before` s, then its last period repeated."""
        end, num = self.start + before, round(before / self.step_s)
        known = self.states[self.at(max(end - REMEMBERED, 0.0)) : self.at(end) + 1]
        period = _period(known)
        ahead = np.arange(1, self.steps - num + 1) * self.step_s / self.interval_s
        back = ahead % period - period if period else np.zeros(len(ahead))
        again = make_interp_spline(np.arange(len(known)), known, k=1)(len(known) - 1 + back)
        return np.concatenate([self.states[self.after(self.start, num)], again])

    def errors(self, states: np.ndarray, start: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the errors (T,) of states after a moment, at equal time and at equal phase."""
        std = np.asarray(self.surrogate.normaliser.std)
        reach = round(4 * 2 * self.design["radius"] / MEAN_VELOCITY / self.interval_s)
        found = []
        for state, at in zip(states, self.after(start, len(states)), strict=True):
            near = self.states[max(at - reach, 0) : at + reach + 1]
            equal = np.square((self.states[at] - state) / std).mean()
            found.append((equal, _between(state / std, near / std)))
        at_time, at_phase = np.sqrt(np.transpose(found))
        return at_time, at_phase

    def strouhal(self, states: np.ndarray) -> float:
        times = self.start + self.step_s * np.arange(1, len(states) + 1)
        fields = {"velocity": states}
        cloud = PointCloud(self.points, None, None, None, (), times, fields, None)
        radius, center = self.design["radius"], (self.design["center_x"], self.design["center_y"])
        found = shedding(cloud, radius=radius, center=center, start=float(times[0]))
        return (found.frequency or 0.0) * 2 * radius / MEAN_VELOCITY
