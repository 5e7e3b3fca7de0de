"""Plan a benchmark: a sweep whose first axis is the model, at an equal budget, over seeds.

    <out>/
        request.json                  what was asked for
        trials/<run>/                 run directories, named by the content of their experiments
        index.html figure.png table.csv table.json
        ray/                          Ray Tune's notes

A benchmark that is run again finds its finished trials there. More models or seeds extend it; other
data, another budget or another recipe are another benchmark. Contenders are experiments that differ
in nothing but the model: `courant` is the recipe itself, a baseline's kind puts that model in its
place, and variants change Courant's windows or anchors. `NAME-x2` is any of them with two members.
The phases follow from the run directories that those before them left:

    speed       a few batches of each model: its processor time for an epoch (where the budget is
                processor time)
    search      each learning rate at a share of the budget; the lowest validation NMAE wins
    seeds       the budget itself, with the chosen rate: each model's first seed, then the others;
                each is evaluated on the test split once it is trained
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, Field, ValidationError

from courant.evaluation.record import read_evaluation
from courant.experiment import MACHINE, MAX_EPOCHS, MAX_NAME, Experiment, Frozen, wrong_keys
from courant.models import kinds
from courant.recipes.compared import compared
from courant.recipes.variants import LEGIBLE, PLACED
from courant.runs.directory import RunDirectory
from courant.runs.record import read_records, read_status, write_status
from courant.sweeps.search_space import BASELINE, CHOICE, SearchSpace, label, show
from courant.sweeps.sweep import TRIALS, Trial, is_done, read_result
from simgen.errors import InputError, did_you_mean
from simgen.log_lines import duration_text

if TYPE_CHECKING:
    from simgen.store.read import Dataset

COURANT = "courant"
VARIANTS: dict[str, Callable[[Experiment], Experiment]] = {
    COURANT: Experiment.derive,
    "courant-gwa": partial(Experiment.derive, model={"gaussian_window": "both"}),
    "courant-learned-anchors": partial(Experiment.derive, model={"anchor_kind": "learned"}),
    "courant-placed-anchors": partial(Experiment.derive, **PLACED),
    "courant-legible": partial(Experiment.derive, **LEGIBLE),
    # Without places, contributions have no distance from them that the loss could weigh.
    "courant-abstract-queries": partial(
        Experiment.derive, model={"anchor_kind": "abstract"}, training={"locality_weight": 0.0}
    ),
}
"""The recipe, and what puts Courant's optional parts into it, by name"""
CHOSEN = {
    "training.learning_rate": "searches it for each model; give --rates",
    "training.warmup_steps": "limits it to a part of each training",
    "training.checkpoint_every": "takes it from the number of validations",
}
"""Keys that a benchmark sets itself, and how"""
Sizes = Mapping[str, Mapping[str, Any]]  # Model sizes by contender, in place of the usual ones
REQUEST = "request.json"
RATES = (3e-4, 1e-3, 3e-3)  # Learning rates that are tried for every model
SEARCH_SHARE = 0.25  # Budget of each trial of the search, over that of a trial that counts
SPEED_EPOCHS, SPEED_BATCHES = 4, 10  # of a speed trial, whose first epoch does not count
_Rates = Annotated[
    tuple[Annotated[float, Field(gt=0)], ...],
    Field(min_length=1),
    AfterValidator(lambda rates: tuple(sorted(set(rates)))),
]
_UNITS = {"h": 3600.0, "min": 60.0, "s": 1.0}
LONGEST_H = 10_000


class Budget(Frozen):
    """What each trial may spend on training."""

    unit: Literal["epochs", "processor"]
    amount: float  # Epochs, or seconds of processor time

    @property
    def text(self) -> str:
        if self.unit == "epochs":
            return f"{self.amount:.0f} epochs"
        return f"{duration_text(self.amount)} of processor time"


