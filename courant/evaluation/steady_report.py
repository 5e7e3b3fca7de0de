"""The report's part on a steady model: truth and prediction, errors by case and parameter, parity, decomposition."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from courant.data.steady import read_solution
from courant.evaluation import figures, steady_figures
from courant.evaluation.references import MODEL, NEAREST_DESIGN, TRAINING_MEAN
from courant.evaluation.report_folder import ShownCase, choose_cases, save_figure
from courant.evaluation.steady_errors import PREDICTORS
from courant.run_directory import RunDirectory
from courant.steady_surrogate import SteadySurrogate
from simgen.field_plots import layer
from simgen.store.reader import Dataset

TEMPLATE = "steady_report.html.j2"
MAIN_FIGURE = "errors_by_case.png"
PARITY_POINTS = 5_000
"""Of each case, drawn at random"""


def draw_cases(
    folder: RunDirectory, surrogate: SteadySurrogate, dataset: Dataset, evaluation: dict[str, Any]
) -> dict[str, Any]:
    """Write the figures; what the template wants to know of them."""
    channels, parameters = surrogate.normaliser.channels, dataset.schema.parameters
    shown = []
    for label, name in choose_cases(evaluation).items():
        case, figure = dataset[name], f"prediction_{label.replace(' ', '_')}.png"
        truth, predicted = read_solution(case, surrogate.normaliser), surrogate.predict_case(case)
        save_figure(folder, figure, figures.prediction(case, truth, predicted, channels))
        shown.append(ShownCase(name, label, figure, evaluation["cases"][name][MODEL]["nmae"]))
    designs = {case: dataset[case].parameters for case in {*dataset.cases("train"), *evaluation["cases"]}}
    save_figure(folder, MAIN_FIGURE, steady_figures.errors_by_case(evaluation, PREDICTORS))
    save_figure(folder, "errors_by_parameter.png", steady_figures.errors_by_parameter(evaluation, parameters, designs))
    truth, predicted = _pairs(surrogate, dataset, list(evaluation["cases"]))
    save_figure(folder, "parity.png", steady_figures.parity(truth, predicted, channels))
    return {
        "shown": shown,
        "plane": layer(dataset[shown[0].case]).plane,
        "residual": _draw_decomposition(folder, surrogate, dataset, shown[0].case),
    }


def steady_summary(evaluation: dict[str, Any]) -> str:
    """The verdict in one or two sentences, from the numbers."""
    overall = {name: evaluation["overall"][name]["nmae"] for name in PREDICTORS}
    cases = evaluation["cases"].values()
    better = sum(case[MODEL]["nmae"] < case[NEAREST_DESIGN]["nmae"] for case in cases)
    line = (
        f"NMAE {overall[MODEL]:.3f} on the {evaluation['split']} split; the nearest design's field has {overall[NEAREST_DESIGN]:.3f}, "
        f"the training mean {overall[TRAINING_MEAN]:.3f}. "
    )
    return line + f"The model is better than the nearest design on {better} of {len(cases)} cases."


def _pairs(surrogate: SteadySurrogate, dataset: Dataset, cases: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """True and predicted values (n, C) at random points of the cases."""
    generator = np.random.default_rng(0)
    truth, predicted = [], []
    for name in cases:
        case = dataset[name]
        chosen = generator.permutation(case.num_points)[:PARITY_POINTS]
        truth.append(read_solution(case, surrogate.normaliser)[chosen])
        predicted.append(surrogate.predict_case(case)[chosen])
    return np.concatenate(truth), np.concatenate(predicted)


def _draw_decomposition(folder: RunDirectory, surrogate: SteadySurrogate, dataset: Dataset, name: str) -> float:
    """The figure of the largest contributions in the plane; returns how far u_0 and all contributions are from the prediction, relatively."""
    case, channels = dataset[name], surrogate.normaliser.channels
    triangles = layer(case)
    cells, corners = np.unique(triangles.cell, return_inverse=True)
    parts = surrogate.decompose_case(case, cells)
    columns = [number for number, channel in enumerate(channels) if channel.field == channels[0].field]
    contributions = np.linalg.norm(parts.contributions[..., columns], axis=-1)  # (L, cells)
    figure = figures.decomposition(
        replace(triangles, cell=corners), contributions, parts.anchors, figures.largest(contributions), channels[0].unit
    )
    save_figure(folder, "decomposition.png", figure)
    whole = surrogate.predict_case(case)[cells]
    summed = parts.offset + parts.contributions.sum(axis=0)
    return float((np.abs(summed - whole).max(axis=0) / np.abs(whole).max(axis=0)).max())
