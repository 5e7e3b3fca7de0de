"""The report of a trained run: one folder with index.html and its figures, nothing loaded from elsewhere."""

from __future__ import annotations

import io
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import jinja2
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import simgen
from courant.data.trajectories import read_states
from courant.evaluation import figures
from courant.evaluation.evaluate import MODEL, evaluate, read_evaluation
from courant.evaluation.metrics import ALL
from courant.evaluation.references import PERSISTENCE, TRAINING_MEAN
from courant.run_directory import RunDirectory
from courant.surrogate import Surrogate, load
from courant.training.record import read_records
from simgen import dataset_figures
from simgen.store.reader import Dataset

PAGE = "index.html"
INPUTS = "report.json"
NUM_THUMBNAILS = 12
DPI = 110


@dataclass(frozen=True)
class ShownCase:
    """A case whose prediction is drawn."""

    case: str
    label: str
    figure: str
    start_s: float
    end_s: float
    nmae: float


def write_report(run_url: str, out: str) -> str:
    """Write the report's folder (a path or s3:// URL); returns the page's URL. Unchanged inputs are not drawn again."""
    run, folder = RunDirectory(run_url), RunDirectory(out)
    evaluation = read_evaluation(run) or evaluate(run_url)
    inputs = {"run": run.url, "fingerprint": evaluation["fingerprint"], "generator": 1}
    page = f"{folder.url.rstrip('/')}/{PAGE}"
    if folder.exists(INPUTS) and folder.exists(PAGE) and folder.read_json(INPUTS) == inputs:
        return page
    surrogate = load(run_url)
    dataset = simgen.open_dataset(surrogate.dataset["url"], surrogate.dataset["version"])
    shown = _draw_predictions(folder, surrogate, dataset, evaluation)
    residual = _draw_decomposition(folder, surrogate, dataset, shown[0])
    accepted = [dataset[case] for case in dataset.cases()]
    _save(folder, "designs.png", dataset_figures.designs(dataset))
    _save(
        folder,
        "cases.png",
        dataset_figures.sample_cases(accepted[:NUM_THUMBNAILS], surrogate.normaliser.channels[0].field),
    )
    _save(folder, "mesh.png", figures.mesh(dataset[shown[0].case]))
    _save(folder, "error_growth.png", figures.error_growth(evaluation))
    records = read_records(run)
    _save(folder, "loss_curves.png", figures.loss_curves(records))
    folder.write_bytes(PAGE, _page(run, surrogate, dataset, evaluation, shown, residual).encode())
    folder.write_json(INPUTS, inputs)
    return page


def summary_line(evaluation: dict[str, Any]) -> str:
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
    by_error = sorted(evaluation["cases"], key=lambda case: evaluation["cases"][case][MODEL]["nmae"])
    chosen = {"median error": by_error[len(by_error) // 2], "largest error": by_error[-1]}
    if len(by_error) < 3:
        chosen = {f"{evaluation['split']} case": by_error[-1]}
    shown = []
    data = surrogate.experiment.data
    for label, name in chosen.items():
        case = dataset[name]
        times = np.asarray(case.time)
        start = float(times[-1] - data.window_steps * data.step_s)
        end = float(surrogate.times(start)[-1])
        frame = surrogate.snapshot(case, end)
        truth = read_states(case, surrogate.normaliser.channels, slice(frame, frame + 1))[0]
        predicted = surrogate.predict_case(case, start_s=start)[-1]
        figure = f"prediction_{label.replace(' ', '_')}.png"
        _save(folder, figure, figures.prediction(case, truth, predicted, surrogate.normaliser.channels))
        shown.append(ShownCase(name, label, figure, start, end, evaluation["cases"][name][MODEL]["nmae"]))
    return shown


def _draw_decomposition(folder: RunDirectory, surrogate: Surrogate, dataset: Dataset, shown: ShownCase) -> float:
    """The figure of the largest contributions; returns how far u_0 and all contributions are from the prediction, relatively."""
    case = dataset[shown.case]
    parts = surrogate.decompose_case(case, start_s=shown.start_s)
    whole = surrogate.predict_case(case, start_s=shown.start_s)
    _save(folder, "decomposition.png", figures.decomposition(case, parts))
    summed = parts.offset + parts.contributions.sum(axis=1)
    return float(np.abs(summed - whole).max() / np.abs(whole).max())


def _save(folder: RunDirectory, name: str, figure: Figure) -> None:
    buffer = io.BytesIO()
    FigureCanvasAgg(figure)
    figure.savefig(buffer, format="png", dpi=DPI)
    folder.write_bytes(name, buffer.getvalue())


def _page(
    run: RunDirectory,
    surrogate: Surrogate,
    dataset: Dataset,
    evaluation: dict[str, Any],
    shown: list[ShownCase],
    residual: float,
) -> str:
    template = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(
        files("courant.evaluation").joinpath("report.html.j2").read_text()
    )
    design = dataset.design
    status = run.read_json("status.json")
    timings = run.read_json("timings.json")
    version = next(version for version in dataset.versions() if version.name == dataset.version)
    return template.render(
        run=run.url,
        name=run.url.rsplit("/", 1)[-1],
        dataset=dataset,
        published=version.time,
        verdict=summary_line(evaluation),
        evaluation=evaluation,
        predictors=(MODEL, PERSISTENCE, TRAINING_MEAN),
        all=ALL,
        shown=shown,
        residual=residual,
        rows=[_case_row(dataset, case) for case in design.index],
        counts=design["status"].value_counts().to_dict(),
        num_thumbnails=min(NUM_THUMBNAILS, len(dataset)),
        status=status,
        stages=_stages(dataset, timings, evaluation),
        experiment=surrogate.experiment,
        num_parameters=sum(parameter.numel() for parameter in surrogate.model.parameters()),
        environment=run.read_json("environment.json"),
        parameters=dataset.schema.parameters,
    )


def _case_row(dataset: Dataset, name: str) -> dict[str, Any]:
    case = dataset[name]
    failed = [gate["name"] for gate in case.gates if not gate["passed"]]
    figures_of = case.provenance.get("figures", {})
    return {
        "id": name,
        "parameters": [f"{case.parameters[parameter.name]:.3g}" for parameter in dataset.schema.parameters],
        "status": case.status,
        "reason": case.reason,
        "split": case.split or "",
        "cells": case.num_points if case.status == "accepted" else "",
        "courant": _number(figures_of.get("max_courant")),
        "imbalance": _number(figures_of.get("mass_imbalance")),
        "gates": f"{len(case.gates) - len(failed)} of {len(case.gates)}" if case.gates else "",
        "solve": _number(case.provenance.get("wall_time_s", {}).get("solve")),
    }


def _number(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float | int) else "" if value is None else str(value)


def _stages(dataset: Dataset, timings: dict[str, float], evaluation: dict[str, Any]) -> list[tuple[str, float]]:
    """Seconds by stage; cases count their own wall time, however many ran side by side."""
    walls = [dataset[case].provenance.get("wall_time_s", {}) for case in dataset.design.index]
    windows = evaluation["num_windows"]
    return [
        ("meshing, all cases", sum(wall.get("mesh", 0.0) for wall in walls)),
        ("solving, all cases", sum(wall.get("solve", 0.0) for wall in walls)),
        ("reading the dataset", timings["load"]),
        ("training", timings["train"]),
        ("validation", timings["validation"]),
        ("checkpoints", timings["checkpoint"]),
        (f"{windows} test rollouts", evaluation["timing"]["prediction_total_s"]),
    ]
