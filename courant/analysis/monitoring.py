"""Calibrate the monitor of rollouts, and judge whether it flags one before its error has doubled.

    level       the root mean square of the error over the steps that the model was trained on
    doubled     the first step after those whose error is at least twice the level
    detected    flagged at least one step before that
    lead        steps from the flag to the doubling

The monitor is calibrated on rollouts as long as a training window, all over training and validation
cases. It is judged on such rollouts of test cases (false alarms), and on rollouts to the cases'
ends, beside their true errors.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from courant.analysis import Progress
from courant.prediction.monitor import Monitor, RolloutQuality, fit_monitor
from courant.prediction.surrogate import Surrogate
from courant.problems.problem import read_states
from courant.problems.transient import times_between
from simgen.errors import InputError
from simgen.store.read import Dataset, StoredCase

FACTOR = 2.0
LEAST_LEAD = 1  # steps by which a flag has to come first
MAX_CASES = 100  # of a split that are rolled out
ROLLOUTS = 400  # of a split, spread over its cases
MAX_STEPS = 200


@dataclass(frozen=True)
class Detection:
    """One rollout: when its error doubled, and when it was flagged, in steps from 1."""

    level: float  # of the error within the horizon, in the unit of the errors
    doubled_at: int | None  # None where the error never doubles
    flagged_at: int | None

    @property
    def lead(self) -> int | None:
        """Steps from the flag to the doubling, negative for a late flag; None without either."""
        if self.doubled_at is None or self.flagged_at is None:
            return None
        return self.doubled_at - self.flagged_at


def detect(errors: np.ndarray, horizon: int, flagged_at: int | None) -> Detection:
    """Find the doubling of errors (T,) of a rollout, whose first `horizon` steps are the level."""
    level = float(np.sqrt(np.mean(np.square(errors[:horizon], dtype=np.float64))))
    # Errors that are not finite have doubled: a comparison with NaN is false.
    grown = np.flatnonzero(~(errors[horizon:] < FACTOR * level))
    return Detection(level, horizon + int(grown[0]) + 1 if len(grown) else None, flagged_at)


@dataclass(frozen=True)
class WatchedRollout:
    """A rollout to a case's end, with the monitor's result and the true error at each step."""

    case: str
    start_s: float
    times: np.ndarray  # (T,) s from the start
    quality: RolloutQuality
    errors: np.ndarray  # (T,), root mean square over the training cases' standard deviation

    @property
    def detection(self) -> Detection:
        return detect(self.errors, self.quality.horizon, self.quality.flagged_at)

    def to_json(self) -> dict[str, Any]:
        detection = self.detection
        return {
            "case": self.case,
            "start_s": self.start_s,
            "steps": len(self.times),
            "flagged_at_step": detection.flagged_at,
            "error_level": detection.level,
            "error_doubled_at_step": detection.doubled_at,
            "lead_steps": detection.lead,
            "departure": self.quality.departure.tolist(),
            "error": self.errors.tolist(),
        }


@dataclass(frozen=True)
class MonitorJudgement:
    """How a monitor does on cases that it was not calibrated on."""

    monitor: Monitor
    false_alarms: float  # share of test rollouts of the training's length that are flagged
    num_rollouts: int
    watched: tuple[WatchedRollout, ...]

    @property
    def detection(self) -> dict[str, Any]:
        """How many long rollouts are flagged before their errors double, and by how many steps.

        `flagged_in_vain` counts flags of others; `rate` is the detected share.
        """
        every = [each.detection for each in self.watched]
        others = [each for each in every if each.doubled_at is None]
        doubled = len(every) - len(others)
        leads = [each.lead for each in every if each.lead is not None and each.lead >= LEAST_LEAD]
        return {
            "rollouts": len(every),
            "doubled": doubled,
            "detected": len(leads),
            "flagged_in_vain": sum(each.flagged_at is not None for each in others),
            "median_lead": float(np.median(leads)) if leads else None,
            "rate": len(leads) / doubled if doubled else None,
            "least_lead": LEAST_LEAD,
            "factor": FACTOR,
        }

    def to_json(self) -> dict[str, Any]:
        """Return all numbers, and Spearman's correlation of departure and error over all steps."""
        departure = np.concatenate([each.quality.departure for each in self.watched])
        errors = np.concatenate([each.errors for each in self.watched])
        return {
            "false_alarms": self.false_alarms,
            "rollouts": self.num_rollouts,
            "horizon": self.monitor.horizon,
            "rank_correlation": float(spearmanr(departure, errors)[0]),
            "detection": self.detection,
            "long_rollouts": [each.to_json() for each in self.watched],
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
    splits = {split: dataset.cases(split)[:MAX_CASES] for split in ("train", "validation")}
    todo = [(split, case) for split, cases in splits.items() for case in cases]
    found: dict[str, list[np.ndarray]] = {split: [] for split in splits}
    for number, (split, case) in enumerate(todo, start=1):
        most = -(-rollouts // len(splits[split]))
        found[split] += _short_rollouts(surrogate, dataset[case], most)
        progress(number, len(todo))
    monitor = fit_monitor(found["train"], found["validation"])
    return monitor.model_copy(update={"weights": surrogate.weights, "version": dataset.version})


def judge_monitor(
    surrogate: Surrogate,
    dataset: Dataset,
    monitor: Monitor,
    cases: Sequence[str],
    progress: Progress = lambda done, total: None,
    rollouts: int = ROLLOUTS,
) -> MonitorJudgement:
    """Count false alarms on cases, and watch a rollout of each to its end, at most 200 steps.

    InputError for a case of the validation split, on which the monitor is calibrated.
    """
    if known := set(cases) & set(dataset.cases("validation")):
        raise InputError(f"case {min(known)} is of the validation split: name one of another split")
    problem, std = surrogate.problem, np.asarray(surrogate.normaliser.std)
    flagged: list[bool] = []
    watched: list[WatchedRollout] = []
    for number, case in enumerate(map(dataset.__getitem__, cases), start=1):
        for latents in _short_rollouts(surrogate, case, -(-rollouts // len(cases))):
            flagged.append(bool(monitor.quality(latents).max() >= 1))
        start = problem.start(case)
        steps = problem.steps_to_end(case, start)
        assert start is not None and steps is not None
        steps = min(steps, MAX_STEPS)
        departure = monitor.quality(_latents(surrogate, case, start, steps))
        quality = RolloutQuality(departure, monitor.horizon)
        predicted = surrogate.predict_case(case, start_s=start, steps=steps)
        times = np.asarray(problem.times(start, steps))
        frames = np.abs(np.asarray(case.time)[None] - times[:, None]).argmin(axis=1)
        solved = read_states(case, surrogate.normaliser.channels, slice(None))[frames]
        errors = np.sqrt(np.square((predicted - solved) / std).mean(axis=(1, 2)))
        watched.append(WatchedRollout(case.id, start, times - start, quality, errors))
        progress(number, len(cases))
    return MonitorJudgement(monitor, float(np.mean(flagged)), len(flagged), tuple(watched))


def _short_rollouts(surrogate: Surrogate, case: StoredCase, most: int) -> Iterator[np.ndarray]:
    """Yield latents (T + 1, L, d) of rollouts as long as a training window, over the case."""
    first, last = surrogate.problem.start(case), surrogate.problem.shown_start(case)
    starts: list[float | None] = [None]  # The rollout raises for a steady model.
    if first is not None and last is not None and case.time is not None:
        usable = times_between(np.asarray(case.time), first, last)  # none of a short case
        chosen = np.linspace(0, len(usable) - 1, most).round() if len(usable) else np.zeros(0)
        starts = [float(usable[number]) for number in np.unique(chosen.astype(int))]
    for start in starts:
        yield _latents(surrogate, case, start)


def _latents(
    surrogate: Surrogate, case: StoredCase, start: float | None, steps: int | None = None
) -> np.ndarray:
    prepared = surrogate.prepare_case(case, start, steps)
    return surrogate.rollout_latents(prepared).float().cpu().numpy()
