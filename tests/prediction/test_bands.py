"""Bands hold as often as they say, where errors have one size and where they have not."""

import math
import shutil
from pathlib import Path
from typing import Any

import meshio
import numpy as np
import pytest
import torch
from scipy.special import stdtrit

import courant
import simgen
from bench.synthetic_cases import publish_cases
from courant.evaluation import coverage
from courant.evaluation.calibrate import calibrate, grid_errors
from courant.evaluation.coverage import FIELD, measure_coverage, worst_eighth
from courant.evaluation.evaluate import evaluate
from courant.evaluation.quantities import (
    left_out_scores,
    measure_quantities,
    scaled_designs,
    score_again,
)
from courant.evaluation.record import read_evaluation
from courant.optimisation import predicted
from courant.prediction import bands as banding
from courant.prediction.answers import FIELDS, REGRESSION, Answers, Outcomes, RegressedQuantity
from courant.prediction.surrogate import solved_state
from courant.report import page as pages
from courant.runs.directory import RunDirectory
from courant.runs.record import BANDS
from courant.serving.explorer import DesignRequest, Explored
from courant.serving.predictions import Limits
from courant.training.train import fit
from flows.cli import prediction_files as files
from simgen.case import CaseResult
from simgen.cases import get_family
from simgen.errors import InputError
from simgen.regression import gaussian_process
from simgen.store.read import Dataset
from simgen.store.schema import Schema
from tests import world as w


def test_the_quantile_is_that_of_split_conformal_prediction() -> None:
    scores = np.arange(1.0, 10.0)  # nine: the least number for 90 %
    assert banding.conformal_quantile(scores, 0.9) == 9.0
    assert banding.conformal_quantile(scores, 0.1) == 1.0
    assert banding.conformal_quantile(scores[:-1], 0.9) == math.inf
    assert banding.conformal_quantile(np.arange(1.0, 100.0), 0.9) == 90.0
    assert [banding.least_cases(level) for level in (0.5, 0.8, 0.9, 0.95)] == [1, 4, 9, 19]


@pytest.mark.parametrize("growth", [0.0, 1.5])  # e^3: twenty times larger at one end
def test_bands_hold_as_often_as_they_say_and_everywhere(growth: float) -> None:
    def size(designs: np.ndarray) -> np.ndarray:
        return np.exp(growth * designs[:, 0])

    generator = np.random.default_rng(3)
    held, upper = [], []
    for _ in range(60):
        designs = generator.uniform(-1, 1, (100, 2))
        errors = np.abs(generator.normal(size=100)) * size(designs)
        fresh = generator.uniform(-1, 1, (10, 2))
        widths = np.array([banding.half_width(designs, errors, design, 0.9) for design in fresh])
        held += (np.abs(generator.normal(size=10)) * size(fresh) <= widths).tolist()
        upper += (fresh[:, 0] > 0.5).tolist()
    shares = np.array(held)
    assert 0.86 <= shares.mean() <= 0.94
    assert shares[np.array(upper)].mean() >= 0.82


def test_a_band_is_the_quantile_of_errors_over_sizes_that_were_fitted_without_them() -> None:
    generator = np.random.default_rng(2)
    designs = generator.uniform(-1, 1, (20, 2))
    errors = np.abs(generator.normal(size=20)) * np.exp(2 * designs[:, 0])
    usual = banding.fit_error_size(designs, errors)
    scores = np.sort(errors / usual.left_out)
    assert scores[18] != pytest.approx(np.sort(errors / usual.at(designs))[18], rel=0.05)
    for design in designs[:3]:
        expected = scores[18] * usual.at(design[None])[0]
        assert banding.half_width(designs, errors, design, 0.9) == pytest.approx(expected)
    assert banding.half_width(designs[:1], errors[:1], designs[0], 0.9) == np.inf
    assert banding.half_width(designs, 0 * errors, designs[0], 0.9) == 0.0
    once_right = np.where(np.arange(20) == 3, 0.0, errors)
    here, there = (banding.half_width(designs, once_right, each, 0.9) for each in designs[:2])
    assert 0 < here != there > 0


