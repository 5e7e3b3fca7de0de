"""Anchors that err are told without the truth, where something about them gives it away."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from courant.analysis.decomposition.case_scores import score_case
from courant.analysis.error_indicators.anchor_state import AnchorState, anchor_state, anchor_states
from courant.analysis.error_indicators.regression import fit_indicator, part_carried
from courant.analysis.error_indicators.study import INDICATOR, RANDOM, TRUTH, USUAL, judge
from courant.prediction.surrogate import Surrogate
from flows.cli.app import app
from simgen.errors import InputError
from simgen.store.access.reader import Dataset
from simgen.store.access.stored_case import StoredCase

NUM_ANCHORS, WIDTH = 30, 4


def planted(
    case: int, generator: np.random.Generator, bad: Sequence[int] | np.ndarray
) -> AnchorState:
    """A prediction of which some anchors carry nearly all of the error; far latents mark them."""
    latents = generator.normal(size=(NUM_ANCHORS, WIDTH))
    latents[bad] += 8.0
    errors = 0.01 * generator.uniform(0.5, 1.5, NUM_ANCHORS)
    errors[bad] *= 100
    return AnchorState(
        case=f"case {case}",
        governed=np.full(NUM_ANCHORS, 1 / NUM_ANCHORS),
        roughness=generator.uniform(0.5, 1.5, NUM_ANCHORS),
        energies=generator.uniform(0.5, 1.5, NUM_ANCHORS),
        latents=latents,
        errors=errors,
    )


def test_planted_bad_anchors_are_found_wherever_their_number_is() -> None:
    generator = np.random.default_rng(0)

    def draw() -> np.ndarray:
        return generator.choice(NUM_ANCHORS, 3, replace=False)

    training = generator.normal(size=(500, WIDTH))
    indicator = fit_indicator([planted(n, generator, draw()) for n in range(8)], training)
    judged = [judge(indicator, planted(100 + n, generator, draw())) for n in range(20)]
    carried = {name: np.mean([each.carried[name] for each in judged]) for name in (USUAL, RANDOM)}
    for each in judged:
        assert each.carried[INDICATOR] == pytest.approx(each.carried[TRUTH]) and (
            each.carried[INDICATOR] > 0.85
        )
    # Which anchors usually err tells nothing here.
    assert carried[USUAL] < 0.3 and carried[RANDOM] == pytest.approx(0.1)


def test_an_anchor_that_always_errs_is_known_by_its_number() -> None:
    generator = np.random.default_rng(1)

    def state(case: int) -> AnchorState:
        hidden = planted(case, generator, [4, 11, 23])
        return dataclasses.replace(hidden, latents=None)

    indicator = fit_indicator([state(n) for n in range(5)])
    found = judge(indicator, state(100))
    assert found.carried[TRUTH] > 0.85
    for name in (INDICATOR, USUAL):
        assert found.carried[name] == pytest.approx(found.carried[TRUTH])


def test_a_few_cases_of_different_error_levels_rank_as_well_as_equal_ones() -> None:
    """A case's own level lowers the mean of the others, which three cases take for a rule."""
    generator = np.random.default_rng(6)
    usual = generator.normal(0, 0.5, NUM_ANCHORS)

    def state(case: int) -> AnchorState:
        plain = planted(case, generator, [])
        level = generator.normal()
        errors = np.exp(usual + level + generator.normal(0, 0.5, NUM_ANCHORS))
        return dataclasses.replace(plain, errors=errors, latents=None)

    gains = []
    for _ in range(10):
        indicator = fit_indicator([state(n) for n in range(3)])
        judged = [judge(indicator, state(100 + n)).carried for n in range(10)]
        gains.append(np.mean([each[INDICATOR] - each[RANDOM] for each in judged]))
    assert np.mean(gains) > 0.04 and min(gains) > 0


def test_errors_without_a_cause_are_told_no_better_than_by_chance() -> None:
    """Nor does fitting eight features to noise pretend otherwise."""
    generator = np.random.default_rng(2)

    def state(case: int) -> AnchorState:
        plain = planted(case, generator, [])
        return dataclasses.replace(plain, errors=generator.exponential(size=NUM_ANCHORS))

    indicator = fit_indicator([state(n) for n in range(8)], generator.normal(size=(500, WIDTH)))
    carried = [judge(indicator, state(100 + n)).carried[INDICATOR] for n in range(60)]
    assert np.mean(carried) == pytest.approx(0.1, abs=0.04)


