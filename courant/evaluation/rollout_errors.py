"""A transient model on a split: errors by component, rollout step and case, beside persistence and the training mean."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from courant.data.trajectories import read_states
from courant.evaluation.metrics import ALL, ErrorSums
from courant.evaluation.references import MODEL, PERSISTENCE, TRAINING_MEAN, TrainingMean, persistence
from courant.evaluation.timing import timing
from courant.surrogate import Surrogate
from simgen.errors import InputError
from simgen.store.reader import Dataset, StoredCase

PREDICTORS = (MODEL, PERSISTENCE, TRAINING_MEAN)
#: Windows begin about this far apart in each case: at the nearest whole number of snapshots.
STRIDE_S = 10.0


def measure_rollouts(surrogate: Surrogate, dataset: Dataset, cases: Sequence[str]) -> dict[str, Any]:
    """Errors over all windows, by component, step and case; InputError where no window fits into a case."""
    data = surrogate.experiment.data
    mean = TrainingMean(dataset, surrogate.normaliser.channels, data.start_s)
    total = {name: ErrorSums(surrogate.channels) for name in PREDICTORS}
    by_case: dict[str, Any] = {}
    seconds: list[float] = []
    for case in cases:
        sums, took = _measure_case(surrogate, dataset[case], mean)
        seconds += took
        by_case[case] = {
            "windows": sums[MODEL].num_windows,
            **{name: {**sums[name].total(), "nmae_by_step": sums[name].nmae()} for name in PREDICTORS},
        }
        for name in PREDICTORS:
            total[name].merge(sums[name])
    nmae = {name: total[name].nmae() for name in PREDICTORS}
    return {
        "step_s": data.step_s,
        "stride_s": STRIDE_S,
        "num_windows": total[MODEL].num_windows,
        "cases": by_case,
        "nmae": nmae,
        "relative_l2": {name: total[name].relative_l2() for name in PREDICTORS},
        "overall": {name: total[name].total() for name in PREDICTORS},
        "by_component": {
            name: {channel: total[name].total(channel) for channel in surrogate.channels} for name in PREDICTORS
        },
        "beats": {
            name: [bool(ours < theirs) for ours, theirs in zip(nmae[MODEL][ALL], nmae[name][ALL], strict=True)]
            for name in (PERSISTENCE, TRAINING_MEAN)
        },
        "timing": _timing(surrogate, [dataset[case] for case in cases], seconds),
    }


def _measure_case(
    surrogate: Surrogate, case: StoredCase, mean: TrainingMean
) -> tuple[Mapping[str, ErrorSums], list[float]]:
    """Error sums of one case, and the seconds that each of the model's rollouts took."""
    data = surrogate.experiment.data
    times = np.asarray(case.time)
    states = read_states(case, surrogate.normaliser.channels, slice(None))
    background = np.broadcast_to(mean.at(case.points), (data.window_steps, *states.shape[1:]))
    sums = {name: ErrorSums(surrogate.channels) for name in PREDICTORS}
    seconds = []
    for frame in _window_starts(surrogate, case):
        start = float(times[frame])
        truth = states[[surrogate.snapshot(case, float(moment)) for moment in surrogate.times(start)]]
        began = time.perf_counter()
        prediction = surrogate.predict_case(case, start_s=start)
        seconds.append(time.perf_counter() - began)
        sums[MODEL].add(prediction, truth)
        sums[PERSISTENCE].add(persistence(states, frame, data.window_steps), truth)
        sums[TRAINING_MEAN].add(background, truth)
    if not seconds:
        raise InputError(
            f"case {case.id} ends at {times[-1]:g} s: no window of {data.window_steps * data.step_s:g} s fits after {data.start_s:g} s"
        )
    return sums, seconds


def _window_starts(surrogate: Surrogate, case: StoredCase) -> range:
    """Frames at which windows begin: from the first that training windows begin at, about STRIDE_S apart."""
    data, times = surrogate.experiment.data, np.asarray(case.time)
    first = surrogate.snapshot(case)
    every = max(1, round(STRIDE_S / float(np.diff(times[first : first + 2]).mean()))) if len(times) > first + 1 else 1
    last = np.searchsorted(times, times[-1] - data.window_steps * data.step_s + 1e-6, side="right")
    return range(first, int(last), every)


def _timing(surrogate: Surrogate, cases: list[StoredCase], seconds: list[float]) -> dict[str, Any]:
    """One window's prediction beside the solver's time for as much flow."""
    window_s = surrogate.experiment.data.window_steps * surrogate.step_s
    walls = [(case.provenance.get("wall_time_s", {}).get("solve"), case.settings.get("end_time")) for case in cases]
    rates = [wall / end for wall, end in walls if wall and end]
    solver = float(np.mean(rates)) * window_s if rates else None
    return {"window_s": window_s, **timing(surrogate, cases, seconds, solver)}