def left_out(designs: np.ndarray, values: np.ndarray, share: float = 0.0) -> Answers:
    fit = gaussian_process(designs, values[:, None])
    _, scatter, scores = left_out_scores(fit, designs, values[:, None])
    quantity = RegressedQuantity(
        values=values.tolist(),
        logs=fit.logs.tolist(),
        share=share,
        scatter=scatter,
        scores=scores.tolist(),
    )
    return Answers(designs=designs.tolist(), quantities={"head": quantity})


def test_without_calibration_a_band_is_the_quantile_of_cases_that_were_left_out() -> None:
    generator = np.random.default_rng(7)
    designs, at = generator.uniform(-1, 1, (14, 2)), np.array([0.3, 0.2])
    values = np.sin(2 * designs[:, 0]) + 0.1 * generator.normal(size=14)
    for number, asked, level, rank in ((6, 0.9, 6 / 7, 6), (14, 0.9, 0.9, 14), (14, 0.5, 0.5, 8)):
        known, of = designs[:number], values[:number]
        answers = left_out(known, of)
        process, scores = answers.processes["head"], answers.quantities["head"].scores
        if number == 6:
            rest = gaussian_process(known[1:], of[1:, None])
            error, scatter = abs(rest(known[:1]) - of[0]), answers.quantities["head"].scatter
            expected = error / np.hypot(rest.deviation(known[:1]), scatter)
            assert scores[0] == pytest.approx(expected[0, 0], rel=1e-6)
        alone = float(process(at[None])[0, 0])
        width = np.sort(scores)[rank - 1] * process.deviation(at[None])[0, 0]
        # What fields add to an answer widens its band: nothing is known of their errors.
        for change in (0.0, 0.7):
            given = {"head": alone - change, "other": 1.0}
            found = banding.quantity_bands(answers, None, at, given, level=asked)
            band = found.pop("head")
            assert band.half_width == pytest.approx(width + change) and not found
            assert (band.kind, band.num_cases) == ("left out", number)
            assert band.level == pytest.approx(level)
    nothing = {"head": answers.quantities["head"].model_copy(update={"scores": ()})}
    without = answers.model_copy(update={"quantities": nothing})
    assert banding.quantity_bands(without, None, at, {"head": 1.0}) == {}
    assert banding.quantity_bands(answers, None, at, {"head": math.nan}) == {}
    assert banding.quantity_bands(Answers(), None, at, {"head": 1.0}) == {}
    assert banding.quantity_bands(answers, None, at + 2, {"head": 1.0}) == {}, "out of ranges"


def test_a_regression_that_knows_nothing_has_no_band_of_many_times_the_spread() -> None:
    widths = []
    for seed in range(12):  # a greatest speed that is the inlet's but for two designs of nine
        generator = np.random.default_rng(seed)
        designs, at = generator.uniform(-1, 1, (9, 2)), np.zeros(2)
        values = np.maximum(5.05 + 0.001 * designs[:, 0], 5.0 + 0.6 * designs.sum(axis=1))
        for band in banding.quantity_bands(
            left_out(designs, values), None, at, {"head": 5.1}
        ).values():
            widths.append(band.half_width / max(values.std(), 0.01))
    assert len(widths) == 12 and max(widths) < 5


@pytest.mark.parametrize("number", [6, 12])
def test_bands_of_few_cases_hold_as_often_as_they_say(number: int) -> None:
    generator, held = np.random.default_rng(1), []
    for _ in range(40):
        slopes, shift = generator.uniform(0.3, 1.5, 2), generator.uniform(-3, 3, 2)
        designs = generator.uniform(-1, 1, (number + 8, 2))
        values = np.sin(slopes * designs + shift).sum(axis=1) + 0.3 * designs.prod(axis=1)
        answers = left_out(designs[:number], values[:number])
        for at, true in zip(designs[number:], values[number:], strict=True):
            alone = float(answers.processes["head"](at[None])[0, 0])
            for band in banding.quantity_bands(answers, None, at, {"head": alone}).values():
                held.append(abs(alone - true) <= band.half_width)
    assert len(held) > 240, "few lie outside of the ranges"
    assert min(0.9, number / (number + 1)) - 0.05 <= np.mean(held)


def test_parameters_count_where_they_explain_the_errors() -> None:
    designs = np.linspace(-1, 1, 30)[:, None]
    noise = np.random.default_rng(0).exponential(size=30)
    degrees = [
        banding.fit_error_size(designs, noise * np.exp(slope * designs[:, 0])).degree
        for slope in (0.0, 0.8, 1.0)
    ]
    assert degrees == [0, 0, 1]