class Benchmark(Frozen):
    """A benchmark, complete but for what its own trials find out."""

    base: Experiment
    contenders: dict[str, Experiment]  # The models that take part, by their names in tables
    dataset_url: str
    version: str
    snapshot_id: str
    budget: Budget
    rates: _Rates = RATES  # Learning rates to choose from, rising; one alone is taken as it is
    seeds: int = Field(default=1, ge=1, le=100)
    """Trainings of each model, with the recipe's seed and those after it"""
    best: int | None = Field(default=None, ge=1)  # models with all seeds, by the first one's error
    url: str  # Of its folder
    space: str | None = None  # whose settings are compared; None for models by name
    left_out: tuple[str, ...] = ()  # a line for each setting that means nothing to the recipe

    @property
    def folder(self) -> RunDirectory:
        return RunDirectory(self.url)

    @property
    def searches(self) -> bool:
        return len(self.rates) > 1

    def identity(self) -> dict[str, Any]:
        """Return what makes this another benchmark than one in the same folder, as JSON."""
        return {
            "recipe": self.base.model_dump(mode="json", exclude=MACHINE),
            "snapshot": self.snapshot_id,
            "budget": self.budget.model_dump(mode="json"),
            "rates": list(self.rates),
            "space": self.space,
        }

    def check_folder(self) -> None:
        """Raise InputError where the folder holds another benchmark."""
        if not self.folder.exists(REQUEST):
            return
        found = self.folder.read_object(REQUEST)
        other = [key for key, value in self.identity().items() if found.get(key) != value]
        if other:
            raise InputError(
                f"{self.url} holds another benchmark: its {', '.join(other)} is not the same as"
                " asked for now; give another --out"
            )

    def write(self) -> None:
        """Write request.json; InputError where the folder holds another benchmark."""
        self.check_folder()
        asked = self.model_dump(mode="json", include={"dataset_url", "version", "seeds", "best"})
        content = {**self.identity(), **asked, "models": list(self.contenders)}
        self.folder.write_json(REQUEST, content)


def plan_benchmark(
    base: Experiment,
    contenders: Mapping[str, Experiment],
    dataset: Dataset,
    *,
    runs_url: str,
    out: str | None = None,
    **asked: Any,
) -> Benchmark:
    """Check a benchmark and give it its folder: `out`, or one among the runs named by its content.

    `asked` are further fields of it. InputError for a dataset without test or validation cases, and
    for numbers that make no sense.
    """
    for split in ("train", "validation", "test"):
        dataset.required(split)
    if not contenders:
        raise InputError("no model is named; give --models courant,transolver or --space features")
    try:
        planned = Benchmark(
            base=base,
            contenders=dict(contenders),
            dataset_url=dataset.url,
            version=dataset.version,
            snapshot_id=dataset.snapshot_id,
            url=out or "",
            **asked,
        )
    except ValidationError as error:
        raise InputError(f"benchmark: {wrong_keys(error)}") from error
    if out is None:
        content = json.dumps(planned.identity(), sort_keys=True)
        digest = hashlib.sha256(content.encode()).hexdigest()[:10]
        named = f"{runs_url.rstrip('/')}/{base.name}-benchmark-{digest}"
        planned = planned.model_copy(update={"url": named})
    return planned


def contender_names() -> tuple[str, ...]:
    """Return the names that `--models` takes, each also with a number of members."""
    return (*VARIANTS, *(kind for kind in kinds() if kind != COURANT))


def of_members(name: str) -> tuple[str, int]:
    """Split `NAME-x2`, unless a model is named so, into a model's name and its members or 0."""
    known = name in contender_names()
    found = None if known else re.fullmatch(r"(.+)-x([2-9]|[1-5]\d|6[0-4])", name)
    return (found[1], int(found[2])) if found else (name, 0)


def choose_contenders(
    names: Sequence[str], base: Experiment, dataset: Dataset, sizes: Sizes
) -> dict[str, Experiment]:
    """Return the contenders of these names; InputError for one that does not fit the data."""
    from courant.problems import open_problem
    from courant.training.step import uses_graphs

    known = contender_names()
    for name in names:
        kind, _ = of_members(name)
        if kind not in known:
            raise InputError(
                f"model '{name}' is unknown; {did_you_mean(kind, known)}choose of"
                f" {', '.join(known)}; behind each, -x2 to -x64 makes so many members"
            )
    unused = sorted(set(sizes) - {*names, *(of_members(name)[0] for name in names)})
    if unused:
        raise InputError(f"sizes are given for {', '.join(unused)}, which is not compared")
    made = {}
    for name in names:
        kind, members = of_members(name)
        # A recipe of several members is compared with as many of each model. Sizes of Courant are
        # those of its variants, and those of a model are those of several of it.
        shared = sizes.get(COURANT, {}) if kind in VARIANTS else {}
        own = {"num_members": base.model.num_members, **shared}
        own |= {**sizes.get(kind, {}), **sizes.get(name, {})}
        if members:
            own["num_members"] = members
        try:
            if kind in VARIANTS and base.model.kind != COURANT:
                raise InputError(
                    f"the recipe {base.name} has a {base.model.kind} in Courant's place; give a"
                    f" recipe of Courant, or leave {name} out"
                )
            if kind in VARIANTS:
                experiment = VARIANTS[kind](base).derive(model=own)
            else:
                # Named anew, so that the paper's own epochs and batches do not come with its
                # models.
                anew = base.derive(name=f"{base.name}-benchmark")
                placed = compared(anew, kind, has_mesh=dataset[dataset.cases()[0]].mesh is not None)
                experiment = placed.derive(model=own)
            open_problem(experiment, dataset)
            uses_graphs(experiment)
        except InputError as error:
            raise InputError(
                f"model {name} cannot be used on {dataset.url} {dataset.version}: {error}"
            ) from error
        made[name] = experiment
    return made


