"""The report of a trained run: one folder with index.html and its figures, nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jinja2

import simgen
from courant.evaluation import figures, rollout_report, steady_report
from courant.evaluation.evaluate import evaluate, read_evaluation
from courant.evaluation.metrics import ALL
from courant.evaluation.record import read_course
from courant.evaluation.references import MODEL, PERSISTENCE
from courant.evaluation.report_folder import save_figure
from courant.evaluation.rollout_report import draw_rollouts, rollout_summary
from courant.evaluation.steady_report import draw_cases, steady_summary
from courant.run_directory import RunDirectory
from courant.steady_surrogate import SteadySurrogate
from courant.surrogate import Surrogate, load
from courant.training.record import EpochRecord, read_records
from simgen import dataset_figures
from simgen.errors import StoreError
from simgen.store.reader import Dataset

PAGE = "index.html"
INPUTS = "report.json"
NUM_THUMBNAILS = 12


def write_report(run_url: str, out: str) -> str:
    """Write the report's folder (a path or s3:// URL); returns the page's URL. Unchanged inputs are not drawn again."""
    run, folder = RunDirectory(run_url), RunDirectory(out)
    evaluation = read_evaluation(run) or evaluate(run_url)
    inputs = {"run": run.url, "fingerprint": evaluation["fingerprint"], "generator": 3}
    page = f"{folder.url.rstrip('/')}/{PAGE}"
    if folder.exists(INPUTS) and folder.exists(PAGE) and folder.read_json(INPUTS) == inputs:
        return page
    course = read_course(run)
    surrogate = load(run_url)
    dataset = simgen.open_dataset(surrogate.dataset["url"], surrogate.dataset["version"])
    _check_fits(evaluation, surrogate, dataset)
    if isinstance(surrogate, SteadySurrogate):
        template, drawn = steady_report.TEMPLATE, draw_cases(folder, surrogate, dataset, evaluation)
    else:
        template, drawn = rollout_report.TEMPLATE, draw_rollouts(folder, surrogate, dataset, evaluation)
    accepted = [dataset[case] for case in dataset.cases()]
    save_figure(folder, "designs.png", dataset_figures.designs(dataset))
    save_figure(
        folder,
        "cases.png",
        dataset_figures.sample_cases(accepted[:NUM_THUMBNAILS], surrogate.normaliser.channels[0].field),
    )
    save_figure(folder, "mesh.png", figures.mesh(dataset[drawn["shown"][0].case]))
    records = read_records(run)
    if not sum(record.seconds for record in records) > 0:
        raise StoreError(f"{run.url}/metrics.jsonl has no epoch; the run is damaged, train it again")
    save_figure(folder, "loss_curves.png", figures.loss_curves(records))
    folder.write_bytes(PAGE, _page(template, run, surrogate, dataset, evaluation, drawn, records, course).encode())
    folder.write_json(INPUTS, inputs)
    return page


def _check_fits(evaluation: dict[str, Any], surrogate: Surrogate | SteadySurrogate, dataset: Dataset) -> None:
    """StoreError where the record is not of this model and dataset version, whatever its fingerprint says."""
    channels = tuple(f"{each['field']}.{each['component']}" for each in evaluation["channels"])
    steps = None if isinstance(surrogate, SteadySurrogate) else surrogate.experiment.data.window_steps
    recorded = len(evaluation["nmae"][MODEL][ALL]) if evaluation["task"] == "transient" else None
    unknown = set(evaluation["cases"]) - set(dataset.cases(evaluation["split"]))
    if channels != surrogate.channels or steps != recorded or unknown:
        raise StoreError(
            f"{surrogate.url}/evaluation.json is of another model or dataset version; remove it and evaluate again"
        )


def summary_line(evaluation: dict[str, Any]) -> str:
    """The verdict in one or two sentences, from the numbers."""
    return rollout_summary(evaluation) if PERSISTENCE in evaluation["overall"] else steady_summary(evaluation)


def main_figure(evaluation: dict[str, Any]) -> str:
    """The report's file that says most about the errors."""
    module = rollout_report if PERSISTENCE in evaluation["overall"] else steady_report
    return module.MAIN_FIGURE


def _page(
    template: str,
    run: RunDirectory,
    surrogate: Surrogate | SteadySurrogate,
    dataset: Dataset,
    evaluation: dict[str, Any],
    drawn: dict[str, Any],
    records: Sequence[EpochRecord],
    course: tuple[dict[str, Any], dict[str, Any], dict[str, Any]],
) -> str:
    pages = jinja2.Environment(
        loader=jinja2.PackageLoader("courant.evaluation", "."), autoescape=True, undefined=jinja2.StrictUndefined
    )
    design = dataset.design
    status, timings, environment = course
    version = next(version for version in dataset.versions() if version.name == dataset.version)
    return pages.get_template(template).render(
        run=run.url,
        name=run.url.rsplit("/", 1)[-1],
        dataset=dataset,
        published=version.time,
        verdict=summary_line(evaluation),
        evaluation=evaluation,
        predictors=list(evaluation["overall"]),
        all=ALL,
        channels=surrogate.channels,
        first_field=surrogate.normaliser.channels[0].field,
        **drawn,
        rows=[_case_row(dataset, case) for case in design.index],
        counts=design["status"].value_counts().to_dict(),
        num_thumbnails=min(NUM_THUMBNAILS, len(dataset)),
        status=status,
        stages=_stages(dataset, timings, evaluation),
        throughput=_throughput(records),
        experiment=surrogate.experiment,
        num_parameters=sum(parameter.numel() for parameter in surrogate.model.parameters()),
        environment=environment,
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


def _throughput(records: Sequence[EpochRecord]) -> list[tuple[str, str]]:
    """What the training made of its machine, over all epochs that say so."""
    seconds = sum(record.seconds for record in records)
    samples = sum(record.samples_per_s * record.seconds for record in records)
    rows = [("samples per second", f"{samples / seconds:.3g}")]
    told = [record for record in records if record.data_wait_share is not None]
    if told:
        spent = sum(record.seconds for record in told)
        waited = sum((record.data_wait_share or 0.0) * record.seconds for record in told)
        operations = sum((record.flops_per_s or 0.0) * record.seconds for record in told)
        rows += [
            ("share of the time spent waiting for data", f"{waited / spent:.1%}"),
            ("achieved floating-point operations", f"{operations / spent / 1e9:.3g} GFLOP/s"),
            ("peak memory", f"{max(record.peak_memory_gb or 0.0 for record in told):.2f} GB"),
        ]
    skipped = sum(record.skipped_batches for record in records)
    return [*rows, ("batches skipped, not finite", str(skipped))] if skipped else rows


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
        (
            f"{windows} test {'rollouts' if 'step_s' in evaluation else 'predictions'}",
            evaluation["timing"]["prediction_total_s"],
        ),
    ]
