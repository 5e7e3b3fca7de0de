"""A benchmark's records as rows, beside the errors that the paper prints, as CSV and JSON.

The paper's are those of tab:bench-unstr, tab:bench-str, and tab:feature_ablation_nmae for Courant's
variants; all three are captioned NMAE.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import pandas
from pydantic import TypeAdapter

from courant.evaluation.ledger import Interval, Ledger, SolverTimes, solver_times
from courant.evaluation.metrics import ALL, METRICS
from courant.evaluation.record import MODEL, Evaluation, read_evaluation
from courant.experiment import Experiment, TransientData
from courant.models import count
from courant.problems import open_problem
from courant.recipes import RECIPES, get_recipe
from courant.recipes.compared import benchmark_of
from courant.runs.record import read_records
from courant.sweeps import benchmark as plans
from courant.sweeps.benchmark import COURANT, Benchmark
from courant.sweeps.sweep import Trial, read_result
from simgen.errors import InputError

if TYPE_CHECKING:
    from simgen.store.read import Dataset

CSV, JSON = "table.csv", "table.json"


@dataclass(frozen=True)
class SeedErrors:
    """Test errors of one predictor, over seeds."""

    overall: dict[str, Interval]  # by metric, of all cases together: a few bad ones may dominate it
    typical: Interval  # NMAE of the median test case
    components: dict[str, dict[str, Interval]]  # By component and metric
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
    errors: SeedErrors | None = None  # None where every training failed
    failures: tuple[str, ...] = ()  # Reasons, of trainings that should have counted
    parameters: int | None = None
    rate: float | None = None
    rate_at_edge: bool = False
    epochs: int | None = None
    paper_nmae: float | None = None
    wall_s: Interval | None = None  # Of a training
    memory_gb: float | None = None
    ledger: Ledger | None = None  # in processor time; the search is with the speed trials
    curves: tuple[TrainingCurve, ...] = ()


@dataclass(frozen=True)
class QuantityRow:
    """Errors in one quantity: sums of absolute errors over sums of absolute values."""

    name: str
    null: float | None  # of a Gaussian process on the parameters; None: it was not fitted
    models: dict[str, Interval]  # over seeds, by model; without those that lack it


@dataclass(frozen=True)
class BenchmarkTable:
    """A finished benchmark, in numbers."""

    benchmark: Benchmark
    num_cases: dict[str, int]
    step_s: float | None
    rows: tuple[PredictorRow, ...]  # The lowest NMAE first, failures last
    quantities: tuple[QuantityRow, ...]  # those that follow from the modelled fields
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
            "rows": [
                {**vars(row), "break_even": row.ledger and row.ledger.break_even}
                for row in self.rows
            ],
            "quantities": self.quantities,
        }
        plain = json.loads(TypeAdapter(dict[str, Any]).dump_json(content))
        benchmark.folder.write_json(JSON, plain)
        for row in plain["rows"]:
            row["failures"] = "; ".join(row["failures"])
        flat = pandas.json_normalize(plain["rows"]).drop(columns="curves").convert_dtypes()
        benchmark.folder.write_bytes(CSV, flat.to_csv(index=False).encode())


def read_table(benchmark: Benchmark, dataset: Dataset, trials: Sequence[Trial]) -> BenchmarkTable:
    """Read the records of evaluated trials; InputError where none of them was trained."""
    paper, tests = paper_errors(benchmark), dataset.cases("test")
    solver = solver_times(dataset, open_problem(benchmark.base, dataset), tests)
    found: dict[str, list[tuple[Trial, Evaluation | None]]] = {
        name: [] for name in benchmark.contenders
    }
    for trial in trials:
        found[plans.contender_of(trial)].append((trial, read_evaluation(trial.run, "test")))
    models = [_row(benchmark, n, pairs, paper.get(n), solver) for n, pairs in found.items()]
    trained = {name: [each for _, each in pairs if each] for name, pairs in found.items()}
    first = next(itertools.chain.from_iterable(trained.values()), None)
    if first is None:
        reasons = next((line for row in models for line in row.failures), "")
        raise InputError(f"{benchmark.url}: every training failed; the first: {reasons}")
    devices = {each.timing.prediction_device for of in trained.values() for each in of}
    references = [
        PredictorRow(name, is_reference=True, errors=_errors([first], name))
        for name in first.references
    ]

    def by_error(row: PredictorRow) -> tuple[bool, float]:
        # Errors that are not finite come after all others, failures last.
        nmae = row.errors.nmae.mean if row.errors else 0.0
        return row.errors is None, nmae if math.isfinite(nmae) else math.inf

    return BenchmarkTable(
        benchmark=benchmark,
        num_cases={split: len(dataset.cases(split)) for split in ("train", "validation", "test")},
        step_s=first.step_s,
        rows=tuple(sorted([*models, *references], key=by_error)),
        quantities=quantity_rows(trained),
        device=" and ".join(sorted(devices)) + ", which do not compare" * (len(devices) > 1),
    )


def _row(
    benchmark: Benchmark,
    name: str,
    evaluated: Sequence[tuple[Trial, Evaluation | None]],
    paper_nmae: float | None,
    solver: SolverTimes,
) -> PredictorRow:
    searched = [
        trial
        for trial in (*plans.speed_trials(benchmark), *plans.search_trials(benchmark))
        if plans.contender_of(trial) == name
    ]

    rate, parameters = plans.chosen_rate(benchmark, name), count(benchmark.contenders[name].model)
    trained = [(trial, found) for trial, found in evaluated if found is not None]
    if rate is None or not trained:
        tried = [*(trial for trial, _ in evaluated), *searched]
        reasons = filter(None, (read_result(trial).reason for trial in tried))
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
    evaluations = [found for _, found in trained]
    ledger = Ledger(
        solver=solver,
        training=Interval.of([curve.processor_s for curve in curves]),
        tuning_s=sum(each.processor_s for trial in searched for each in read_records(trial.run)),
        prediction_s=Interval.of([e.timing.prediction_processor_s for e in evaluations]).mean,
    )
    return PredictorRow(
        name=name,
        errors=_errors(evaluations, MODEL),
        failures=tuple(
            f"seed {trial.experiment.training.seed}: {read_result(trial).reason or 'not trained'}"
            for trial, found in evaluated
            if found is None
        ),
        parameters=parameters,
        rate=rate,
        rate_at_edge=benchmark.searches and rate in (benchmark.rates[0], benchmark.rates[-1]),
        epochs=trained[0][0].experiment.training.epochs,
        paper_nmae=paper_nmae,
        wall_s=Interval.of([sum(each.seconds for each in of) for of in records]),
        memory_gb=max(memory, default=None),
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
            errors = [s.fields_error for s in scores if s and s.fields_error is not None]
            if errors and len(errors) == len(scores):
                models[model] = Interval.of(errors)
        of_all = [each.quantities[name].null_error for each in every if name in each.quantities]
        null = next((error for error in of_all if error is not None), None)
        if models:
            rows.append(QuantityRow(name, null, models))
    return tuple(rows)


def paper_errors(benchmark: Benchmark) -> dict[str, float]:
    """Return the paper's errors by contender; none where the task is another."""
    base, family = benchmark.base, benchmark.base.family
    known_as = benchmark_of(family) or family
    if known_as not in _ERRORS:
        return {}
    # Published cases without a recipe of their own share the other one.
    if _task(base) != _task(get_recipe(family if family in RECIPES else known_as)):
        return {}
    numbers = {
        name: _number(known_as, name, benchmark.space is not None) for name in benchmark.contenders
    }
    return {name: error for name, error in numbers.items() if error is not None}


