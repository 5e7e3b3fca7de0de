"""The page of a sweep, from the results of trials that need not be trained for it."""

import itertools
from pathlib import Path

import pytest

from courant.recipes import get_recipe
from courant.report.sweep_page import write_sweep_page
from courant.runs.directory import RunDirectory
from courant.sweeps.search_space import load_space, shipped_spaces
from courant.sweeps.sweep import Sweep, Trial, TrialResult
from courant.training.loop import TrainingError


def sweep_with_results(name: str, folder: Path) -> tuple[Sweep, list[TrialResult]]:
    space, baseline = load_space(name), get_recipe("cylinder-flow-demo")
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
    return Sweep(RunDirectory(folder), space, space, baseline, url, "v1", 42, trials), results


@pytest.mark.parametrize("name", shipped_spaces())
def test_a_shipped_space_gives_a_page_with_every_trial_and_both_figures(
    name: str, tmp_path: Path
) -> None:
    sweep, results = sweep_with_results(name, tmp_path)
    page = Path(write_sweep_page(sweep, results)).read_text()
    assert all(f"<td>trial-{result.number}</td>" in page for result in results)
    assert "validation NMAE 0.110" in page
    assert page.count('src="data:image/webp;base64,') == 2
    for figure in ("hyperparameters.png", "parallel_coordinates.png"):
        assert (tmp_path / figure).stat().st_size > 5000


def test_the_page_names_choices_and_says_which_do_not_apply(tmp_path: Path) -> None:
    sweep, results = sweep_with_results("features", tmp_path)
    page = Path(write_sweep_page(sweep, results)).read_text()
    assert ">No distance field</td>" in page
    assert "No global data does not apply to cylinder-flow-demo: it is so already." in page


def test_one_trial_is_enough_for_a_page_and_none_is_an_error(tmp_path: Path) -> None:
    sweep, results = sweep_with_results("anchors", tmp_path)
    assert write_sweep_page(sweep, results[:1])
    with pytest.raises(TrainingError, match="no trial of the sweep came to a validation"):
        write_sweep_page(sweep, results[2:3])
