"""Calibrate the monitor of rollouts, and judge its detection.

Judge whether a monitor's flag comes before the error of a rollout has doubled.

    level       the root mean square of the error over the steps that the model was trained on
    doubled     the first step after those whose error is at least twice the level
    detected    flagged at least one step before that
    lead        steps from the flag to the doubling

A rollout no longer than the training's has no step at which it could double.

Calibrate a run's monitor on its dataset, and judge it against solved cases.

Training and validation rollouts are as long as a training window and start all over the cases, so
that what is usual is what the model was trained for. Rollouts of test cases go on to the case's
end, beside their true error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from courant.prediction.monitor import Monitor, RolloutQuality, fit_monitor, rollout_latents
from courant.prediction.surrogate import Surrogate
from courant.problems.transient import read_states, times_between
from courant.runs.directory import RunDirectory
from courant.runs.record import MONITOR
from simgen.errors import InputError
from simgen.store.read import Dataset, StoredCase

FACTOR = 2.0
LEAST_LEAD = 1
"""Steps by which a flag has to come first"""


@dataclass(frozen=True)
class Detection:
    """One rollout: when its error doubled, and when it was flagged, in steps from 1."""

    level: float
    """Of the error within the horizon, in the unit of the errors"""
    doubled_at: int | None
    """None where the error never doubles"""
    flagged_at: int | None

    @property
    def lead(self) -> int | None:
        """Return the steps from the flag to the doubling, negative for a late flag.

        None where either never comes.
        """
        if self.doubled_at is None or self.flagged_at is None:
            return None
        return self.doubled_at - self.flagged_at

    @property
    def detected(self) -> bool:
        return self.lead is not None and self.lead >= LEAST_LEAD


@dataclass(frozen=True)
class DetectionRate:
    """How many of some rollouts were flagged before their errors doubled."""

    rollouts: int
    doubled: int
    detected: int
    flagged_in_vain: int
    """Rollouts that are flagged although their errors never double"""
    median_lead: float | None
    """Steps, over the detected rollouts; None where there is none"""

    @classmethod
    def of(cls, rollouts: Sequence[Detection]) -> DetectionRate:
        doubled = [each for each in rollouts if each.doubled_at is not None]
        leads = [each.lead for each in doubled if each.detected and each.lead is not None]
        others = [each for each in rollouts if each.doubled_at is None]
        return cls(
            rollouts=len(rollouts),
            doubled=len(doubled),
            detected=len(leads),
            flagged_in_vain=sum(each.flagged_at is not None for each in others),
            median_lead=float(np.median(leads)) if leads else None,
        )

    @property
    def rate(self) -> float | None:
        """Return the detected share of the rollouts that double; None where none does."""
        return self.detected / self.doubled if self.doubled else None

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "rate": self.rate, "least_lead": LEAST_LEAD, "factor": FACTOR}


def detect(errors: np.ndarray, horizon: int, flagged_at: int | None) -> Detection:
    """Find the doubling of errors (T,) of a rollout, whose first `horizon` steps are the level."""
    level = float(np.sqrt(np.mean(np.square(errors[:horizon], dtype=np.float64))))
    # Errors that are not finite have doubled: a comparison with NaN would not say so.
    grown = np.flatnonzero(~(errors[horizon:] < FACTOR * level))
    doubled_at = horizon + int(grown[0]) + 1 if len(grown) else None
    return Detection(level, doubled_at, flagged_at)


MAX_CASES = 100
"""Cases of a split that are rolled out"""
ROLLOUTS = 400
"""Rollouts of a split, spread over its cases"""
MAX_STEPS = 200

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class WatchedRollout:
    """A rollout to a case's end, with what the monitor says and the true error at each step."""

    case: str
    start_s: float
    times: np.ndarray
    """(T,) s from the start"""
    quality: RolloutQuality
    errors: np.ndarray
    """Root mean square error over the standard deviation of the training cases, (T,)"""

    @property
    def detection(self) -> Detection:
        """When the error doubled against its level within the training's steps, and the flag."""
        return detect(self.errors, self.quality.horizon, self.quality.flagged_at)


@dataclass(frozen=True)
class MonitorJudgement:
    """How a monitor does on cases that it was not calibrated on."""

    monitor: Monitor
    false_alarms: float
    """Share of test rollouts of the training's length that are flagged"""
    num_rollouts: int
    watched: tuple[WatchedRollout, ...]

    @property
    def rank_correlation(self) -> float:
        """Return Spearman's correlation of departure and error over all steps of long rollouts."""
        departure = np.concatenate([each.quality.departure for each in self.watched])
        errors = np.concatenate([each.errors for each in self.watched])
        return float(spearmanr(departure, errors)[0])

    @property
    def detection(self) -> DetectionRate:
        """Return how many long rollouts are flagged before their errors double."""
        return DetectionRate.of([each.detection for each in self.watched])

    def to_json(self) -> dict[str, Any]:
        return {
            "false_alarms": self.false_alarms,
            "rollouts": self.num_rollouts,
            "horizon": self.monitor.horizon,
            "rank_correlation": self.rank_correlation,
            "detection": self.detection.to_json(),
            "long_rollouts": [
                {
                    "case": each.case,
                    "start_s": each.start_s,
                    "steps": len(each.times),
                    "flagged_at_step": each.quality.flagged_at,
                    "error_level": each.detection.level,
                    "error_doubled_at_step": each.detection.doubled_at,
                    "lead_steps": each.detection.lead,
                    "departure": each.quality.departure.tolist(),
                    "error": each.errors.tolist(),
                }
                for each in self.watched
            ],
        }