def _task(experiment: Experiment) -> dict[str, Any]:
    data = experiment.data
    task: dict[str, Any] = {"modelled fields": data.fields}
    if isinstance(data, TransientData):
        task |= {
            "steps of a rollout": data.window_steps,
            "time of a step": data.step_s,
            "known states": data.input_steps,
        }
    return task


def _number(family: str, name: str, is_ablation: bool) -> float | None:
    """Return the error of a contender, None where the paper has none."""
    # Both tables have Courant's own on the paper's cases, rounded apart.
    if name in _COLUMNS and (not is_ablation or family not in OWN_CASES):
        return _ERRORS[family][_COLUMNS.index(name)]
    row = ABLATIONS.get("Baseline" if name == COURANT else _ROWS.get(name, name))
    return row[OWN_CASES.index(family)] if row and family in OWN_CASES else None


ABLATIONS: dict[str, tuple[float | None, float | None, float | None]] = {
    "Baseline": (0.097, 0.18, 0.17),
    "GWA (enc + dec)": (0.11, 0.17, None),
    "GWA in decoder only": (0.10, 0.17, None),
    "GWA in encoder only": (0.10, 0.18, None),
    "Learned anchors": (0.089, 0.16, 0.19),
    "Abstract learned queries": (0.094, 0.16, 0.19),
    "No shared coord emb.": (0.096, 0.18, 0.19),
    "No distance field": (0.19, 0.22, 0.21),
    "No global data": (0.10, 0.18, None),
    "No boundary PC (full-mesh)": (0.096, 0.19, None),
    "MLP ODE integrator": (None, None, 0.18),
}
"""Rows of tab:feature_ablation_nmae: branched pipe, pump, cylinder; fig:ablations has no numbers"""
OWN_CASES = ("branched-pipe", "centrifugal-pump", "cylinder-flow")  # the paper's, in these columns
_ROWS = {
    "courant-gwa": "GWA (enc + dec)",
    "courant-learned-anchors": "Learned anchors",
    "courant-abstract-queries": "Abstract learned queries",
}
"""Rows of the ablations, by the contender that they are"""
_COLUMNS = ("courant", "transolver", "upt", "mgn", "enf", "fno", "factformer")
_ERRORS: dict[str, tuple[float | None, ...]] = {
    "branched-pipe": (0.096, 0.086, 0.31, 0.22, None, None, None),
    "centrifugal-pump": (0.17, 0.29, 0.41, None, None, None, None),
    "cylinder-flow": (0.17, 0.13, 0.28, 0.13, 0.23, None, None),
    "elasticity": (0.021, 0.0057, 0.013, None, None, None, None),
    "darcy-flow": (0.0057, 0.0049, 0.016, None, None, 0.0085, 0.0042),
    "airfoil": (0.014, 0.0019, 0.050, None, None, 0.0021, 0.0032),
    "pipe": (0.014, 0.0018, 0.0059, None, None, 0.0022, 0.0013),
    "diffusion-sorption": (0.0038, 0.0039, 0.019, None, 0.0049, 0.0039, None),
    "compressible-flow-3d": (0.017, 0.018, 0.017, None, 0.038, 0.019, None),
}
"""tab:bench-unstr, where elasticity is too, and tab:bench-str, by dataset"""