def test_a_prediction_needs_no_errors_and_does_not_look_at_them() -> None:
    generator = np.random.default_rng(3)
    indicator = fit_indicator(
        [planted(n, generator, [n]) for n in range(4)], generator.normal(size=(100, WIDTH))
    )
    state = planted(100, generator, [7])
    unknown = dataclasses.replace(state, errors=None)
    np.testing.assert_array_equal(indicator.predict(unknown), indicator.predict(state))


def test_two_validation_cases_are_too_few() -> None:
    generator = np.random.default_rng(4)
    states = [planted(n % 2, generator, [n]) for n in range(6)]
    with pytest.raises(InputError, match="validation split, which has 2 cases; 3 are needed"):
        fit_indicator(states)


def test_the_part_carried_is_that_of_the_anchors_ranked_first() -> None:
    errors = np.array([1.0, 5.0, 2.0, 2.0])
    assert part_carried(errors, np.array([0, 9, 0, 1]), share=0.25) == 0.5
    assert part_carried(errors, np.array([9, 0, 0, 1]), share=0.5) == pytest.approx(0.3)
    assert part_carried(np.zeros(4), errors) == 0.0


class Resplit:
    """A dataset, of which more cases count as validation."""

    def __init__(self, dataset: Dataset) -> None:
        self.url, self.version, self._dataset = dataset.url, dataset.version, dataset

    def cases(self, split: str) -> list[str]:
        return self._dataset.cases("test" if split == "test" else "train")

    def __getitem__(self, case: str) -> StoredCase:
        return self._dataset[case]


def test_the_state_of_a_rollout_is_the_one_that_scores_address(
    surrogate: Surrogate, dataset: Dataset
) -> None:
    case = dataset[dataset.cases("test")[0]]
    addressed = score_case(surrogate, case).addresses
    state = anchor_state(surrogate, case, surrogate.problem.shown_start(case))
    assert addressed is not None and state.errors is not None
    np.testing.assert_allclose(state.errors, addressed.errors, rtol=1e-4)
    np.testing.assert_allclose(state.governed, addressed.governed, rtol=1e-4)
    assert state.governed.sum() == pytest.approx(1.0) and state.latents is not None
    # The change is that of the last step alone.
    model, (inputs, _) = surrogate.model, surrogate.model_inputs(case, state.start_s)
    with torch.inference_mode():
        rolled = model.rollout(model.encode(inputs), 2)[0].numpy()
    np.testing.assert_allclose(state.latents, rolled[1], rtol=1e-5)
    np.testing.assert_allclose(state.change, np.linalg.norm(rolled[1] - rolled[0], axis=1), 1e-4)
    starts = [each.start_s for each in anchor_states(surrogate, case, windows=3)]
    assert len(starts) == 3 and max(starts) == state.start_s and min(starts) == 1.0


def test_the_command_judges_the_ranking_beside_its_nulls(
    surrogate: Surrogate, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Surrogate, "open_dataset", lambda self, url=None: Resplit(dataset))
    asked = ["analyse", "errors", surrogate.url, "--beside", surrogate.url, "--out", str(tmp_path)]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    assert "1.00 at the top tenth by the indicator, 1.00 elsewhere" in done.stdout
    written = json.loads((tmp_path / "error_indicator.json").read_text())
    assert set(written["carried"]) == {INDICATOR, USUAL, RANDOM, TRUTH}
    assert written["carried"][TRUTH] >= written["carried"][INDICATOR] > 0
    assert written["validation_cases"] == 3 and len(written["predictions"]) == 4
    with np.load(tmp_path / "error_indicator.npz") as arrays:
        assert arrays["expected_error"].shape == arrays["error_address"].shape == (4, 8)
    for name in written["carried"]:
        assert name in done.stdout


def test_too_few_validation_cases_are_told_in_one_line(
    surrogate: Surrogate, tmp_path: Path
) -> None:
    done = CliRunner().invoke(
        app, ["analyse", "errors", surrogate.url, "--out", str(tmp_path / "out")]
    )
    assert done.exit_code == 1 and done.stderr.count("\n") == 1
    assert "the validation split, which has 1 cases" in done.stderr
    assert not (tmp_path / "out").exists()