def settings_of(space: SearchSpace, base: Experiment, dataset: Dataset) -> dict[str, Experiment]:
    """Return the settings of a space around the recipe, which is first, by what each changes."""
    from courant.problems import open_problem

    linked = (key for values in space.choices.values() for key in values)
    if chosen := [key for key in (*space.parameters, *linked) if key in CHOSEN]:
        raise InputError(
            f"space {space.name}: {chosen[0]} cannot be compared: a benchmark {CHOSEN[chosen[0]]}"
        )
    num, baseline = space.count(base), space.baseline(base)
    if num is None:
        raise InputError(
            f"space {space.name} draws its values at random; a benchmark compares settings that"
            " are named: use design isolated or grid"
        )
    made: dict[str, Experiment] = {}
    for setting, _ in zip(space.settings(base, seed=0), range(num), strict=False):
        changed = [
            show(value) if key == CHOICE else f"{label(key)} {show(value)}"
            for key, value in setting.items()
            if value != baseline[key] and value != BASELINE
        ]
        name = ", ".join(changed) or base.model.kind
        if name in made:
            raise InputError(
                f"space {space.name}: two settings have the name '{name}'; leave one out, or take"
                " values that differ in four digits"
            )
        made[name] = space.apply(base, setting)
        open_problem(made[name], dataset)
    return dict(sorted(made.items(), key=lambda item: item[0] != base.model.kind))


def parse_budget(text: str) -> Budget:
    """Parse `40 epochs`, `90s`, `30min` or `2h`; InputError for anything else."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(epochs?|s|min|h)\s*", text)
    amount = float(found[1]) if found else 0.0
    if found is None or not amount:
        raise InputError(f"budget '{text}': give epochs (40epochs) or a time (90s, 30min, 2h)")
    if found[2].startswith("epoch"):
        if amount > MAX_EPOCHS or amount != int(amount):
            raise InputError(f"budget '{text}': give whole epochs, {MAX_EPOCHS:,} at most")
        return Budget(unit="epochs", amount=amount)
    if (seconds := amount * _UNITS[found[2]]) > LONGEST_H * 3600:
        raise InputError(f"budget '{text[:20]}': give {LONGEST_H:,} h at most")
    return Budget(unit="processor", amount=seconds)


def speed_trials(benchmark: Benchmark) -> list[Trial]:
    """Return a short training of each model; none where the budget is epochs.

    It has one validation window. Its rate is the lowest of those that are tried: where that
    diverges, all others do.
    """
    if benchmark.budget.unit == "epochs":
        return []
    made = []
    for name, experiment in benchmark.contenders.items():
        short = {
            "epochs": SPEED_EPOCHS,
            "validation_windows": 1,
            "learning_rate": benchmark.rates[0],
            "samples_per_epoch": SPEED_BATCHES * experiment.training.batch_size,
            "validate_every": SPEED_EPOCHS,
            "checkpoint_every": SPEED_EPOCHS,
        }
        made.append((name, "speed", experiment.derive(training=short)))
    return _numbered(benchmark, made)


def search_trials(benchmark: Benchmark) -> list[Trial]:
    """Return each model at each learning rate, for a share of the budget."""
    rates = benchmark.rates if benchmark.searches else ()
    made = [
        (name, f"rate {rate:g}", _trained(benchmark, name, rate, SEARCH_SHARE))
        for name in benchmark.contenders
        for rate in rates
    ]
    return _numbered(benchmark, made)


def final_trials(benchmark: Benchmark, *, first: bool = False) -> list[Trial]:
    """Return the trainings that count at each model's chosen rate; none where every rate failed.

    They are the `first` seeds alone, or, once these have ended, all seeds. With `best`, only the
    models of the lowest validation NMAE of the first seed have all.
    """
    best = set(benchmark.contenders)
    if benchmark.best is not None and not first:
        found = {
            contender_of(trial): nmae
            for trial in final_trials(benchmark, first=True)
            if (nmae := _nmae(trial)) is not None
        }
        best = set(sorted(found, key=lambda name: found[name])[: benchmark.best])
    made = []
    for name in benchmark.contenders:
        if (rate := chosen_rate(benchmark, name)) is None:
            continue
        trained = _trained(benchmark, name, rate)
        seed = trained.training.seed
        made += [
            (name, f"seed {each}", trained.derive(training={"seed": each}))
            for each in range(seed, seed + (1 if first or name not in best else benchmark.seeds))
        ]
    return _numbered(benchmark, made)


def chosen_rate(benchmark: Benchmark, name: str) -> float | None:
    """Return a model's rate of the lowest validation NMAE; None where every rate failed."""
    if not benchmark.searches:
        return benchmark.rates[0]
    found = {
        nmae: trial.experiment.training.learning_rate
        for trial in reversed(search_trials(benchmark))
        if contender_of(trial) == name and (nmae := _nmae(trial)) is not None
    }
    return found[min(found)] if found else None