def test_ranges_reach_three_mean_gaps_beyond_the_designs() -> None:
    five = np.linspace(-0.2, 0.2, 5)[:, None]
    assert banding.shared_ranges(five, five)[0] == pytest.approx((-1 / 3, 1 / 3))  # of all ten
    assert banding.shared_ranges(five, five + 0.1)[0] == pytest.approx((-11 / 30, 14 / 30))
    wide = np.array([[-0.9], [0.9]])
    assert banding.shared_ranges(wide, wide)[0] == (-1.0, 1.0), "within the design space"
    assert banding.shared_ranges(wide * 5 / 3, wide * 5 / 3)[0] == (-1.5, 1.5), "as far as designs"
    assert banding.shared_ranges(np.zeros((3, 0)), np.zeros((2, 0))) == ()
    for place, number in ((0.5 + 9e-4, []), (-0.5 - 2e-3, [1]), (0.5 + 2e-3, [1])):
        assert banding.outside(((-1.0, 1.0), (-0.5, 0.5)), np.array([1.0, place])) == number


def test_a_corner_far_from_all_designs_is_remote_and_a_gap_between_them_is_not() -> None:
    six = np.linspace(-1, 1, 6)[:, None]
    for known in (six, six[1:], np.delete(six, 2, axis=0)):  # less one as the test case
        assert not any(banding.is_remote(known, np.array([at])) for at in np.linspace(-1, 1, 101))
    plane = [(-0.59, 0.33), (0.74, 0.76), (-0.49, -0.3), (-0.03, 0.66), (0.77, -0.15)]
    assert banding.is_remote(np.array(plane), np.array([1.0, -1.0]))
    assert not banding.is_remote(np.array(plane), np.array([0.2, 0.1]))


def test_designs_near_an_unsolved_one_are_counted() -> None:
    designs = np.random.default_rng(0).uniform(-1, 1, (80, 1))
    unsolved = designs[:, 0] > 0.5
    outcomes = Outcomes(designs=designs.tolist(), unsolved=unsolved.tolist())
    # Of ten designs near by, and two of the mean of all.
    for place, near in ((-0.5, 0), (0.9, 10)):
        expected = (near + 2 * unsolved.mean()) / 12
        assert outcomes.unsolved_near(np.array([place])) == pytest.approx(expected)
    few = Outcomes(designs=designs[:10].tolist(), unsolved=[True, *[False] * 9])  # of three
    assert few.unsolved_near(designs[0]) == pytest.approx((1 + 0.2) / 5)


def test_the_scale_finds_where_errors_are_and_how_they_grow() -> None:
    generator = np.random.default_rng(1)
    points = generator.uniform(0, 1, (3000, 2))
    predicted, grown = [], np.array([1, 2, 4])[:, None, None]
    for _ in range(3):
        step = np.tanh(40 * (points[:, :1] - generator.uniform(0.3, 0.7)))
        values = np.stack([step, step, step])  # a shear layer, over three steps
        shape = 0.02 + np.exp(-((step / 0.6) ** 4))
        errors = np.abs(generator.normal(size=values.shape)) * shape * grown
        predicted.append(banding.Predicted(points, values, errors))
    scale = banding.fit_scale(predicted)
    found = scale.at(points, predicted[0].values)
    assert found.mean() == pytest.approx(predicted[0].errors.mean(), rel=0.2)
    layer = np.abs(predicted[0].values[0, :, 0]) < 0.5
    assert found[0, layer].mean() > 5 * found[0, ~layer].mean()
    np.testing.assert_allclose(np.divide(scale.growth, scale.growth[0]), [1, 2, 4], rtol=0.1)
    assert scale.at(points, predicted[0].values[:1]).shape == (1, 3000, 1)
    assert banding.FieldScale.model_validate_json(scale.model_dump_json()) == scale


