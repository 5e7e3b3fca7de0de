"""A rollout that leaves the dynamics of the training is flagged when it does, and no other is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import courant
from courant.analysis.monitoring import MonitorJudgement, WatchedRollout, detect, judge_monitor
from courant.prediction import monitor as monitoring
from courant.prediction.surrogate import Surrogate
from flows.cli.app import app
from flows.terminal import screen
from simgen.errors import InputError, StoreError
from simgen.store.read import Dataset, StoredCase

STEPS, NUM_ANCHORS = 40, 6


class Swing:
    """Linear latent dynamics: each anchor turns in three planes, at the same three frequencies."""

    def __init__(self) -> None:
        generator = np.random.default_rng(0)
        self.mixing = np.linalg.qr(generator.normal(size=(8, 8)))[0][:, :6]
        self.start = generator.normal(size=(NUM_ANCHORS, 6))
        self.step = np.zeros((6, 6))
        for plane, angle in enumerate((0.3, 0.5, 0.9)):
            turn = [[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]
            self.step[2 * plane : 2 * plane + 2, 2 * plane : 2 * plane + 2] = turn

    def rollout(
        self, seed: int, kick_at: int | None = None, damped_from: int = STEPS
    ) -> np.ndarray:
        """(T + 1, L, d), from a start along the orbit, of an amplitude of its own."""
        generator = np.random.default_rng(seed)
        state = self.start * generator.uniform(0.8, 1.2)
        state = state @ np.linalg.matrix_power(self.step, int(generator.integers(200)))
        states = [state]
        for number in range(1, STEPS + 1):
            state = state @ self.step * (0.8 if number >= damped_from else 1.0)
            if number == kick_at:
                state = state + 4.0
            states.append(state)
        return np.stack(states) @ self.mixing.T


@pytest.fixture(scope="module")
def swing() -> Swing:
    return Swing()


@pytest.fixture(scope="module")
def monitor(swing: Swing) -> monitoring.Monitor:
    training = [swing.rollout(seed) for seed in range(60)]
    return monitoring.fit_monitor(training, [swing.rollout(1000 + seed) for seed in range(100)])


def flagged_at(monitor: monitoring.Monitor, latents: np.ndarray) -> int | None:
    raised = np.flatnonzero(monitor.quality(latents) >= 1)
    return int(raised[0]) + 1 if len(raised) else None


def test_kicks_and_rest_are_flagged_and_healthy_rollouts_as_seldom_as_promised(
    swing: Swing, monitor: monitoring.Monitor
) -> None:
    """States of a rollout that comes to rest are ever nearer to the mean: slowness shows it."""
    for seed in range(2000, 2020):
        if flagged_at(monitor, swing.rollout(seed)) is None:
            assert flagged_at(monitor, swing.rollout(seed, kick_at=17)) == 17
            at = flagged_at(monitor, swing.rollout(seed, damped_from=10))
            assert at is not None and 10 <= at <= 20
    flagged = [flagged_at(monitor, swing.rollout(seed)) for seed in range(3000, 3400)]
    share = np.mean([each is not None for each in flagged])
    # Some are: a limit that none reaches would mean nothing.
    assert share > 0 and share == pytest.approx(monitoring.FALSE_ALARMS, abs=0.05)


def test_latents_that_stand_still_throughout_the_training_make_no_monitor_fail() -> None:
    still = np.ones((5, 3, 4)) + np.arange(4)
    found = monitoring.fit_monitor([still] * 3, [still] * 20)
    assert found.quality(still).max() <= 1
    assert flagged_at(found, still * np.linspace(1, 2, 5)[:, None, None]) == 1


def test_latents_that_are_not_finite_raise_the_flag_and_too_few_calibrate_nothing(
    swing: Swing, monitor: monitoring.Monitor
) -> None:
    latents = swing.rollout(2000)
    latents[7:] = np.nan
    assert monitoring.RolloutQuality(monitor.quality(latents), monitor.horizon).flagged_at == 7
    rollouts = [swing.rollout(seed) for seed in range(30)]
    with pytest.raises(InputError, match="needs 19 validation rollouts, there are 18"):
        monitoring.fit_monitor(rollouts, rollouts[:18])
    for each in rollouts[:3]:
        each[5:] = np.inf
    with pytest.raises(InputError, match="3 of 30 validation rollouts have latents that are not"):
        monitoring.fit_monitor(rollouts[3:], rollouts)


def errors_that_double(at: int | None) -> np.ndarray:
    """Errors that swing about one, within the horizon of ten steps up to 1.9, and double once."""
    errors = 1 + 0.4 * np.sin(np.arange(STEPS))
    errors[3] = 1.9
    if at is not None:
        errors[at - 1 :] = 2.5
    return errors


@pytest.mark.parametrize("at", [11, 25, STEPS, None])
def test_the_step_at_which_an_error_doubles_is_the_planted_one(at: int | None) -> None:
    errors = errors_that_double(at)
    found = detect(errors, 10, 20)
    assert found.doubled_at == at
    assert found.level == pytest.approx(np.sqrt(np.mean(errors[:10] ** 2)))
    assert found.lead == (None if at is None else at - 20)


def test_an_error_that_is_not_finite_has_doubled_and_a_short_rollout_cannot() -> None:
    errors = errors_that_double(None)
    errors[29:] = np.nan
    assert detect(errors, 10, None).doubled_at == 30
    assert detect(errors_that_double(5)[:10], 10, 3).doubled_at is None


def test_detection_counts_flags_that_come_a_step_before_the_error_doubles(
    monitor: monitoring.Monitor,
) -> None:
    """Sixteen rollouts are flagged at step 17; their errors double when it is planted."""
    departure = np.where(np.arange(STEPS) < 16, 0.5, 2.0)
    doubled = [18] * 4 + [22] * 4 + [17] * 2 + [14] * 2 + [None] * 4
    times, quality = np.arange(1.0, STEPS + 1), monitoring.RolloutQuality(departure, 10)
    watched = [WatchedRollout("a", 0.0, times, quality, errors_that_double(at)) for at in doubled]
    written = MonitorJudgement(monitor, 0.05, 400, tuple(watched)).to_json()
    counts = {"rollouts": 16, "doubled": 12, "detected": 8, "flagged_in_vain": 4}
    expected = {**counts, "median_lead": 3.0, "rate": 8 / 12, "least_lead": 1, "factor": 2.0}
    assert written["detection"] == pytest.approx(expected)
    assert [each["lead_steps"] for each in written["long_rollouts"]][::4] == [1, 5, 0, None]
    assert written["long_rollouts"][11]["error_doubled_at_step"] == 14


@pytest.fixture
def own(surrogate: Surrogate, tmp_path: Path) -> Surrogate:
    """The model in a run directory of its own."""
    shutil.copytree(surrogate.url, tmp_path / "own")
    return courant.load(tmp_path / "own", device="cpu")


def test_a_prediction_is_monitored_once_the_command_has_calibrated_the_run(
    own: Surrogate, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(screen, "_width", 200)
    case = dataset[dataset.cases("test")[0]]
    asked = {"initial": case["velocity"][0], "distance": (case.distance, case.direction)}
    with pytest.raises(InputError, match=r"no calibrated monitor.*courant analyse monitor"):
        own.rollout_quality(own.prepare(case.points, **asked))
    done = CliRunner().invoke(
        app, ["analyse", "monitor", own.url, "--out", str(tmp_path / "analysis")]
    )
    assert done.exit_code == 0, done.output
    judged = json.loads((tmp_path / "analysis/monitor_judgement.json").read_text())
    assert judged["horizon"] == 2 and judged["rollouts"] == 24
    (long,) = judged["long_rollouts"]
    assert "detection  " in done.stdout and "error doubled at" in done.stdout
    assert {"error_level", "error_doubled_at_step", "lead_steps"} <= set(long)
    assert case.id in done.stdout and len(long["departure"]) == long["steps"] == 9
    loaded = courant.load(own.url, device="cpu")
    quality = loaded.rollout_quality(loaded.prepare(case.points, steps=9, **asked))
    assert quality.horizon == 2 and quality.flagged_at == long["flagged_at_step"]
    np.testing.assert_allclose(quality.departure, long["departure"], rtol=1e-5)


def test_the_error_beside_the_departure_is_that_of_the_prediction(
    own: Surrogate, dataset: Dataset, monitor: monitoring.Monitor
) -> None:
    case = dataset[dataset.cases("test")[0]]
    width = 2 * own.model.config.width
    unit = monitor.model_copy(
        update={"mean": (0.0,) * width, "components": (((1.0,) + (0.0,) * (width - 1)),)}
    )
    (watched,) = judge_monitor(own, dataset, unit, [case.id]).watched
    predicted = own.predict_case(case, start_s=watched.start_s, steps=3)[2]
    truth = own.problem.solution(case, watched.start_s + 9.0)
    deviation = (predicted - truth) / np.asarray(own.normaliser.std)
    assert watched.errors[2] == pytest.approx(np.sqrt(np.square(deviation).mean()), rel=1e-5)
    known = dataset.cases("validation")[:1]
    with pytest.raises(InputError, match=f"case {known[0]} is of the validation split, on which"):
        judge_monitor(own, dataset, monitor, known)


def test_a_monitor_of_other_weights_or_of_a_model_without_latents_is_none(
    own: Surrogate, plain: Surrogate, case: StoredCase, monitor: monitoring.Monitor
) -> None:
    path = Path(own.url) / "monitor.json"
    path.write_text(monitor.model_copy(update={"weights": "of another"}).model_dump_json())
    assert own.monitor is None
    path.write_text("{}")
    with pytest.raises(StoreError, match="is not what this project writes"):
        courant.load(own.url).monitor  # noqa: B018
    plain.__dict__["monitor"] = monitor
    with pytest.raises(InputError, match="this is a transient model of kind fno"):
        plain.rollout_quality(plain.prepare_case(case))
