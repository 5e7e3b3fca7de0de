"""Write the page of a sweep: figures, a table of trials and the best setting in one folder."""

from __future__ import annotations

from collections.abc import Sequence

from courant.report.page import render_page, write_panel
from courant.report.panel import Cell, Column, Panel, PanelFigure, Table
from courant.report.sweep_figures import hyperparameters, parallel_coordinates
from courant.sweeps.search_space import describe, label, show
from courant.sweeps.sweep import Sweep, TrialResult, best_trial

PAGE = "index.html"
HYPERPARAMETERS = "hyperparameters.png"
PARALLEL = "parallel_coordinates.png"


def write_sweep_page(sweep: Sweep, results: Sequence[TrialResult]) -> str:
    """Write index.html and its figures into the sweep's folder; return the page's URL.

    Raises TrainingError where no trial was validated.
    """
    line = verdict(sweep, results)
    panels = (
        _hyperparameters(sweep, results),
        _together(sweep, results),
        _trials(sweep, results),
        _next_steps(sweep, results),
    )
    drawn: dict[str, bytes] = {}
    for panel in panels:
        write_panel(sweep.folder, panel, drawn)
    epochs = sweep.experiment.training.epochs
    meta = (
        sweep.space.about,
        f"dataset {sweep.dataset_url} {sweep.version}",
        f"{len(results)} trials of up to {epochs} epochs",
    )
    title = f"Sweep {sweep.space.name} of {sweep.experiment.name}"
    page = render_page(title, [words for words in meta if words], line, panels, drawn)
    sweep.folder.write_bytes(PAGE, page.encode())
    return f"{sweep.folder.url}/{PAGE}"


def verdict(sweep: Sweep, results: Sequence[TrialResult]) -> str:
    """Summarise the sweep in two sentences."""
    best, spent = best_trial(results), sum(result.epochs for result in results)
    states = [result.state for result in results]
    ended = [
        f"{states.count(state)} {state}"
        for state in ("finished", "stopped", "failed")
        if state in states
    ]
    share = spent / sweep.epochs_to_the_end
    return (
        f"Best of {len(results)} trials ({', '.join(ended)}): "
        f"validation NMAE {best.nmae:.3f} with {describe(best.setting)}. "
        f"{spent} epochs were trained, {share:.0%} of what all trials to their end would take."
    )


def _hyperparameters(sweep: Sweep, results: Sequence[TrialResult]) -> Panel:
    isolated = sweep.space.design == "isolated"
    varied = (
        "Each panel varies one hyperparameter and holds the others at the baseline (dashed)."
        if isolated
        else "Each panel shows all trials, whatever their other values; the baseline is dashed."
    )
    caption = (
        f"Validation NMAE of the weights that each trial keeps. {varied} "
        "Hollow: stopped early, so its error would have fallen further."
    )
    figure = hyperparameters(results, sweep.baseline, isolated)
    shown = PanelFigure(
        HYPERPARAMETERS,
        figure,
        caption,
        look_for="A setting matters where the error changes along its axis more than it scatters.",
        score=_best(results),
    )
    return Panel("hyperparameters", "Each hyperparameter", (shown,))


def _best(results: Sequence[TrialResult]) -> str:
    return f"Lowest validation NMAE {best_trial(results).nmae:.3f}"


def _together(sweep: Sweep, results: Sequence[TrialResult]) -> Panel:
    caption = (
        "One line per trial, darker for a lower error; the best in orange, trials that were stopped"
        " early dotted."
    )
    figure = parallel_coordinates(results, list(sweep.baseline))
    shown = PanelFigure(
        PARALLEL,
        figure,
        caption,
        look_for="Dark lines that run together show the settings that good trials share.",
        score=_best(results),
    )
    return Panel("together", "Together", (shown,))


def _trials(sweep: Sweep, results: Sequence[TrialResult]) -> Panel:
    best, keys = best_trial(results), list(sweep.baseline)
    names = (
        "trial",
        *(label(key) for key in keys),
        *("seed", "NMAE", "best epoch", "epochs", "seconds"),
    )
    columns = (
        *map(Column, names),
        Column("state", is_number=False),
        Column("run", is_number=False),
    )
    ranked = sorted(results, key=lambda each: (each.nmae is None, each.nmae, each.number))
    rows = tuple(_row(result, keys, result.number == best.number) for result in ranked)
    note = (
        "The same as trials.csv and trials.json beside this page. One seed says little about small "
        "differences: ask for more trials than there are settings, and each is tried again with "
        "the next seed."
    )
    note = " ".join([note, *(f"{line}." for line in sweep.left_out)])
    return Panel("trials", "Trials, best first", tables=(Table(columns, rows),), note=note)


def _row(result: TrialResult, keys: Sequence[str], is_best: bool) -> tuple[Cell, ...]:
    ended = f"{result.state}: {result.reason}" if result.reason else result.state
    nmae = "–" if result.nmae is None else f"{result.nmae:.4f}"
    return (
        Cell(str(result.number)),
        *(Cell(show(result.setting[key])) for key in keys),
        Cell(str(result.seed)),
        Cell(nmae, "good" if is_best else ""),
        Cell("–" if result.best_epoch is None else str(result.best_epoch)),
        Cell(str(result.epochs)),
        Cell(f"{result.seconds:.0f}"),
        Cell(ended, "bad" if result.state == "failed" else ""),
        Cell(result.run.rsplit("/", 1)[-1]),
    )


def _next_steps(sweep: Sweep, results: Sequence[TrialResult]) -> Panel:
    lines = (
        (
            f"courant train {sweep.dataset_url} --version {sweep.version} --experiment"
            f" {sweep.folder.url}/best.json"
        ),
        f"tensorboard --logdir {sweep.folder.url}/ray",
        "",
        "import courant",
        f'surrogate = courant.load("{best_trial(results).run}")',
    )
    return Panel("next_steps", "Go on", code="\n".join(lines))