def test_the_worst_eighth_is_where_bands_fail() -> None:
    designs = np.random.default_rng(2).uniform(-1, 1, (400, 5))
    corner = (designs[:, [0, 2, 3]] > 0).all(axis=1)
    worst = worst_eighth(designs, np.where(corner, 2.0, 0.5))
    assert worst is not None and worst < 0.2  # over all it is 7/8
    assert worst_eighth(designs, np.full(400, 0.5)) == 1.0
    assert worst_eighth(designs[:30], np.full(30, 0.5)) is None
    line, failing = np.linspace(0, 1, 80)[:, None], np.where(np.arange(80) < 10, 2.0, 0.5)
    assert worst_eighth(np.hstack([np.ones((80, 1)), line]), failing) == 0.0
    assert worst_eighth(np.ones((80, 1)), failing) is None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train on ducts that pass for pipes, and add cases to calibrate and to test by."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("pipes")
    url, run = str(folder / "branched-pipe"), RunDirectory(folder / "run")
    designs = w.FAMILY.design_space.sample(128, "uniform", 1)
    shapes = w.SPACE.sample(128, "uniform", 1)
    noise = np.random.default_rng(5).normal(0, 0.01, len(designs))

    def add(numbers: range, split: str | None) -> None:
        cases: list[Any] = []
        for number in numbers:
            loss = designs[number]["inlet_velocity"] ** 2 * (1 + noise[number])
            figures = {"figures": {"pressure_loss": loss}}
            point = w.FAMILY.point(designs[number], w.SETTINGS)
            result = CaseResult(point, "accepted", split=split, provenance=figures)
            cases.append((result, w.duct(60, shapes[number], seed=number)))
        point = w.FAMILY.point(designs[numbers[-1] + 1], w.SETTINGS)
        cases.append((CaseResult(point, "rejected", "it swings"), None))
        publish_cases(url, Schema.of(w.FAMILY), cases)

    add(range(12), None)
    fit(w.tiny_steady(epochs=3), simgen.open_dataset(url), run)
    with pytest.raises(InputError, match="has 0 calibration cases, bands of 90% need 9"):
        calibrate(run.url)
    add(range(13, 53), "calibration")
    add(range(54, 126), "test")
    return folder


def test_a_calibrated_run_has_bands_that_hold_on_fresh_cases(folder: Path, tmp_path: Path) -> None:
    run = str(folder / "run")
    with pytest.raises(InputError, match="has no bands of these weights: courant calibrate"):
        measure_coverage(run)
    bands = calibrate(run)
    assert len(bands.cases) == 40 and list(bands.of_fields) == ["branch1_share"]
    answers = courant.load(run).answers
    assert [answers.source(name) for name in bands.solved] == [REGRESSION, FIELDS]
    errors = bands.errors(answers)["pressure_loss"]
    direct = answers.at(np.array(bands.designs), {})["pressure_loss"]
    np.testing.assert_allclose(errors, np.abs(direct - bands.solved["pressure_loss"]))
    assert list(bands.errors(answers, usable=False)) == ["pressure_loss"]
    found = measure_coverage(run)
    assert found.num_cases > 72 and set(found.bands) == {FIELD, "branch1_share", "pressure_loss"}
    regressed = found.bands.pop("pressure_loss")
    assert 0.9 * found.num_cases <= regressed.num_cases <= found.num_cases  # few train it
    assert 0.8 <= regressed.coverage <= 1
    assert regressed.error is not None and regressed.error < 0.05
    for score in found.bands.values():
        assert score.num_cases + len(found.without) == found.num_cases
        assert 0.8 <= score.coverage <= 1.0 and 1.0 <= score.width <= 4.5
    dataset = simgen.open_dataset(str(folder / "branched-pipe"))
    scores = measure_quantities(courant.load(run), dataset, dataset.cases("test"), answers)
    assert found.bands["branch1_share"].error == scores["quantities"]["branch1_share"].error
    assert len(found.without) <= 0.1 * found.num_cases
    narrow, usual = measure_coverage(run, level=0.5).bands[FIELD], found.bands[FIELD]
    assert narrow.coverage < usual.coverage and narrow.width < usual.width
    # Without calibration the bands of quantities that are regressed can be checked.
    shutil.copytree(run, other := tmp_path / "run")
    (other / BANDS).unlink()
    left_out = measure_coverage(str(other))
    assert "pressure_loss" in left_out.bands and FIELD not in left_out.bands
    score = left_out.bands["pressure_loss"]
    assert left_out.level == 0.9 and 40 < score.num_cases <= found.num_cases
    assert 0.6 <= score.coverage <= 1  # so few cases may give bands that are too narrow


