"""The page of a sweep: table, figures and the best setting in one folder, nothing loaded from elsewhere."""

from __future__ import annotations

import io
from collections.abc import Sequence
from importlib.resources import files

import jinja2
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from courant.evaluation.sweep_figures import hyperparameters, parallel_coordinates
from courant.run_directory import RunDirectory
from courant.training.search_space import describe
from courant.training.sweep import Sweep, TrialResult, best_trial

PAGE = "index.html"
HYPERPARAMETERS = "hyperparameters.png"
PARALLEL = "parallel_coordinates.png"
DPI = 110


def write_sweep_page(sweep: Sweep, results: Sequence[TrialResult]) -> str:
    """index.html and its figures in the sweep's folder; returns the page's URL.

    Raises TrainingError where no trial was validated.
    """
    best = best_trial(results)
    keys, isolated = list(sweep.baseline), sweep.space.design == "isolated"
    _save(sweep.folder, HYPERPARAMETERS, hyperparameters(results, sweep.baseline, isolated))
    _save(sweep.folder, PARALLEL, parallel_coordinates(results, keys))
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string((files("courant.evaluation") / "sweep.html.j2").read_text())
    page = template.render(
        sweep=sweep,
        keys=keys,
        isolated=isolated,
        ranked=sorted(results, key=lambda result: (result.nmae is None, result.nmae, result.number)),
        best=best,
        verdict=verdict(sweep, results),
    )
    sweep.folder.write_bytes(PAGE, page.encode())
    return f"{sweep.folder.url}/{PAGE}"


def verdict(sweep: Sweep, results: Sequence[TrialResult]) -> str:
    """The sweep in two sentences."""
    best, spent = best_trial(results), sum(result.epochs for result in results)
    counts = [
        f"{sum(result.state == state for result in results)} {state}" for state in ("finished", "stopped", "failed")
    ]
    share = spent / sweep.epochs_to_the_end
    return (
        f"Best of {len(results)} trials ({', '.join(count for count in counts if not count.startswith('0 '))}): "
        f"validation NMAE {best.nmae:.3f} with {describe(best.setting)}. "
        f"{spent} epochs were trained, {share:.0%} of what all trials to their end would take."
    )


def _save(folder: RunDirectory, name: str, figure: Figure) -> None:
    buffer = io.BytesIO()
    FigureCanvasAgg(figure)
    figure.savefig(buffer, format="png", dpi=DPI)
    folder.write_bytes(name, buffer.getvalue())
