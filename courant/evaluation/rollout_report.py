"""The report's part on a transient model: truth and prediction at the last step, error growth, decomposition."""

from __future__ import annotations

from typing import Any

import numpy as np

from courant.data.trajectories import read_states
from courant.evaluation import figures
from courant.evaluation.references import MODEL, PERSISTENCE, TRAINING_MEAN
from courant.evaluation.report_folder import ShownCase, choose_cases, save_figure
from courant.run_directory import RunDirectory
from courant.surrogate import Surrogate
from simgen.field_plots import layer
from simgen.store.reader import Dataset

TEMPLATE = "rollout_report.html.j2"
MAIN_FIGURE = "error_growth.png"


def draw_rollouts(
    folder: RunDirectory, surrogate: Surrogate, dataset: Dataset, evaluation: dict[str, Any]
) -> dict[str, Any]:
    """Write the figures; what the template wants to know of them."""
    shown = _draw_predictions(folder, surrogate, dataset, evaluation)
    residual = _draw_decomposition(folder, surrogate, dataset, shown[0])
    save_figure(folder, MAIN_FIGURE, figures.error_growth(evaluation))
    return {"shown": shown, "residual": residual}


def rollout_summary(evaluation: dict[str, Any]) -> str:
    """The verdict in one or two sentences, from the numbers."""
    overall = {name: evaluation["overall"][name]["nmae"] for name in (MODEL, PERSISTENCE, TRAINING_MEAN)}
    gain = 1 - overall[MODEL] / overall[TRAINING_MEAN]
    against = evaluation["beats"][PERSISTENCE]
    wins = [step for step, beaten in enumerate(against, start=1) if beaten]
    losses = [step for step, beaten in enumerate(against, start=1) if not beaten]
    mean = f"{abs(gain):.0%} {'below' if gain > 0 else 'above'} the training mean's {overall[TRAINING_MEAN]:.3f}"
    line = f"NMAE {overall[MODEL]:.3f} on the {evaluation['split']} split, {mean}; persistence has {overall[PERSISTENCE]:.3f}. "
    if not losses:
        return line + "The model beats persistence at every rollout step."
    if not wins:
        return line + "It does not beat persistence at any rollout step yet."
    return line + f"It beats persistence at steps {_ranges(wins)}, and not yet at {_ranges(losses)}."


def _ranges(steps: list[int]) -> str:
    """[1, 2, 3, 7] -> "1-3 and 7"."""
    runs: list[list[int]] = []
    for step in steps:
        if runs and step == runs[-1][-1] + 1:
            runs[-1].append(step)
        else:
            runs.append([step])
    words = [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _draw_predictions(
    folder: RunDirectory, surrogate: Surrogate, dataset: Dataset, evaluation: dict[str, Any]
) -> list[ShownCase]:
    """Truth, prediction and error at the last step: the case of median error, and the one of largest."""
    shown = []
    data = surrogate.experiment.data
    for label, name in choose_cases(evaluation).items():
        case = dataset[name]
        times = np.asarray(case.time)
        start = float(times[-1] - data.window_steps * data.step_s)
        end = float(surrogate.times(start)[-1])
        frame = surrogate.snapshot(case, end)
        truth = read_states(case, surrogate.normaliser.channels, slice(frame, frame + 1))[0]
        predicted = surrogate.predict_case(case, start_s=start)[-1]
        figure = f"prediction_{label.replace(' ', '_')}.png"
        save_figure(folder, figure, figures.prediction(case, truth, predicted, surrogate.normaliser.channels))
        shown.append(ShownCase(name, label, figure, evaluation["cases"][name][MODEL]["nmae"], start, end))
    return shown


def _draw_decomposition(folder: RunDirectory, surrogate: Surrogate, dataset: Dataset, shown: ShownCase) -> float:
    """The figure of the largest contributions; returns how far u_0 and all contributions are from the prediction, relatively."""
    case = dataset[shown.case]
    parts = surrogate.decompose_case(case, start_s=shown.start_s)
    whole = surrogate.predict_case(case, start_s=shown.start_s)
    contributions = np.linalg.norm(parts.contributions[-1], axis=-1)
    figure = figures.decomposition(layer(case), contributions, parts.anchors, figures.largest(contributions), "m/s")
    save_figure(folder, "decomposition.png", figure)
    summed = parts.offset + parts.contributions.sum(axis=1)
    return float(np.abs(summed - whole).max() / np.abs(whole).max())
