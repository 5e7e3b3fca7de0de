"""Figures of several runs: the page of a sweep, and what legibility costs."""

import itertools
from pathlib import Path

import pytest

from courant.analysis.comparison import RunComparison, ScoreRow
from courant.evaluation.ledger import Interval
from courant.recipes import get_recipe
from courant.report.comparison import draw_trade_off, sweep_line, write_sweep_page
from courant.runs.directory import RunDirectory
from courant.sweeps.search_space import load_space, shipped_spaces
from courant.sweeps.sweep import Sweep, Trial, TrialResult
from courant.training.train import TrainingError


def sweep_with_results(name: str, folder: Path) -> tuple[Sweep, list[TrialResult]]:
    baseline = get_recipe("cylinder-flow-demo")
    space, left_out = load_space(name).applied_to(baseline)
    settings = list(itertools.islice(space.settings(baseline, 42), space.count(baseline)))
    trials = tuple(
        Trial(number, setting, baseline, RunDirectory(folder / f"trial-{number}"))
        for number, setting in enumerate(settings, 1)
    )
    states = itertools.cycle(["finished", "stopped", "failed"])
    results = [
        TrialResult(
            trial.number,
            state,
            None if state == "failed" else 0.1 + 0.01 * trial.number,
            best_epoch=3,
            epochs=5,
            seconds=1.0,
            seed=42,
            setting=trial.setting,
            run=trial.run.url,
        )
        for trial, state in zip(trials, states, strict=False)
    ]
    url = "store/cylinder-flow"
    return Sweep(RunDirectory(folder), space, left_out, baseline, url, "v1", 42, trials), results


@pytest.mark.parametrize("name", shipped_spaces())
def test_a_shipped_space_gives_a_page_with_every_trial_and_its_figure(
    name: str, tmp_path: Path
) -> None:
    sweep, results = sweep_with_results(name, tmp_path)
    page = Path(write_sweep_page(sweep, results)).read_text()
    assert all(f"<td>trial-{result.number}</td>" in page for result in results)
    assert "validation NMAE 0.110" in page
    assert page.count('src="data:image/webp;base64,') == 1
    assert (tmp_path / "hyperparameters.png").stat().st_size > 5000
    assert write_sweep_page(sweep, results[:1]), "one trial is enough"
    assert "100% of what all trials to their end" in sweep_line(sweep, results[:1]), "5 epochs fit"
    with pytest.raises(TrainingError):
        write_sweep_page(sweep, results[2:3])
    if name == "features":
        assert ">No distance field</td>" in page
        assert "No global data does not apply to cylinder-flow-demo: it is so already." in page


def row(label: str, family: str = "", **scores: float) -> ScoreRow:
    known = {key: Interval.of([value]) for key, value in scores.items()}
    return ScoreRow(label, (f"runs/{label}",), known, family)


def test_every_score_with_an_aim_has_an_axis_on_which_the_aim_is_seen() -> None:
    plain = row("plain", nmae=0.20, anchor_distance=2.0, own_anchor_nearest=0.0, gini=0.5)
    windows = row("windows", nmae=0.21, anchor_distance=0.6, own_anchor_nearest=0.2)
    figure = draw_trade_off(RunComparison((plain, windows)))
    assert figure is not None
    axes = [axis for axis in figure.axes if axis.get_visible()]
    names = [axis.get_xlabel().partition("\n")[0] for axis in axes]
    assert names == ["anchor to centroid / spacing", "own anchor is nearest"]
    for axis, aim in zip(axes, (0.4, 0.6), strict=True):
        low, high = axis.get_xlim()
        assert low < aim < high
        bottom, top = axis.get_ylim()
        assert bottom < 1 < 1.02 < 1.05 < top
        (corner,) = [each.get_paths()[0].get_extents() for each in axis.collections[-1:]]
        assert corner.ymax == pytest.approx(1.02)
        assert aim in (pytest.approx(corner.xmin), pytest.approx(corner.xmax))
    (legend,) = figure.legends
    assert [each.get_text() for each in legend.get_texts()] == ["plain (1)", "windows (1)"]