def calibrate_monitor(
    surrogate: Surrogate,
    dataset: Dataset,
    progress: Progress = lambda done, total: None,
    rollouts: int = ROLLOUTS,
) -> Monitor:
    """Fit the monitor of a run to about so many training and so many validation rollouts.

    InputError for a steady model, one without latents, and for too few validation rollouts.
    """
    train, validation = (dataset.cases(split)[:MAX_CASES] for split in ("train", "validation"))
    found: dict[str, list[np.ndarray]] = {"train": [], "validation": []}
    number = 0
    for split, cases in (("train", train), ("validation", validation)):
        for case in cases:
            most = -(-rollouts // len(cases))
            found[split] += short_rollouts(surrogate, dataset[case], most)
            number += 1
            progress(number, len(train) + len(validation))
    return fit_monitor(found["train"], found["validation"]).model_copy(
        update={"weights": surrogate.weights, "version": dataset.version}
    )


def write_monitor(surrogate: Surrogate, monitor: Monitor) -> None:
    """Keep the monitor in the run, where `surrogate.predict` finds it."""
    run = RunDirectory(surrogate.url)
    run.check_writable()
    run.write_json(MONITOR, monitor.model_dump(mode="json"))
    surrogate.__dict__.pop("monitor", None)  # It may have looked before.


def judge_monitor(
    surrogate: Surrogate,
    dataset: Dataset,
    monitor: Monitor,
    cases: Sequence[str],
    progress: Progress = lambda done, total: None,
    rollouts: int = ROLLOUTS,
) -> MonitorJudgement:
    """Count false alarms on cases, and watch a rollout of each to its end.

    InputError for a case of the validation split, on which the monitor is calibrated.
    """
    calibrated_on = set(dataset.cases("validation"))
    if known := [case for case in cases if case in calibrated_on]:
        raise InputError(
            f"case {known[0]} is of the validation split, on which the monitor is calibrated: name"
            " cases of another one"
        )
    flagged: list[bool] = []
    watched: list[WatchedRollout] = []
    for number, case in enumerate(cases, start=1):
        for latents in short_rollouts(surrogate, dataset[case], -(-rollouts // len(cases))):
            flagged.append(bool(monitor.quality(latents).max() >= 1))
        watched.append(watch_case(surrogate, dataset[case], monitor))
        progress(number, len(cases))
    return MonitorJudgement(monitor, float(np.mean(flagged)), len(flagged), tuple(watched))


def watch_case(surrogate: Surrogate, case: StoredCase, monitor: Monitor) -> WatchedRollout:
    """Roll a case out to its end, at most 200 steps, beside its solution."""
    start = surrogate.problem.start(case)
    steps = surrogate.problem.steps_to_end(case, start)
    if start is None or steps is None:
        raise ValueError("a steady case has no rollout")
    steps = min(steps, MAX_STEPS)
    latents = rollout_latents(surrogate, surrogate.prepare_case(case, start, steps))
    predicted = surrogate.predict_case(case, start_s=start, steps=steps)
    times = surrogate.problem.times(start, steps)
    assert times is not None and case.time is not None
    frames = np.abs(np.asarray(case.time)[None] - times[:, None]).argmin(axis=1)
    solved = read_states(case, surrogate.normaliser.channels, slice(None))[frames]
    deviation = (predicted - solved) / np.asarray(surrogate.normaliser.std)
    errors = np.sqrt(np.square(deviation).mean(axis=(1, 2)))
    quality = RolloutQuality(monitor.quality(latents), monitor.horizon)
    return WatchedRollout(case.id, start, times - start, quality, errors)


def short_rollouts(surrogate: Surrogate, case: StoredCase, most: int) -> list[np.ndarray]:
    """Return latents (T + 1, L, d) of rollouts as long as a training window, over the case."""
    return [
        rollout_latents(surrogate, surrogate.prepare_case(case, start))
        for start in _starts(surrogate, case, most)
    ]


def _starts(surrogate: Surrogate, case: StoredCase, most: int) -> Iterator[float | None]:
    """Yield starts, evenly spread, whose rollouts end within the case."""
    first, last = surrogate.problem.start(case), surrogate.problem.shown_start(case)
    if first is None or last is None or case.time is None:
        yield None  # The rollout says why a steady model has none.
        return
    usable = times_between(np.asarray(case.time), first, last)
    if not len(usable):  # a case shorter than a rollout
        return
    for number in np.unique(np.linspace(0, len(usable) - 1, most).round().astype(int)):
        yield float(usable[number])