def test_an_evaluation_has_the_answers_that_a_run_gives_by_now(
    folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder / "run", tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    surrogate, records = courant.load(run.url), [evaluate(run.url, s) for s in ("test", "train")]
    answers, dataset = surrogate.answers, surrogate.open_dataset()
    loss = answers.quantities["pressure_loss"]
    twice = loss.model_copy(update={"values": tuple(2 * (value or 0) for value in loss.values)})
    changed = {**answers.quantities, "pressure_loss": twice}
    surrogate.keep(answers.model_copy(update={"quantities": changed}))
    score_again(surrogate, dataset)
    for before in records:
        after, split = read_evaluation(run, before.split), before.split
        assert after is not None and after.cases == before.cases
        by = measure_quantities(surrogate, dataset, dataset.cases(split), surrogate.answers)
        assert after.quantities == by["quantities"] != before.quantities
        error = after.quantities["pressure_loss"].error
        assert error is not None and error > 0.5


def test_the_band_of_a_candidate_is_as_wide_as_the_regression_is_uncertain(folder: Path) -> None:
    bands, surrogate = calibrate(str(folder / "run")), courant.load(folder / "run")
    case = simgen.open_dataset(folder / "branched-pipe")[bands.cases[0]]
    process = surrogate.answers.processes["pressure_loss"]
    deviations = process.deviation(np.array(bands.designs))[:, 0]
    alone = process(np.array(bands.designs))[:, 0]
    scores = np.abs(alone - bands.solved["pressure_loss"]) / deviations
    expected = banding.conformal_quantile(scores, 0.9) * deviations[0]
    found = predicted(surrogate, case.id, dict(case.parameters))
    band = found.bands["pressure_loss"]
    assert band.half_width == pytest.approx(expected) and str(band) == "90% calibrated, 40 cases"
    assert found.predicted["pressure_loss"] == pytest.approx(alone[0])
    assert found.sources["pressure_loss"] == REGRESSION
    # Fields that are far off have no share in the answer, others keep theirs.
    shared = surrogate.answers.quantities["pressure_loss"].model_copy(update={"share": 0.5})
    answers = surrogate.answers.model_copy(update={"quantities": {"pressure_loss": shared}})
    for of_fields, share in (((1e4,) * 40, 0.0), (bands.solved["pressure_loss"], 0.5)):
        other = bands.model_copy(update={"of_fields": {"pressure_loss": of_fields}})
        assert other.chosen(answers).quantities["pressure_loss"].share == share
    few = other.model_copy(update={"solved": {"pressure_loss": (*alone[:8], *(None,) * 32)}})
    assert few.chosen(answers) == answers, "eight errors say nothing of 90 %"
    at, given = np.array(bands.designs[0]), {"pressure_loss": alone[0] + 2.0}

    def band_of(of: banding.Bands, level: float = 0.9) -> banding.QuantityBand:
        return banding.quantity_bands(surrogate.answers, of, at, given, True, level)[
            "pressure_loss"
        ]

    left = band_of(few)
    number = len(surrogate.answers.designs)
    assert (left.kind, left.num_cases, left.level) == ("left out", number, 0.9)
    some = (None, None, *bands.solved["pressure_loss"][2:])
    less = band_of(bands.model_copy(update={"solved": {"pressure_loss": some}}), 0.5)
    assert (less.num_cases, less.level) == (38, 0.5)
    assert less.half_width == pytest.approx(np.sort(scores[2:])[19] * deviations[0])


def test_where_no_band_holds_the_reason_is_given(folder: Path, tmp_path: Path) -> None:
    bands = calibrate(str(folder / "run"))
    surrogate = courant.load(folder / "run", device="cpu")
    dataset = simgen.open_dataset(folder / "branched-pipe")
    trained = simgen.open_dataset(folder / "branched-pipe", "v1")
    calibrated = scaled_designs(dataset, dataset.cases("calibration"))
    known = banding.shared_ranges(scaled_designs(trained, trained.cases("train")), calibrated)
    assert np.array(bands.ranges) == pytest.approx(np.array(known))
    case = dataset[dataset.cases("test")[0]]
    prepared = surrogate.prepare_case(case)
    values = surrogate.predict_prepared(prepared)

    def around(bands: banding.Bands | None, level: float = 0.9) -> banding.DesignBands:
        given = (prepared, values, case.points, case.parameters)
        return surrogate.bands_around(*given, level=level, bands=bands)

    def quantities(bands: Any, usable: bool = True) -> dict[str, banding.QuantityBand]:
        values = {"pressure_loss": 50.0, "branch1_share": 0.5}
        at = surrogate.scaled(case.parameters)
        return banding.quantity_bands(surrogate.answers, bands, at, values, usable)

    usual = around(bands)
    assert usual.no_field == "" and usual.field is not None
    assert usual.field.shape == values.shape and (usual.field > 0).all()
    files.write_prediction(surrogate.url, case.id, None, None, tmp_path / "case.npz", None)
    with np.load(tmp_path / "case.npz") as arrays:
        np.testing.assert_allclose(arrays[f"{surrogate.channels[0]}_band"], usual.field[:, 0])
    assert 0 < usual.unsolved < 0.2  # three of 127 designs
    wider = around(bands, 0.97)
    assert wider.field is not None and (wider.field >= usual.field).all()
    assert "needs 99 calibration cases" in around(bands, 0.99).no_field
    assert bands.reach is not None
    reach = bands.reach.model_copy(update={"limit": 1e-9})
    far = around(bands.model_copy(update={"reach": reach}))
    assert "latent state is" in far.no_field and far.field is None
    # The regression does not know of the latents.
    assert far.no_quantities == far.no_field and set(quantities(bands)) == set(bands.solved)
    assert quantities(bands, False) == {"pressure_loss": quantities(bands)["pressure_loss"]}

    place = float(surrogate.scaled(case.parameters)[1])  # of the aperture, 20 to 37 mm
    whole = (-1.0, 1.0)
    narrow = bands.model_copy(update={"ranges": (whole, (place + 0.1, 1.0), *3 * (whole,))})
    low, none = 28.5 + 8.5 * (place + 0.1), around(narrow)
    assert f" mm lies outside of {low:.4g} to 37 mm" in none.no_field
    assert none.field is None and quantities(narrow) == {}
    unguarded = narrow.model_copy(update={"reach": None, "ranges": ()})
    free = around(unguarded)
    assert free.no_field == "" and quantities(unguarded) and free.field is not None
    surrogate.bands = None
    assert around(None).no_field == "the run is not calibrated"
    assert [each.kind for each in quantities(None).values()] == ["left out"]
    designs = np.array(surrogate.answers.designs)
    middle = designs[:, 1].mean() + 0.1 * (designs - designs[:, 1].mean())
    surrogate.answers = surrogate.answers.model_copy(update={"designs": tuple(map(tuple, middle))})
    assert quantities(None) == {}, "outside of the regression's designs"
    assert " mm lies outside of " in around(None).no_field


@pytest.mark.openfoam
@pytest.mark.filterwarnings("ignore:.*outside the training domain")
def test_a_design_that_nobody_has_solved_has_bands(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bands = calibrate(str(folder / "run"))
    surrogate = courant.load(folder / "run", device="cpu")
    # Ducts are boxes of 60 cells: a real mesh is out of their reach, as it should be.
    refused = surrogate.predict_design(w.DESIGN).bands
    assert "farther from those of the training" in refused.no_field
    request = DesignRequest(parameters=w.DESIGN)

    grid = banding.GridError(order=2.0, low=0.1, high=0.2, num_designs=5, sizes=(5.0, 7.0))
    near = bands.model_copy(update={"reach": None, "grid": {"branch1_share": grid}})
    RunDirectory(folder / "run").write_json(BANDS, near.model_dump(mode="json"))
    surrogate = courant.load(folder / "run", device="cpu")
    found = surrogate.predict_design(w.DESIGN)
    assert found.bands.no_field == ""
    assert found.bands.field is not None and found.bands.field.shape == found.values.shape
    share = found.quantities["branch1_share"]
    assert found.fine["branch1_share"] == pytest.approx(sorted((1.1 * share, 1.2 * share)))
    files.predict_to_files(str(folder / "run"), w.DESIGN, tmp_path / "pipe.vtu")
    written = meshio.read(tmp_path / "pipe.vtu")
    assert (np.concatenate(written.cell_data["velocity.x_band"]) > 0).all()
    printed = capsys.readouterr().out
    assert list(found.fine) == ["branch1_share"]  # no mesh was studied for the pressure loss
    assert found.sources == {"branch1_share": FIELDS, "pressure_loss": REGRESSION}
    assert f"{found.quantities['pressure_loss']:.4g}" in printed and REGRESSION in printed
    for band in found.bands.quantities.values():
        assert f"+- {pages.number(band.half_width, 2)}" in printed and str(band) in printed
    chosen = predicted(surrogate, "a", dict(w.DESIGN))
    assert chosen.predicted == found.quantities and chosen.bands == found.bands.quantities
    answer = Explored(surrogate, Limits()).design(request)
    np.testing.assert_allclose(answer.bands.values, found.bands.field, rtol=1e-3)
    assert answer.sources == found.sources and answer.bands.quantities == found.bands.quantities


SIZES = np.array([3.5, 5.0, 7.0])


def test_order_and_converged_values_of_exact_data_are_recovered() -> None:
    fine = np.array([10.0, 20.0, -4.0, 7.0])
    values = fine[:, None] * (1 - 0.004 * SIZES**2)
    found = banding.fit_grid_error(SIZES, values, 7.0)
    assert found.order == pytest.approx(2.0, abs=0.06)
    for true, ends in zip(fine, map(found.fine, values[:, -1].tolist()), strict=True):
        assert sorted(ends) == pytest.approx([true, true], rel=0.01)


@pytest.mark.parametrize(
    ("sizes", "order", "noise"), [((5.0, 7.0), 1.6, 0.005), ((3.5, 5.0, 7.0), 1.0, 0.01)]
)
def test_an_order_that_is_known_badly_makes_the_interval_wider(
    sizes: tuple[float, ...], order: float, noise: float
) -> None:
    """Designs whose mesh takes 18 % off, give or take 3, of an order that the fit has to find."""
    generator, held = np.random.default_rng(1), []
    for _ in range(200):
        shares = generator.normal(0.18, 0.03, 6) / 7.0**order
        fine = generator.uniform(5, 20, 6)
        values = fine[:, None] * (1 - shares[:, None] * np.array(sizes) ** order)
        values = values * (1 + noise * generator.normal(size=values.shape))
        found = banding.fit_grid_error(np.array(sizes), values[:5], 7.0)
        low, high = found.fine(float(values[5, -1]))
        held.append(low <= fine[5] <= high)
    assert np.mean(held) >= 0.85


def test_two_sizes_are_taken_with_usual_orders_and_fewer_are_refused() -> None:
    values = np.array([[10.0, 9.0], [8.0, 7.3], [5.0, 4.6]])
    found = banding.fit_grid_error(SIZES[1:], values, 7.0)
    assert found.order == 1.0
    ends = []
    for order in banding.USUAL_ORDERS:
        first, second = SIZES[1:] ** order
        slopes = (values[:, 1] - values[:, 0]) / (second - first)
        fine, here = values[:, 0] - slopes * first, values[:, 0] + slopes * (7.0**order - first)
        shares = (fine - here) / here
        reach = stdtrit(2, 0.95) * shares.std(ddof=1) * np.sqrt(1 + 1 / 3)
        ends += [shares.mean() - reach, shares.mean() + reach]
    assert (found.low, found.high) == pytest.approx((min(ends), max(ends)))
    with pytest.raises(InputError, match="needs 3 designs solved with two mesh sizes"):
        banding.fit_grid_error(SIZES[1:], values[:2], 7.0)
    values[0, 1] = 0.5  # a twentieth of that on the other mesh
    with pytest.raises(InputError, match="nearly zero"):
        banding.fit_grid_error(SIZES[1:], values, 7.0)


def study(folder: Path, sizes: list[float], share: float = 0.5, **other: float) -> Dataset:
    """Write designs on meshes of several sizes; quantities converge with the second order."""
    url, cases = str(folder / "branched-pipe"), []
    shapes = w.SPACE.sample(4, "sobol", 1)
    for number, design in enumerate(w.FAMILY.design_space.sample(4, "sobol", 1)):
        for size in sizes:
            point = w.FAMILY.point(design, w.FAMILY.settings("trial", {"mesh_size": size, **other}))
            loss = (number + 1) * (1 - 0.004 * size**2)
            figures = {"pressure_loss": loss, "branch1_share": share, "peak_speed": 9 - 0.1 * size}
            result = CaseResult(point, "accepted", provenance={"figures": figures})
            cases.append((result, w.duct(60, shapes[number], seed=number)))
    return simgen.open_dataset(publish_cases(url, Schema.of(w.FAMILY), cases))


def test_a_dataset_of_designs_on_several_meshes_has_the_error(tmp_path: Path) -> None:
    settings, sizes = w.FAMILY.settings("trial"), [7.0, 5.0, 3.5]
    found, without = grid_errors(study(tmp_path, sizes), settings)
    assert without == {}
    assert set(found) == {"pressure_loss", "branch1_share", "peak_speed"}
    low, high = found["pressure_loss"].fine(1 - 0.004 * 49)
    assert low <= 1.0 <= high and high - low < 0.02
    assert found["branch1_share"].fine(0.5) == pytest.approx((0.5, 0.5))
    with pytest.raises(InputError, match="has no case of the training's mesh_size, 6"):
        grid_errors(simgen.open_dataset(tmp_path / "branched-pipe"), {**settings, "mesh_size": 6.0})
    found, without = grid_errors(study(tmp_path / "zero", sizes, share=0.0), settings)
    assert set(found) == {"pressure_loss", "peak_speed"}
    assert list(without) == ["branch1_share"] and "nearly zero" in without["branch1_share"]
    with pytest.raises(InputError, match="in other settings"):
        grid_errors(study(tmp_path / "other", [7.0, 5.0], max_iterations=900.0), settings)


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    folder = tmp_path_factory.mktemp("bands")
    url = w.publish_waves(str(folder / "cylinder-flow"))
    run = RunDirectory(folder / "run")
    fit(w.tiny_experiment(epochs=1), simgen.open_dataset(url), run)
    for split, radii in (("calibration", np.linspace(1.2, 1.8, 12)), ("test", (1.33, 1.51, 1.62))):
        cases: list[Any] = []
        for number, radius in enumerate(map(float, radii)):
            # Numbers of designs are quarters of the radius.
            result = CaseResult(w.design_point(4 * radius - 4), "accepted", split=split)
            cases.append((result, w.travelling_wave(40, 0.4 * radius - 0.2, number)))
        publish_cases(url, Schema.of(get_family("cylinder-flow")), cases)
    calibrate(run.url)
    return run


def test_windows_and_whole_rollouts_have_bands_apart(
    calibrated: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = {"strouhal": 0.3}, {"strouhal": 0.4}
    monkeypatch.setattr(coverage, "solved_and_predicted", lambda *case: pair)
    bands = courant.load(calibrated.url).bands
    assert bands is not None and bands.rollout is not None
    known = [{"strouhal": (value,) * len(bands.cases)} for value in (0.3, 0.4)]

    def measured(**changed: Any) -> coverage.Coverage:
        named = dict(zip(("solved", "of_fields"), known, strict=True))
        other = bands.model_copy(update={**named, **changed})
        calibrated.write_json(BANDS, other.model_dump(mode="json"))
        return measure_coverage(calibrated.url)

    assert set(measured().bands) == {FIELD, "strouhal"}
    longer = bands.rollout.model_copy(update={"steps": bands.rollout.steps + 1})
    assert set(measured(rollout=longer).bands) == {FIELD}
    one_step = bands.field.scale.model_copy(update={"growth": (1.0,)})
    found = measured(field=bands.field.model_copy(update={"scale": one_step}))
    assert set(found.bands) == {"strouhal"} and len(found.without) == found.num_cases


def test_states_of_a_fast_flow_are_distinct(calibrated: RunDirectory) -> None:
    channels = courant.load(calibrated.url).normaliser.channels
    cloud = w.travelling_wave(5, 0.2, 0)
    fast = type(cloud)(**{**vars(cloud), "time": cloud.time * 8e-7})
    np.testing.assert_array_equal(
        solved_state(channels, fast, 8e-7 * 4), cloud.fields["velocity"][3]
    )
    with pytest.raises(InputError, match="stores no state"):
        solved_state(channels, fast, 8e-7 * 1.5)
