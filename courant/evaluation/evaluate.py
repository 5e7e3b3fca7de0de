"""A trained run on a split: errors by component, rollout step and case, beside the references, in <run>/evaluation.json."""

from __future__ import annotations

import hashlib
import time
from dataclasses import asdict
from typing import Any

import numpy as np

import simgen
from courant.evaluation.metrics import ALL, ErrorSums
from courant.evaluation.references import PERSISTENCE, TRAINING_MEAN, TrainingMean, persistence, read_channels
from courant.run_directory import RunDirectory
from courant.surrogate import Surrogate, load
from simgen.errors import InputError
from simgen.store.reader import Dataset, StoredCase

EVALUATION = "evaluation.json"
MODEL = "model"
#: Windows begin this far apart in each case.
STRIDE_S = 10.0


def evaluate(run_url: str, split: str = "test") -> dict[str, Any]:
    """Roll the run out over every window of the split's cases, the references beside it; writes and returns the record.

    A record of the same weights and split is returned as it stands. Raises InputError where there is no such run, no case in
    the split, or no window that fits.
    """
    run = RunDirectory(run_url)
    surrogate = load(run_url)
    fingerprint = hashlib.sha256(run.read_bytes("model.safetensors")).hexdigest()[:16] + f"-{split}"
    if run.exists(EVALUATION):
        record: dict[str, Any] = run.read_json(EVALUATION)
        if record["fingerprint"] == fingerprint:
            return record
    dataset = simgen.open_dataset(surrogate.dataset["url"], surrogate.dataset["version"])
    record = {"run": run.url, "fingerprint": fingerprint, "split": split, **_measure(surrogate, dataset, split)}
    run.write_json(EVALUATION, record)
    return record


def _measure(surrogate: Surrogate, dataset: Dataset, split: str) -> dict[str, Any]:
    cases = dataset.cases(split)
    if not cases:
        raise InputError(f"{dataset.url} {dataset.version} has no {split} case to evaluate on; generate more cases")
    data = surrogate.experiment.data
    mean = TrainingMean(dataset, surrogate.normaliser.channels, data.start_s)
    names = (MODEL, PERSISTENCE, TRAINING_MEAN)
    total = {name: ErrorSums(surrogate.channels) for name in names}
    by_case: dict[str, Any] = {}
    seconds = 0.0
    for case in cases:
        sums, took = _measure_case(surrogate, dataset[case], mean)
        seconds += took
        by_case[case] = {
            "windows": sums[MODEL].num_windows,
            **{name: sums[name].total() for name in names},
        }
        for name in names:
            for key in ("absolute", "magnitude", "squared", "power"):
                getattr(total[name], key).extend(getattr(sums[name], key))
    nmae = {name: total[name].nmae() for name in names}
    return {
        "dataset": {"url": dataset.url, "version": dataset.version, "family": dataset.schema.family},
        "channels": [asdict(channel) for channel in surrogate.normaliser.channels],
        "step_s": data.step_s,
        "num_windows": total[MODEL].num_windows,
        "cases": by_case,
        "nmae": nmae,
        "relative_l2": {name: total[name].relative_l2() for name in names},
        "overall": {name: total[name].total() for name in names},
        "beats": {
            name: [bool(ours < theirs) for ours, theirs in zip(nmae[MODEL][ALL], nmae[name][ALL], strict=True)]
            for name in (PERSISTENCE, TRAINING_MEAN)
        },
        "timing": _timing(dataset, cases, seconds, total[MODEL].num_windows, data.window_steps * data.step_s),
    }


def _measure_case(surrogate: Surrogate, case: StoredCase, mean: TrainingMean) -> tuple[dict[str, ErrorSums], float]:
    """Error sums of one case, and the seconds that the model's rollouts took."""
    data = surrogate.experiment.data
    times = np.asarray(case.time)
    states = read_channels(case, surrogate.normaliser.channels)
    background = np.broadcast_to(mean.at(case.points), (data.window_steps, *states.shape[1:]))
    sums = {name: ErrorSums(surrogate.channels) for name in (MODEL, PERSISTENCE, TRAINING_MEAN)}
    seconds = 0.0
    for start in np.arange(data.start_s, times[-1] - data.window_steps * data.step_s + 1e-6, STRIDE_S):
        frame = surrogate.snapshot(case, float(start))
        frames = np.searchsorted(times, surrogate.times(float(start)) - 1e-6)
        began = time.perf_counter()
        prediction = surrogate.predict_case(case, start_s=float(start))
        seconds += time.perf_counter() - began
        sums[MODEL].add(prediction, states[frames])
        sums[PERSISTENCE].add(persistence(states, frame, data.window_steps), states[frames])
        sums[TRAINING_MEAN].add(background, states[frames])
    if not sums[MODEL].num_windows:
        raise InputError(
            f"case {case.id} ends at {times[-1]:g} s: no window of {data.window_steps * data.step_s:g} s fits after {data.start_s:g} s"
        )
    return sums, seconds


def _timing(dataset: Dataset, cases: list[str], seconds: float, num_windows: int, window_s: float) -> dict[str, float]:
    """Prediction beside the solver, both for the same simulated time on whatever machine each ran on."""
    stored = [dataset[case] for case in cases]
    per_simulated_s = [
        case.provenance["wall_time_s"]["solve"] / case.settings["end_time"]
        for case in stored
        if "solve" in case.provenance.get("wall_time_s", {})
    ]
    prediction = seconds / num_windows
    solver = float(np.mean(per_simulated_s)) * window_s if per_simulated_s else float("nan")
    return {"prediction_s": prediction, "solver_s": solver, "speed_up": solver / prediction, "window_s": window_s}
