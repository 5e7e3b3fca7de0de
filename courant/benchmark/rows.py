"""Read a benchmark's records as rows, with intervals over seeds, and sum them up in a verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

from courant.benchmark.assess import failed_assessment, read_assessment
from courant.benchmark.paper import PaperNumbers, paper_numbers
from courant.benchmark.phases import (
    chosen_rate,
    contender_of,
    processor_seconds,
    search_trials,
    speed_trials,
)
from courant.benchmark.request import Contender, Request
from courant.evaluation.ledger import Interval, Ledger, SolverTimes
from courant.evaluation.metrics import ALL, METRICS
from courant.evaluation.quantities import FigureScore, regress_figures
from courant.evaluation.record import MODEL, Evaluation, read_evaluation
from courant.models import count
from courant.runs.record import read_records
from courant.sweeps.sweep import Trial, read_result
from simgen.errors import InputError

if TYPE_CHECKING:
    from simgen.store.read import Dataset


@dataclass(frozen=True)
class Errors:
    """Test errors of one predictor, over seeds."""

    overall: dict[str, Interval]
    """By metric, of all test cases together, so that a few bad ones may rule it"""
    typical: Interval
    """NMAE of the median test case"""
    components: dict[str, dict[str, Interval]]
    """By component and metric"""
    steps: tuple[tuple[Interval, Interval], ...]
    """NMAE and relative L2 after each step; a single one in steady problems"""

    @property
    def nmae(self) -> Interval:
        return self.overall["nmae"]


@dataclass(frozen=True)
class Course:
    """One training: validation NMAE against the processor time so far, and the test NMAE."""

    seed: int
    validated: tuple[tuple[float, float], ...]
    processor_s: float
    test_nmae: float


@dataclass(frozen=True)
class Cost:
    """What a model's trainings and predictions take."""

    training_s: Interval
    """Processor time of a training"""
    wall_s: Interval
    search_s: float
    """Processor time of the search, the measurement of its speed included"""
    memory_gb: float | None
    prediction_s: dict[str, float | None]
    """Processor time by number of points; None where it would have taken too long"""


@dataclass(frozen=True)
class Row:
    """A contender or a reference."""

    name: str
    is_reference: bool = False
    errors: Errors | None = None
    """None where every training failed"""
    failures: tuple[str, ...] = ()
    """Reasons, of trainings that should have counted"""
    parameters: int | None = None
    rate: float | None = None
    rate_at_edge: bool = False
    epochs: int | None = None
    paper_nmae: float | None = None
    cost: Cost | None = None
    ledger: Ledger | None = None
    courses: tuple[Course, ...] = ()


@dataclass(frozen=True)
class Table:
    """A finished benchmark, in numbers."""

    request: Request
    family: str
    num_cases: dict[str, int]
    step_s: float | None
    rows: tuple[Row, ...]
    """The lowest NMAE first, failures last"""
    nulls: tuple[FigureScore, ...]
    paper: PaperNumbers
    quantities: tuple[QuantityRow, ...] = ()
    """Of the family, as far as the modelled fields tell them"""
    device: str = field(default="CPU")

    @property
    def models(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if not row.is_reference)

    @property
    def references(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.is_reference)


def read_table(request: Request, dataset: Dataset, trials: Sequence[Trial]) -> Table:
    """Read the records of assessed trials; InputError where none of them was trained."""
    paper = paper_numbers(request, dataset)
    by_name = {
        each.name: [one for one in trials if contender_of(one) == each.name]
        for each in request.contenders
    }
    models = [_row(request, each, by_name[each.name], paper) for each in request.contenders]
    evaluations = [found for trial in trials if (found := _evaluation(trial)) is not None]
    if not evaluations:
        reasons = next((said for row in models for said in row.failures), "")
        raise InputError(f"{request.folder.url}: every training failed; the first: {reasons}")
    first = evaluations[0]
    references = [
        Row(name, is_reference=True, errors=_errors([first], name)) for name in first.references
    ]
    order = sorted([*models, *references], key=_by_error)
    return Table(
        request=request,
        family=dataset.schema.family,
        num_cases={split: len(dataset.cases(split)) for split in ("train", "validation", "test")},
        step_s=first.step_s,
        rows=tuple(order),
        nulls=_nulls(dataset),
        paper=paper,
        quantities=quantity_rows(
            {
                name: [found for trial in of if (found := _evaluation(trial)) is not None]
                for name, of in by_name.items()
            }
        ),
        device=first.timing.prediction_device,
    )


