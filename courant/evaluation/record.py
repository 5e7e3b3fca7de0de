"""Define the record of an evaluation, and read that of a run's present weights.

Predictors are the model and its references, by name, the model first. Components are
"<field>.<component>"; "all" takes a field's components together, and is the mean of the fields'
measures where several fields are modelled.
"""

import math
import zlib
from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, Field, RootModel

from courant.evaluation.metrics import ALL, METRICS
from courant.experiment import Kind
from courant.runs.directory import RunDirectory
from courant.runs.weights import WEIGHTS, weights_digest

MODEL = "model"
PERSISTENCE = "persistence"
TRAINING_MEAN = "training mean"
NEAREST_DESIGN = "nearest design"
MODES = POD_GP, POD_RBF = "POD + GP", "POD + RBF"  # regressed on the parameters
DMD = "DMD"

EVALUATION = "evaluation.json"
REVISION = 15  # raise this when the same weights would give other numbers
MOST_ALIKE = 1e-3  # of the true values' range: answers that differ less have no order
OUTLYING = 2.0  # from this ratio of a case's error to the mean one on, the case is named
CLEAR_RATIO = 1.2  # of the model's error to a reference's, from which on that is clearly better
USEFUL_BAND, FINE_BAND = 0.5, 0.03  # if designs differ by more, and in any case


class MetricValues(RootModel[dict[str, float]], frozen=True):
    """Errors over all steps together, by metric (`courant.evaluation.metrics.METRICS`)."""

    def __getitem__(self, metric: str) -> float:
        return self.root[metric]

    @property
    def nmae(self) -> float:
        return self.root["nmae"]


Split = Literal["train", "validation", "test"]
StepErrors = dict[str, tuple[float, ...]]  # A measure for each step, for "all" and each component


class CaseErrors(BaseModel, frozen=True, extra="forbid"):
    """Errors on one case, by predictor."""

    design: str = ""  # in words, such as `radius 2 m, center x 0.5 m`
    windows: int
    overall: dict[str, MetricValues]
    nmae: dict[str, StepErrors]


class QuantityScore(BaseModel, frozen=True, extra="forbid"):
    """The answers for a quantity of interest, beside the null: parameters without fields.

    An error is the sum of absolute errors over the sum of absolute values.
    """

    unit: str
    meaning: str
    source: str  # what the answers are made of
    truth: dict[str, float | None]  # by case, as the solver measured it; None where not on record
    predicted: dict[str, float | None]
    null: dict[str, float | None] = {}  # by a Gaussian process on the parameters, if it was fitted
    band: float | None = None  # half-width of the left-out band, median over cases, over the mean
    spread: float | None = None  # standard deviation over the training designs, over the mean
    error: float | None
    rank_correlation: float | None
    fields_error: float | None = None  # of predicted fields against solved ones, without regression
    of_fields: dict[str, float | None] = {}  # by case, of the predicted fields alone
    of_solved_fields: dict[str, float | None] = {}
    null_error: float | None = None

    def error_of(self, values: Mapping[str, float | None]) -> float | None:
        """Return the error of other answers by case; None where one is missing."""
        pairs = [(values.get(case), x) for case, x in self.truth.items() if x is not None]
        size = sum(abs(x) for _, x in pairs)
        known = [abs(value - x) for value, x in pairs if value is not None]
        return sum(known) / size if size and len(known) == len(pairs) else None

    @property
    def constant(self) -> bool:
        """Whether all cases have one answer, of which the parameters say nothing."""
        known = [[x for x in of.values() if x is not None] for of in (self.predicted, self.truth)]
        answers, truth = (max(of, default=0.0) - min(of, default=0.0) for of in known)
        return answers < MOST_ALIKE * truth


def is_useful(band: float, spread: float | None) -> bool:
    """Return whether a band is narrow enough, given how much designs differ: both over a value."""
    return band <= max(FINE_BAND, min(USEFUL_BAND, spread or math.inf))


class Timing(BaseModel, frozen=True, extra="forbid"):
    """The time of a prediction, on the machine that it ran on."""

    prediction_processor_s: float  # median of CPU seconds of all threads; on a GPU of wall seconds
    given_processor_s: float | None = None  # of the fields that are given, on validation cases
    prediction_device: str
    prediction_threads: int
    solver_host: str


class Evaluation(BaseModel, frozen=True, extra="forbid"):
    """A trained run on a split of its dataset version."""

    run: str
    fingerprint: str  # of everything the numbers depend on
    date: str
    split: Split
    task: Kind
    dataset: dict[str, str]  # url, version and family
    components: tuple[str, ...] = Field(min_length=1)
    step_s: float | None  # time between predicted states; None in steady problems
    num_windows: int  # predictions over all cases
    cases: dict[str, CaseErrors] = Field(min_length=1)
    validation: dict[str, CaseErrors] = {}  # of the fields that are given alone
    beyond: tuple[str, ...] = ()  # those of them with a parameter beyond the training's cases
    overall: dict[str, MetricValues]
    by_component: dict[str, dict[str, MetricValues]]
    nmae: dict[str, StepErrors]
    relative_l2: dict[str, StepErrors]
    quantities: dict[str, QuantityScore] = {}
    not_predicted: dict[str, str] = {}  # the family's other quantities, with the reason in words
    timing: Timing

    @property
    def predictors(self) -> tuple[str, ...]:
        return tuple(self.overall)

    @property
    def references(self) -> tuple[str, ...]:
        return self.predictors[1:]

    @property
    def num_steps(self) -> int:
        return len(self.nmae[MODEL][ALL])

    @property
    def outlier(self) -> str:
        """The case that was not trained on of the largest error, where it is far off; or empty."""
        given = self.better_fields or MODEL
        errors = {of: each.overall[given].nmae for of, each in self.unseen.items()}
        worst = max(errors, key=errors.__getitem__)
        return worst if errors[worst] >= OUTLYING * self.overall[given].nmae else ""

    @property
    def unseen(self) -> dict[str, CaseErrors]:
        return {**self.validation, **self.cases}

    def split_of(self, case: str) -> Split:
        return "validation" if case in self.validation else self.split

    @property
    def better_fields(self) -> str:
        return better_fields(self.overall)


def better_fields(overall: Mapping[str, MetricValues]) -> str:
    """Return the regressed modes whose fields are clearly better than the model's; else empty."""
    errors = {overall[name].nmae: name for name in MODES if name in overall}
    least = min(errors, default=math.inf)
    return errors[least] if overall[MODEL].nmae > CLEAR_RATIO * least else ""


def record_of(split: Split) -> str:
    """Return the file's name: models are judged by that of the test cases."""
    return EVALUATION if split == "test" else f"evaluation-{split}.json"


def read_evaluation(run: RunDirectory, split: Split = "test") -> Evaluation | None:
    """Read the record of the run's present weights and of `split`; StoreError if damaged."""
    file = record_of(split)
    if not run.exists(file) or not run.exists(WEIGHTS):
        return None
    if run.read_object(file).get("fingerprint") != fingerprint(run, split):
        return None
    return run.read_record(file, Evaluation, "remove it and evaluate again")


def fingerprint(run: RunDirectory, split: str) -> str:
    """Hash what a record depends on: weights, whose run names its dataset, split and metrics."""
    metrics = zlib.crc32(",".join(METRICS).encode())
    return f"{weights_digest(run)[:16]}-{split}-{REVISION}-{metrics:08x}"
