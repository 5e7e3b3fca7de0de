"""Read a benchmark's records as rows, with intervals over seeds, and write them as CSV and JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
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
    Contender,
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
        rows = []
        for row in self.rows:
            even = row.ledger.break_even if row.ledger else None
            rows.append({**asdict(row), "break_even": asdict(even) if even else None})
        content = {
            "dataset": benchmark.dataset_url,
            "version": benchmark.version,
            "snapshot": benchmark.snapshot_id,
            "recipe": benchmark.base.name,
            "budget": benchmark.budget.text,
            "rates": list(benchmark.rates),
            "cases": self.num_cases,
            "verdict": self.verdict(),
            "paper": self.paper.words,
            "rows": rows,
            "quantities": [asdict(each) for each in self.quantities],
            "nulls": [asdict(each) for each in self.nulls],
        }
        benchmark.folder.write_json(JSON, json.loads(json.dumps(_finite(content))))
        flat = pandas.json_normalize(
            [{**row, "failures": "; ".join(row["failures"])} for row in rows]
        ).drop(columns="curves")
        benchmark.folder.write_bytes(CSV, flat.convert_dtypes().to_csv(index=False).encode())


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_table(benchmark: Benchmark, dataset: Dataset, trials: Sequence[Trial]) -> BenchmarkTable:
    """Read the records of assessed trials; InputError where none of them was trained."""
    paper = paper_numbers(benchmark, dataset)
    evaluated = [(trial, read_evaluation(trial.run, "test")) for trial in trials]
    by_name = {
        each.name: [pair for pair in evaluated if contender_of(pair[0]) == each.name]
        for each in benchmark.contenders
    }
    models = [_row(benchmark, each, by_name[each.name], paper) for each in benchmark.contenders]
    evaluations = [found for _, found in evaluated if found is not None]
    if not evaluations:
        reasons = next((line for row in models for line in row.failures), "")
        raise InputError(f"{benchmark.url}: every training failed; the first: {reasons}")
    first = evaluations[0]
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
        quantities=quantity_rows(
            {name: [found for _, found in of if found] for name, of in by_name.items()}
        ),
        device=first.timing.prediction_device,
    )


def _row(
    benchmark: Benchmark,
    contender: Contender,
    evaluated: Sequence[tuple[Trial, Evaluation | None]],
    paper: PaperNumbers,
) -> PredictorRow:
    name = contender.name
    searched = [
        trial
        for trial in (*speed_trials(benchmark), *search_trials(benchmark))
        if contender_of(trial) == name
    ]

    def reason(trial: Trial) -> str:
        return read_result(trial).reason or str(read_assessment(trial.run).get(FAILED, ""))

    chosen, parameters = chosen_rate(benchmark, name), count(contender.experiment.model)
    trained = [(trial, found) for trial, found in evaluated if found is not None]
    if chosen is None or not trained:
        reasons = filter(None, map(reason, [*(trial for trial, _ in evaluated), *searched]))
        return PredictorRow(name, failures=(next(reasons, "not trained"),), parameters=parameters)
    evaluations = [found for _, found in trained]
    records = [read_records(trial.run) for trial, _ in trained]
    curves = []
    for (trial, evaluation), epochs in zip(trained, records, strict=True):
        spent, validated = 0.0, []
        for record in epochs:
            spent += record.processor_s
            if record.validation_nmae is not None:
                validated.append((spent, record.validation_nmae))
        seed = trial.experiment.training.seed
        nmae = evaluation.overall[MODEL].nmae
        curves.append(TrainingCurve(seed, tuple(validated), spent, nmae))
    memory = [each.peak_memory_gb for of in records for each in of if each.peak_memory_gb]
    assessment = read_assessment(trained[0][0].run)
    predictions = [each.timing.prediction_processor_s for each in evaluations]
    ledger = Ledger(
        solver=TypeAdapter(SolverTimes).validate_python(assessment["solver"]),
        training=Interval.of([curve.processor_s for curve in curves]),
        tuning_s=sum(
            record.processor_s for trial in searched for record in read_records(trial.run)
        ),
        prediction_s=Interval.of(predictions).mean,
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
        rate=chosen.rate,
        rate_at_edge=chosen.at_edge,
        epochs=trained[0][0].experiment.training.epochs,
        paper_nmae=paper.nmae.get(name),
        wall_s=Interval.of([sum(each.seconds for each in of) for of in records]),
        memory_gb=max(memory, default=None),
        prediction_s=dict(assessment["prediction_processor_s"]),
        ledger=ledger,
        curves=tuple(curves),
    )


def _errors(evaluations: Sequence[Evaluation], predictor: str) -> SeedErrors:
    overall = [each.overall[predictor] for each in evaluations]
    parts = [each.by_component[predictor] for each in evaluations]
    cases = [[of.overall[predictor].nmae for of in each.cases.values()] for each in evaluations]
    by_step = {
        "nmae": [each.nmae[predictor][ALL] for each in evaluations],
        "relative_l2": [each.relative_l2[predictor][ALL] for each in evaluations],
    }
    return SeedErrors(
        overall={name: Interval.of([each[name] for each in overall]) for name in METRICS},
        typical=Interval.of([median(of) for of in cases]),
        components={
            component: {
                name: Interval.of([part[component][name] for part in parts]) for name in METRICS
            }
            for component in evaluations[0].components
        },
        steps={
            str(step + 1): {
                name: Interval.of([of[step] for of in values]) for name, values in by_step.items()
            }
            for step in range(evaluations[0].num_steps)
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
