"""Read a benchmark's records as rows, with intervals over seeds, and write them as CSV and JSON."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

import pandas
from pydantic import TypeAdapter

from courant.evaluation.ledger import Interval, Ledger, SolverTimes
from courant.evaluation.metrics import ALL, METRICS
from courant.evaluation.quantities import FigureScore, regress_figures
from courant.evaluation.record import MODEL, Evaluation, read_evaluation
from courant.models import count
from courant.runs.record import read_records
from courant.sweeps.assess import FAILED, read_assessment
from courant.sweeps.benchmark import (
    Benchmark,
    chosen_rate,
    contender_of,
    search_trials,
    speed_trials,
)
from courant.sweeps.paper import PaperNumbers, paper_numbers
from courant.sweeps.sweep import Trial, read_result
from simgen.errors import InputError

if TYPE_CHECKING:
    from simgen.store.read import Dataset

CSV, JSON = "table.csv", "table.json"


@dataclass(frozen=True)
class SeedErrors:
    """Test errors of one predictor, over seeds."""

    overall: dict[str, Interval]
    """By metric, of all test cases together, so that a few bad ones may dominate it"""
    typical: Interval
    """NMAE of the median test case"""
    components: dict[str, dict[str, Interval]]
    """By component and metric"""
    steps: dict[str, dict[str, Interval]]
    """NMAE and relative L2 after each step, from "1"; a single one in steady problems"""

    @property
    def nmae(self) -> Interval:
        return self.overall["nmae"]


@dataclass(frozen=True)
class TrainingCurve:
    """One training: validation NMAE against the processor time so far, and the test NMAE."""

    seed: int
    validated: tuple[tuple[float, float], ...]
    processor_s: float
    test_nmae: float


@dataclass(frozen=True)
class PredictorRow:
    """A contender or a reference."""

    name: str
    is_reference: bool = False
    errors: SeedErrors | None = None
    """None where every training failed"""
    failures: tuple[str, ...] = ()
    """Reasons, of trainings that should have counted"""
    parameters: int | None = None
    rate: float | None = None
    rate_at_edge: bool = False
    epochs: int | None = None
    paper_nmae: float | None = None
    wall_s: Interval | None = None
    """Of a training"""
    memory_gb: float | None = None
    prediction_s: dict[str, float | None] = field(default_factory=dict)
    """Processor time by number of points; None where it would have taken too long"""
    ledger: Ledger | None = None
    """With the processor time of a training, and of the search with the measurement of speed"""
    curves: tuple[TrainingCurve, ...] = ()


@dataclass(frozen=True)
class QuantityRow:
    """Errors in one quantity: sums of absolute errors over sums of absolute values."""

    name: str
    null: float | None
    """Of a Gaussian process on the design parameters; None where it could not be fitted"""
    models: dict[str, Interval]
    """From predicted fields, over seeds, by model; without those that lack it"""


@dataclass(frozen=True)
class BenchmarkTable:
    """A finished benchmark, in numbers."""

    benchmark: Benchmark
    num_cases: dict[str, int]
    step_s: float | None
    rows: tuple[PredictorRow, ...]
    """The lowest NMAE first, failures last"""
    nulls: tuple[FigureScore, ...]
    paper: PaperNumbers
    quantities: tuple[QuantityRow, ...]
    """Of the family, as far as they follow from the modelled fields"""
    device: str

    @property
    def models(self) -> tuple[PredictorRow, ...]:
        return tuple(row for row in self.rows if not row.is_reference)

    @property
    def references(self) -> tuple[PredictorRow, ...]:
        return tuple(row for row in self.rows if row.is_reference)

    def verdict(self) -> str:
        """Name the first model, by how much, and each reference that others do not beat."""
        models = [(row, row.errors.nmae) for row in self.models if row.errors]
        first, lowest = models[0]
        lines = [f"{first.name} has the lowest NMAE of the models, {lowest.text()}"]
        if len(models) > 1:
            second, next_lowest = models[1]
            lines[0] += f"; next is {second.name}, {next_lowest.text()}"
            if lowest.half_width is None or next_lowest.half_width is None:
                lines.append("With one seed nothing is known of the spread between trainings")
            elif lowest.high < next_lowest.low:
                lines.append("Their intervals do not overlap")
            else:
                lines.append("Their intervals overlap: the order may be chance")
        for row in self.references:
            assert row.errors is not None
            worse = [each.name for each, nmae in models if nmae.mean >= row.errors.nmae.mean]
            if worse:
                lines.append(f"Not below {row.name} ({row.errors.nmae.text()}): {', '.join(worse)}")
        if partly := [row.name for row, _ in models if row.failures]:
            lines.append(
                f"Not every training ended, so these numbers are too good: {', '.join(partly)}"
            )
        return ". ".join(lines) + "."

    def write(self) -> None:
        """Write table.csv, without curves, and table.json, where infinite numbers are null."""
        benchmark = self.benchmark
        content = {
            "dataset": benchmark.dataset_url,
            "version": benchmark.version,
            "snapshot": benchmark.snapshot_id,
            "recipe": benchmark.base.name,
            "budget": benchmark.budget.text,
            "rates": benchmark.rates,
            "cases": self.num_cases,
            "verdict": self.verdict(),
            "paper": self.paper.words,
            "rows": [
                {**vars(row), "break_even": row.ledger and row.ledger.break_even}
                for row in self.rows
            ],
            "quantities": self.quantities,
            "nulls": self.nulls,
        }
        plain = json.loads(TypeAdapter(dict[str, Any]).dump_json(content))
        benchmark.folder.write_json(JSON, plain)
        for row in plain["rows"]:
            row["failures"] = "; ".join(row["failures"])
        flat = pandas.json_normalize(plain["rows"]).drop(columns="curves").convert_dtypes()
        benchmark.folder.write_bytes(CSV, flat.to_csv(index=False).encode())


def read_table(benchmark: Benchmark, dataset: Dataset, trials: Sequence[Trial]) -> BenchmarkTable:
    """Read the records of assessed trials; InputError where none of them was trained."""
    paper = paper_numbers(benchmark, dataset)
    found: dict[str, list[tuple[Trial, Evaluation | None]]] = {
        name: [] for name in benchmark.contenders
    }
    for trial in trials:
        found[contender_of(trial)].append((trial, read_evaluation(trial.run, "test")))
    models = [_row(benchmark, name, pairs, paper) for name, pairs in found.items()]
    trained = {name: [each for _, each in pairs if each] for name, pairs in found.items()}
    first = next(itertools.chain.from_iterable(trained.values()), None)
    if first is None:
        reasons = next((line for row in models for line in row.failures), "")
        raise InputError(f"{benchmark.url}: every training failed; the first: {reasons}")
    references = [
        PredictorRow(name, is_reference=True, errors=_errors([first], name))
        for name in first.references
    ]

    def by_error(row: PredictorRow) -> tuple[bool, float]:
        # Errors that are not finite come after all others, failures last.
        nmae = row.errors.nmae.mean if row.errors else 0.0
        return row.errors is None, nmae if math.isfinite(nmae) else math.inf

    try:
        nulls = tuple(regress_figures(dataset))
    except InputError:  # too few cases, or no design parameters
        nulls = ()
    return BenchmarkTable(
        benchmark=benchmark,
        num_cases={split: len(dataset.cases(split)) for split in ("train", "validation", "test")},
        step_s=first.step_s,
        rows=tuple(sorted([*models, *references], key=by_error)),
        nulls=nulls,
        paper=paper,
        quantities=quantity_rows(trained),
        device=first.timing.prediction_device,
    )


def _row(
    benchmark: Benchmark,
    name: str,
    evaluated: Sequence[tuple[Trial, Evaluation | None]],
    paper: PaperNumbers,
) -> PredictorRow:
    searched = [
        trial
        for trial in (*speed_trials(benchmark), *search_trials(benchmark))
        if contender_of(trial) == name
    ]

    def reason(trial: Trial) -> str:
        return read_result(trial).reason or str(read_assessment(trial.run).get(FAILED, ""))

    rate, parameters = chosen_rate(benchmark, name), count(benchmark.contenders[name].model)
    trained = [(trial, found) for trial, found in evaluated if found is not None]
    if rate is None or not trained:
        reasons = filter(None, map(reason, [*(trial for trial, _ in evaluated), *searched]))
        return PredictorRow(name, failures=(next(reasons, "not trained"),), parameters=parameters)
    records = [read_records(trial.run) for trial, _ in trained]
    curves = []
    for (trial, found), epochs in zip(trained, records, strict=True):
        spent = list(itertools.accumulate(each.processor_s for each in epochs))
        validated = tuple(
            (at, each.validation_nmae)
            for at, each in zip(spent, epochs, strict=True)
            if each.validation_nmae is not None
        )
        seed = trial.experiment.training.seed
        curves.append(TrainingCurve(seed, validated, spent[-1], found.overall[MODEL].nmae))
    memory = [each.peak_memory_gb for of in records for each in of if each.peak_memory_gb]
    assessment = read_assessment(trained[0][0].run)
    evaluations = [found for _, found in trained]
    ledger = Ledger(
        solver=TypeAdapter(SolverTimes).validate_python(assessment["solver"]),
        training=Interval.of([curve.processor_s for curve in curves]),
        tuning_s=sum(
            record.processor_s for trial in searched for record in read_records(trial.run)
        ),
        prediction_s=Interval.of([e.timing.prediction_processor_s for e in evaluations]).mean,
    )
    return PredictorRow(
        name=name,
        errors=_errors(evaluations, MODEL),
        failures=tuple(
            f"seed {trial.experiment.training.seed}: {reason(trial) or 'not trained'}"
            for trial, found in evaluated
            if found is None
        ),
        parameters=parameters,
        rate=rate,
        rate_at_edge=benchmark.searches and rate in (benchmark.rates[0], benchmark.rates[-1]),
        epochs=trained[0][0].experiment.training.epochs,
        paper_nmae=paper.nmae.get(name),
        wall_s=Interval.of([sum(each.seconds for each in of) for of in records]),
        memory_gb=max(memory, default=None),
        prediction_s=dict(assessment["prediction_processor_s"]),
        ledger=ledger,
        curves=tuple(curves),
    )


def _errors(evaluations: Sequence[Evaluation], predictor: str) -> SeedErrors:
    first = evaluations[0]
    overall = [each.overall[predictor] for each in evaluations]
    parts = [each.by_component[predictor] for each in evaluations]
    return SeedErrors(
        overall={name: Interval.of([each[name] for each in overall]) for name in METRICS},
        typical=Interval.of(
            [median(of.overall[predictor].nmae for of in e.cases.values()) for e in evaluations]
        ),
        components={
            component: {
                name: Interval.of([part[component][name] for part in parts]) for name in METRICS
            }
            for component in first.components
        },
        steps={
            str(step + 1): {
                "nmae": Interval.of([e.nmae[predictor][ALL][step] for e in evaluations]),
                "relative_l2": Interval.of(
                    [e.relative_l2[predictor][ALL][step] for e in evaluations]
                ),
            }
            for step in range(first.num_steps)
        },
    )


def quantity_rows(found: Mapping[str, Sequence[Evaluation]]) -> tuple[QuantityRow, ...]:
    """Return a row for each quantity, without the models of which a seed lacks it."""
    every = [each for evaluations in found.values() for each in evaluations]
    rows = []
    for name in dict.fromkeys(name for each in every for name in each.quantities):
        models = {}
        for model, evaluations in found.items():
            scores = [each.quantities.get(name) for each in evaluations]
            errors = [each.error for each in scores if each and each.error is not None]
            if errors and len(errors) == len(scores):
                models[model] = Interval.of(errors)
        of_all = [each.quantities[name].null_error for each in every if name in each.quantities]
        null = next((error for error in of_all if error is not None), None)
        if models:
            rows.append(QuantityRow(name, null, models))
    return tuple(rows)