def _nmae(trial: Trial) -> float | None:
    result = read_result(trial)
    return None if result.state == "failed" else result.nmae


def _trained(benchmark: Benchmark, name: str, rate: float, share: float = 1.0) -> Experiment:
    """Give a training a share of the budget, over which its schedule runs.

    An epoch that is a whole pass is counted by the speed trial. InputError for a budget below one
    epoch, and where the speed trial failed: the model cannot be trained here at all.
    """
    experiment, budget = benchmark.contenders[name], benchmark.budget
    training, samples = experiment.training, experiment.training.samples_per_epoch
    epochs = int(budget.amount)
    if budget.unit == "processor":
        (trial,) = (trial for trial in speed_trials(benchmark) if contender_of(trial) == name)
        if (result := read_result(trial)).state == "failed":
            raise InputError(
                f"model {name} cannot be trained on {benchmark.dataset_url}: {result.reason}; leave"
                " it out of --models"
            )
        if samples is None:
            samples = read_status(trial.run).different_samples
        assert samples is not None
        used = median(record.processor_s for record in read_records(trial.run)[1:])
        batches = max(1, samples // training.batch_size)
        epoch_s = used * batches / SPEED_BATCHES
        if budget.amount < epoch_s:
            raise InputError(
                f"budget {duration_text(budget.amount)} is too small for one epoch of {name}, which"
                f" takes {duration_text(epoch_s)} of processor time; raise --budget, leave {name}"
                " out, or lower training.samples_per_epoch in an experiment of your own"
            )
        epochs = min(int(budget.amount / epoch_s), MAX_EPOCHS)
    epochs = max(1, round(share * epochs))
    per_epoch = None if samples is None else max(1, samples // training.batch_size)
    scaled = training.with_epochs(epochs, per_epoch).model_dump()
    return experiment.derive(training={**scaled, "learning_rate": rate, "workers": 1})


def _numbered(benchmark: Benchmark, made: Sequence[tuple[str, str, Experiment]]) -> list[Trial]:
    """Make trials of experiments, whose run directories are named by their content."""
    trials = []
    for number, (name, purpose, experiment) in enumerate(made, start=1):
        slug = re.sub(r"[^a-z0-9]+", "-", f"{name}-{purpose}".lower()).strip("-")
        named = experiment.derive(name=slug[:MAX_NAME])
        run = benchmark.folder / TRIALS / named.run_id(benchmark.snapshot_id)
        trials.append(Trial(number, {"model": name, "trial": purpose}, named, run))
    return trials


def contender_of(trial: Trial) -> str:
    return str(trial.setting["model"])


class Phase(NamedTuple):
    """Trials that are left to train, or to evaluate."""

    name: str
    trials: list[Trial]
    counts: bool  # Each is evaluated, and has a process of its own: its peak memory is in the table


def next_phase(benchmark: Benchmark) -> Phase | None:
    """Return the first phase of which anything is left to do; None for a finished benchmark."""
    for name, planned, counts in (
        ("speed", speed_trials, False),
        ("search", search_trials, False),
        ("first seed", partial(final_trials, first=True), True),
        ("further seeds", final_trials, True),
    ):
        waiting = [each for each in planned(benchmark) if not is_complete(each, evaluated=counts)]
        if waiting:
            return Phase(name, waiting, counts)
    return None


def is_complete(trial: Trial, *, evaluated: bool) -> bool:
    """Whether a trial has ended, and is `evaluated` if it could be trained."""
    result = read_result(trial)
    if evaluated and result.state == "finished":
        return read_evaluation(trial.run, "test") is not None
    return is_done(result, early_stopping=False)


def evaluate_trial(run: RunDirectory, dataset_url: str) -> None:
    """Evaluate a trained trial on the test split; one that predicts NaN has failed by itself."""
    from courant.evaluation.evaluate import evaluate
    from courant.prediction.surrogate import NotFiniteError

    try:
        evaluate(run.url, "test", dataset_url)
    except NotFiniteError as error:
        write_status(run, "failed", reason=str(error))