def _by_error(row: Row) -> tuple[bool, float]:
    """Errors that are not finite come after all others, failures last."""
    if row.errors is None:
        return True, 0.0
    return False, row.errors.nmae.mean if math.isfinite(row.errors.nmae.mean) else math.inf


def _row(
    request: Request, contender: Contender, trials: Sequence[Trial], paper: PaperNumbers
) -> Row:
    choice = chosen_rate(request, contender)
    parameters = count(contender.experiment.model)
    trained = [trial for trial in trials if _evaluation(trial) is not None]
    if choice is None or not trained:
        tried = [*trials, *(t for t in search_trials(request) if contender_of(t) == contender.name)]
        reasons = [said for trial in tried if (said := _reason(trial))]
        return Row(
            contender.name, failures=tuple(reasons[:1]) or ("not trained",), parameters=parameters
        )
    evaluations = [found for trial in trained if (found := _evaluation(trial)) is not None]
    cost = _cost(request, contender, trained)
    return Row(
        name=contender.name,
        errors=_errors(evaluations, MODEL),
        failures=tuple(
            f"seed {trial.experiment.training.seed}: {_reason(trial) or 'not trained'}"
            for trial in trials
            if trial not in trained
        ),
        parameters=parameters,
        rate=choice.rate,
        rate_at_edge=choice.at_edge,
        epochs=trained[0].experiment.training.epochs,
        paper_nmae=paper.nmae.get(contender.name),
        cost=cost,
        ledger=_ledger(trained, evaluations, cost),
        courses=tuple(map(_course, trained, evaluations)),
    )


def _reason(trial: Trial) -> str:
    """Say why a trial has no test errors; empty where nothing is on record."""
    return read_result(trial).reason or failed_assessment(trial.run)


def _evaluation(trial: Trial) -> Evaluation | None:
    return read_evaluation(trial.run, "test")


def _errors(evaluations: Sequence[Evaluation], predictor: str) -> Errors:
    overall = [each.overall[predictor] for each in evaluations]
    parts = [each.by_component[predictor] for each in evaluations]
    nmae = [each.nmae[predictor][ALL] for each in evaluations]
    relative = [each.relative_l2[predictor][ALL] for each in evaluations]
    cases = [[of.overall[predictor].nmae for of in each.cases.values()] for each in evaluations]
    return Errors(
        overall={name: Interval.of([each[name] for each in overall]) for name in METRICS},
        typical=Interval.of([median(of) for of in cases]),
        components={
            component: {
                name: Interval.of([part[component][name] for part in parts]) for name in METRICS
            }
            for component in evaluations[0].components
        },
        steps=tuple(
            (Interval.of([of[step] for of in nmae]), Interval.of([of[step] for of in relative]))
            for step in range(evaluations[0].num_steps)
        ),
    )


def _cost(request: Request, contender: Contender, trials: Sequence[Trial]) -> Cost:
    records = [read_records(trial.run) for trial in trials]
    searched = [*speed_trials(request), *search_trials(request)]
    memory = [each.peak_memory_gb for of in records for each in of if each.peak_memory_gb]
    assessment = read_assessment(trials[0].run) or {}
    return Cost(
        training_s=Interval.of([processor_seconds(trial) for trial in trials]),
        wall_s=Interval.of([sum(each.seconds for each in of) for of in records]),
        search_s=sum(
            processor_seconds(trial) for trial in searched if contender_of(trial) == contender.name
        ),
        memory_gb=max(memory, default=None),
        prediction_s=dict(assessment.get("prediction_processor_s", {})),
    )


def _ledger(
    trials: Sequence[Trial], evaluations: Sequence[Evaluation], cost: Cost
) -> Ledger | None:
    assessment = read_assessment(trials[0].run)
    if assessment is None:
        return None
    predictions = [each.timing.prediction_processor_s for each in evaluations]
    return Ledger(
        solver=SolverTimes.from_json(assessment["solver"]),
        training=cost.training_s,
        tuning_s=cost.search_s,
        prediction_s=Interval.of(predictions).mean,
    )


def _course(trial: Trial, evaluation: Evaluation) -> Course:
    spent, validated = 0.0, []
    for record in read_records(trial.run):
        spent += record.processor_s
        if record.validation_nmae is not None:
            validated.append((spent, record.validation_nmae))
    seed = trial.experiment.training.seed
    return Course(seed, tuple(validated), spent, evaluation.overall[MODEL].nmae)


def _nulls(dataset: Dataset) -> tuple[FigureScore, ...]:
    """Regress the cases' figures on their parameters, where there are enough of both."""
    try:
        return tuple(regress_figures(dataset))
    except InputError:
        return ()


@dataclass(frozen=True)
class QuantityRow:
    """Errors in one quantity: sums of absolute errors over sums of absolute values."""

    name: str
    null: float | None
    """Of a Gaussian process on the design parameters; None where it could not be fitted"""
    models: dict[str, Interval]
    """From predicted fields, over seeds, by model; without those that do not tell it"""


def quantity_rows(found: Mapping[str, Sequence[Evaluation]]) -> tuple[QuantityRow, ...]:
    """Return a row for each quantity that any model's fields tell, from evaluations by model."""
    every = [each for evaluations in found.values() for each in evaluations]
    names = dict.fromkeys(name for each in every for name in each.quantities)
    rows = []
    for name in names:
        errors = {
            model: _quantity_errors(evaluations, name) for model, evaluations in found.items()
        }
        scores = [each.quantities[name] for each in every if name in each.quantities]
        rows.append(
            QuantityRow(
                name=name,
                null=next(
                    (each.null_error for each in scores if each.null_error is not None), None
                ),
                models={model: Interval.of(of) for model, of in errors.items() if of},
            )
        )
    return tuple(row for row in rows if row.models)


def _quantity_errors(evaluations: Sequence[Evaluation], name: str) -> list[float]:
    """Return the error of each seed; none where one of them is not known."""
    found = [each.quantities[name].error for each in evaluations if name in each.quantities]
    known = [error for error in found if error is not None]
    return known if len(known) == len(evaluations) else []


def verdict(table: Table) -> str:
    """Say which model is first, by how much, and against which reference or null it loses."""
    models = [row for row in table.models if row.errors]
    first = models[0]
    assert first.errors is not None
    said = [f"{first.name} has the lowest NMAE of the models, {first.errors.nmae.text()}"]
    if len(models) > 1 and models[1].errors is not None:
        second = models[1]
        said[0] += f"; next is {second.name}, {models[1].errors.nmae.text()}"
        said.append(_apart(first.errors.nmae, models[1].errors.nmae))
    for reference in table.references:
        if reference.errors is None:
            continue
        worse = [
            row.name
            for row in models
            if row.errors and row.errors.nmae.mean >= reference.errors.nmae.mean
        ]
        if worse:
            nmae = reference.errors.nmae.text()
            said.append(f"Not below {reference.name} ({nmae}): {', '.join(worse)}")
    partly = [row.name for row in models if row.failures]
    if partly:
        said.append(f"Not every training ended, so these numbers are too good: {', '.join(partly)}")
    return ". ".join(said) + "."


def _apart(first: Interval, second: Interval) -> str:
    if first.half_width is None or second.half_width is None:
        return "With one seed nothing is known of the spread between trainings"
    if first.high < second.low:
        return "Their intervals do not overlap"
    return "Their intervals overlap: the order may be chance"
