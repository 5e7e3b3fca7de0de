"""The stages of the main job: each finds its finished work again, and does what is left.

A dataset is the truth about what is done: points that it has on record are not solved again. The
runs of trainings, sweeps and benchmarks are, too: killed at any moment, the same request goes on
from there. Work is done here, or as a job on a cluster, which leaves it where this process finds
it. Nothing imports Prefect, so that a command does without; the flows execute the same stages.
"""

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, Self, TypeVar

import numpy as np
from pydantic import TypeAdapter, ValidationError

import simgen
from courant import optimisation
from courant.evaluation.record import Evaluation, Split, read_evaluation, record_of
from courant.experiment import Experiment, parse_experiment
from courant.prediction.bands import LEVEL, conformal_quantile
from courant.recipes import fitted, get_recipe, recipe_of
from courant.report.page import INPUTS, current_page
from courant.report.verdict import judge_run
from courant.runs import record as records
from courant.runs.directory import RunDirectory
from courant.sweeps import benchmark, search_space, sweep
from flows import request_models as asks
from flows.settings import RUNS, absolute, beside, check_folder, check_job_reach, load_settings
from flows.solving import Execution, kind_of, solve_cases
from flows.terminal import Bars, TrialBars, announce, counted
from simgen.case import CaseFamily
from simgen.cases import add_template, get_family
from simgen.design_space import DesignPoint, scaled, unique
from simgen.errors import InputError, SimgenError
from simgen.foam.run import find_openfoam
from simgen.log_lines import about, duration_text
from simgen.regression import LEAST_DESIGNS, left_out
from simgen.solving import case_lock, solve_case
from simgen.store import schema, versions
from simgen.store.split import assign_splits, note_of_few
from simgen.store.write import DatasetWriter
from simgen.whole_file import local_path

Result = TypeVar("Result")
Found = TypeVar("Found", covariant=True)


class Stage(Protocol[Found]):
    """A request that can be executed: a dataclass of its flow's parameters."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def done(self) -> Found | None:
        """Return the result if nothing is left to do; InputError for a senseless request."""

    def check(self) -> None:
        """Raise for whatever would stop the stage, before anything starts."""

    def execute(self) -> Found:
        """Do what is left, and return the result."""


class LeftError(Exception):
    """A stage that is not done."""


def finished(stage: Stage[Result]) -> Result | None:
    """Return the result of a stage that is done, and say that it is."""
    done = stage.done()
    if line := getattr(done, "line", str)():
        announce(line)
    return done


def execute(stage: Stage[Result]) -> Result:
    """Return the result of a stage, which is executed unless it is done."""
    done = finished(stage)
    return stage.execute() if done is None else done


FINER = 1.5
"""How much finer the mesh is that is proposed for an optimum: three times the cells in 3D"""
NUM_FOLDS = 10
"""Of the designs that a band is found from. Bands from each design left out of a process whose
lengths are fitted to all hold for 79 % where `until` ends, not for 90 %."""

SolveCases = Callable[[Sequence[DesignPoint], DatasetWriter, Execution], None]


@dataclass(frozen=True)
class PublishedVersion:
    """Name a version of a dataset; the stages pass it on."""

    dataset: str
    version: str

    def line(self) -> str:
        """Describe its content: `cylinder-flow v1: 8 cases (5 train, ...) at <url>`."""
        dataset = simgen.open_dataset(self.dataset, self.version)
        left_out = ", ".join(dataset.left_out_cases)
        why = "have nearly all of the variance of a field, as diverged cases have"
        return repr(dataset).strip("<>") + f"; left out: {left_out}, which {why}" * bool(left_out)


class Generation(asks.GenerationRequest):
    """Solve the points that a dataset does not have yet, and publish a version."""

    @property
    def url(self) -> str:
        """Return the dataset's URL: a store has one dataset of each family."""
        return f"{load_settings().store_url(self.store)}/{self.family}"

    @cached_property
    def case_family(self) -> CaseFamily:
        """The family; that of a template is made of its case, and kept in the store."""
        if self.template is None:
            if self.vary or self.fields or self.quantity:
                raise InputError(
                    "--vary, --fields and --quantity are those of a template: give --template CASE"
                )
            return get_family(self.family, self.url)
        case, vary = local_path(self.template), self.vary or []
        record = versions.read_on_record(self.url)
        used = record is not None and (
            record.version is not None
            or any(row["status"] == "accepted" for row in record.design.values())
        )
        asked = self.fields, self.quantity
        return add_template(case, self.family, vary, *asked, self.url, is_used=used)

    @property
    def remake(self) -> dict[str, Any]:
        """Return the parameters that make the version again, for its record."""
        names = "family cases sampler seed designs design_parameters time_limit_s split"
        given = {name: getattr(self, name) for name in f"{names} vary fields quantity".split()}
        case = self.template and str(local_path(self.template))
        return {**given, "template": case, "preset": self._preset, "settings": self.settings or {}}

    @property
    def _preset(self) -> str:
        return self.preset or self.case_family.usual_preset

    @cached_property
    def points(self) -> list[DesignPoint]:
        """The points to solve: sampled, given, or as `designs` says."""
        family, settings = self.case_family, self.settings or {}
        values, _ = family.settings(self._preset, settings), self._shares
        if self.designs and self.design_parameters is not None:
            raise InputError("designs and design_parameters both name the designs; give one")
        if self.design_parameters is not None:
            if not self.design_parameters:
                raise InputError("design_parameters names no design; leave it out to sample some")
            designs = self.design_parameters
        elif not self.designs:
            designs = family.design_space.sample(self.cases, self.sampler, self.seed)
        elif local_path(self.designs).is_file() or not versions.repository_exists(
            absolute(self.designs)
        ):
            designs = family.design_space.read_csv(local_path(self.designs))
        else:
            dataset = simgen.open_dataset(absolute(self.designs))
            if dataset.schema.family != self.family:
                raise InputError(
                    f"--designs {dataset.url} holds {dataset.schema.family}, not {self.family}"
                )
            cases = [dataset[case] for case in dataset.required("test")]
            each = [family.settings(self._preset, {**c.settings, **settings}) for c in cases]
            return unique([family.point(c.parameters, s) for c, s in zip(cases, each, strict=True)])
        return unique([family.point(design, values) for design in designs])

    @cached_property
    def _shares(self) -> dict[str, float]:
        """The half-width of each band that is asked for, as a share of the quantity's mean."""
        known = [each.name for each in self.case_family.quantities]
        shares = {}
        for name, text in (self.until or {}).items():
            number = text.removesuffix("%")
            try:
                shares[name] = float(number) / (100 if number != text else 1)
            except ValueError:
                shares[name] = np.nan
            if name not in known:
                has = ", ".join(known) or "none"
                raise InputError(f"--until {name}: quantities of {self.family} are {has}")
            if not shares[name] > 0:
                raise InputError(f"--until {name}={text}: give a share of its mean, such as 5%")
        if shares and (self.sampler != "sobol" or self.designs or self.design_parameters):
            raise InputError("--until samples further designs of a Sobol sequence, and no others")
        return shares

    def done(self) -> PublishedVersion | None:
        """Return the newest version if it holds all on record, and all points are on record."""
        points = self.points
        record = versions.read_on_record(self.url)
        if record is None:
            return None
        record.schema.check_family(schema.Schema.of(self.case_family), self.url)
        if record.version is None or not record.is_published:
            return None
        left = to_solve(points, record.design, self.retry_failed)
        # How wide the bands are is written anew each time.
        return None if left or self._shares else PublishedVersion(self.url, record.version)

    def check(self) -> None:
        """Find the solver, make the scratch folder, and open the store, which shows what fails."""
        settings = load_settings()
        if not settings.ray_address:
            case_lock.make_scratch(Path(settings.scratch))
        self.open()

    def execute(self, solve: SolveCases = solve_cases) -> PublishedVersion:
        """Solve the points that are left, here by `solve` or on the cluster; publish a version."""
        writer, left = self.open()
        more = f", {len(self.points) - len(left)} on record" * (len(left) < len(self.points))
        announce(f"{self.family}: {counted(len(self.points), 'design')}, into {self.url}{more}")
        ours = dict(self.points[0].settings)
        for row in writer.design().values() if left else ():
            if row["status"] == "accepted" and row["settings"].items() - ours.items():
                theirs = sorted(row["settings"].items() - ours.items())
                again = " ".join(f"--set {name}={value:g}" for name, value in theirs)
                announce(f"note: cases here were solved with other settings; as before: {again}")
                break
        if self.template:
            named = [f"{patch} {kind}" for patch, kind in self.case_family.patches.items()]
            announce(f"patches   {', '.join(named)}")
            for each in self.case_family.quantities:
                announce(f"quantity  {each}")
        for line in self.case_family.notes():
            announce(line)
        if left and self.split is None:
            drawn = assign_splits([each.id for each in self.points], {})
            least = LEAST_DESIGNS * len(self.points[0].parameters)
            if few := note_of_few(drawn.values(), least):
                announce(f"note: {few}")
        how = Execution(self.time_limit_s, self.cores, self.archive_raw, self.split, self.note)
        if left and load_settings().jobs_address:
            store, _, family = self.url.rpartition("/")
            _run_job(f"solve-{family}", store, replace(self, store=store))
        elif left:
            solve(left, writer, how)
        if self._shares:
            design, of = writer.design(), self.case_family
            like_ours = {case: row for case, row in design.items() if row["settings"] == ours}
            bands = relative_bands(of, like_ours, self._shares)
            for name, share in self._shares.items():
                wide = f"not known of fewer than {least_designs(of)} accepted designs"
                if bands[name] < np.inf:
                    wide = f"{100 * bands[name]:.3g} % of its mean, {100 * share:g} % asked for"
                announce(f"{self.cases} designs: the band of {name} is {wide}")
            goes_on, grown = any(bands[n] > share for n, share in self._shares.items()), self
            while goes_on and grown.cases < self.most and not to_solve(grown.points, design, False):
                num = min(self.most, grown.cases + max(4, grown.cases // 4))
                grown = replace(grown, cases=num, retry_failed=False)
            if grown.cases > self.cases:
                return grown.execute(solve)
            if goes_on:
                announce(f"not reached: --most {self.most} ends it, a greater one goes on")
        if self.design_parameters and (record := versions.read_on_record(self.url)):
            solved = [record.design[each.id] for each in self.points]
            if record.version and all(each["status"] != "accepted" for each in solved):
                return PublishedVersion(self.url, record.version)
        message = f"{self.family}: {self._preset} preset, {len(self.points)} designs"
        published = PublishedVersion(self.url, writer.publish(message, self.remake))
        announce(published.line())
        design = writer.design()
        out = [point for point in self.points if design[point.id]["status"] != "accepted"]
        if out:
            reasons = [design[point.id]["reason"] for point in out]
            kinds = [*map(kind_of, reasons)]
            usual = max(kinds, key=kinds.count)
            announce(
                f"{len(out)} of {len(self.points)} designs were rejected or failed,"
                f" {kinds.count(usual)} as this one: {reasons[kinds.index(usual)]}; all reasons:"
                f" courant dataset show {self.url}"
            )
        return published

    def open(self) -> tuple[DatasetWriter, list[DesignPoint]]:
        """Return the dataset's writer and the points that are left; they need a solver."""
        if not versions.repository_exists(self.url):
            self.find_solver()  # before there is anything on disk
        writer = DatasetWriter.open(self.url, schema.Schema.of(self.case_family))
        left = to_solve(self.points, writer.design(), self.retry_failed)
        if left:
            self.find_solver()
        return writer, left

    def find_solver(self) -> None:
        """Raise InputError where cases cannot be solved: here, or by the cluster's jobs."""
        if load_settings().jobs_address:
            check_job_reach(self.url)
        else:
            find_openfoam(solve_case.needed_applications(self.case_family, self.cores))


def least_designs(family: CaseFamily) -> int:
    """Return how many accepted designs a band needs: four for each parameter, and nine in all.

    Of fewer no error is the quantile of 90 %.
    """
    return max(9, 4 * len(family.design_space.parameters))


def relative_bands(
    family: CaseFamily, design: Mapping[str, schema.Record], names: Iterable[str]
) -> dict[str, float]:
    """Return the half-width of the band of 90 % of quantities, over their mean absolute values.

    It is the quantile of the errors of a Gaussian process on the design parameters at the accepted
    designs, a tenth of them left out at a time. Infinite for fewer than `least_designs`.
    """
    accepted = [row for row in design.values() if row["status"] == "accepted"]
    parameters, bands = family.design_space.parameters, {}
    inputs = np.array([scaled(parameters, row["parameters"]) for row in accepted])
    for name in names:
        values = np.array([[row["quantities"].get(name)] for row in accepted], dtype=float)
        usable = np.isfinite(values).all(axis=-1)
        bands[name] = np.inf
        if usable.sum() >= least_designs(family) and values[usable].std():
            values = values[usable]
            errors = left_out(inputs[usable], values, NUM_FOLDS)[0] - values
            half = conformal_quantile(np.abs(errors[:, 0]), LEVEL)
            bands[name] = half / float(np.abs(values).mean())
    return bands


def _run_job(name: str, place: str, stage: Stage[Any]) -> None:
    from flows.ray_jobs import run_job

    run_job(name, place, stage, announce)


def to_solve(
    points: Sequence[DesignPoint], design: Mapping[str, schema.Record], retry_failed: bool
) -> list[DesignPoint]:
    """Select the points not on record, withdrawn ones, and on request failed ones."""
    unsolved = {"withdrawn", "failed"} if retry_failed else {"withdrawn"}
    solved = {case for case, row in design.items() if row["status"] not in unsolved}
    return [point for point in points if point.id not in solved]


class Training(asks.TrainingRequest):
    """Train an experiment on a dataset version; the result is the URL of the run."""

    def done(self) -> str | None:
        """Return the run if it was trained to its end."""
        experiment, dataset = open_training(self, self.budget)
        run = RunDirectory(runs_url(self)) / experiment.run_id(dataset.snapshot_id)
        return run.url if records.is_finished(run) else None

    def check(self) -> None:
        """Compare the experiment with the data, and write both to the run's record."""
        from courant.training.train import set_up_run

        check_job_reach(runs_url(self))
        experiment, dataset = open_training(self, self.budget)
        set_up_run(experiment, dataset, runs_url(self))
        if few := note_of_few(dataset.members.values()):
            announce(f"note: {few}")

    def execute(self, on_epoch: Callable[[records.EpochRecord], None] = lambda record: None) -> str:
        """Train here, or on the cluster, with a line for each validation and a bar."""
        experiment, dataset = open_training(self, self.budget)
        runs, settings = runs_url(self), load_settings()
        name = experiment.run_id(dataset.snapshot_id)
        run = RunDirectory(runs) / name
        ids = about(dataset=dataset.url, training_run=name, experiment=experiment.name)
        with ids, Bars(f"train {experiment.name}", experiment.training.epochs) as bars:

            def show(record: records.EpochRecord) -> None:
                note = f"loss {record.train_loss:.4f}, {duration_text(record.eta_s)} left"
                bars.show(record.epoch, note, record.epochs)
                if record.validation_nmae is not None and not settings.jobs_address:
                    announce(record.line())
                on_epoch(record)

            announce(f"run {run.url}")
            announce("NMAE: mean absolute error over mean absolute value, on validation cases")
            if budget := experiment.training.budget_s:
                announce(f"trains for {duration_text(budget)} of wall time; --budget changes it")
            bars.show(0, "reading the dataset")
            from courant.training import workers

            if settings.jobs_address:
                pinned = replace(self, dataset=dataset.url, version=dataset.version, runs=runs)
                with workers.following(run, show):
                    _run_job(f"train-{name}", runs, pinned)
                workers.check_finished(run)
                return run.url
            train = workers.train
            if settings.ray_address:
                from courant.training.ray_train import train
            train(experiment, dataset.url, dataset.version, runs, on_epoch=show)
        return run.url


def runs_url(asked: asks.TrainingRequest) -> str:
    """Return the URL of the folder of the runs: as given, or FOLDER/runs of FOLDER/store/NAME."""
    if given := asked.runs or load_settings().runs:
        return absolute(given)
    dataset = simgen.open_dataset(absolute(asked.dataset), asked.version)
    folder = dataset.url.rstrip("/").rsplit("/", 2)[0]
    return absolute(RUNS if folder in ("", "s3:/") else f"{folder}/runs")


def open_training(
    asked: asks.TrainingRequest, budget: str | None = None
) -> tuple[Experiment, simgen.Dataset]:
    """Return the dataset version and the experiment: given, the family's, or fitted to it."""
    dataset = simgen.open_dataset(absolute(asked.dataset), asked.version)
    small = None if dataset.schema.source else recipe_of(dataset.schema.family, "small")
    recipe = asked.recipe or small
    if asked.experiment:
        experiment = read_experiment(asked)
    else:
        experiment = get_recipe(recipe) if recipe else fitted.fitted_recipe(dataset)
    return with_values(experiment, asked.settings, budget), dataset


def with_values(
    experiment: Experiment, settings: Mapping[str, Any] | None, budget: str | None
) -> Experiment:
    """Return the experiment with these values, and with the epochs or the time of a budget."""
    found = benchmark.parse_budget(budget) if budget else None
    name = "budget_s" if found and found.unit == "processor" else "epochs"
    limit = {f"training.{name}": found.amount} if found else {}
    return experiment.with_values({**limit, **(settings or {})})


def read_experiment(asked: asks.TrainingRequest | asks.MainJobRequest) -> Experiment:
    """Read an experiment from a JSON file (as a run directory or a sweep writes it)."""
    path = asked.experiment or ""
    if asked.recipe:
        raise InputError(f"experiment {path} and recipe {asked.recipe} are given; leave one out")
    try:
        return parse_experiment(_read_file(path).decode(errors="replace"))
    except InputError as error:
        raise InputError(
            f"{path}: {error}; courant recipes show NAME prints an experiment to start from"
        ) from error


def _read_file(path: str) -> bytes:
    folder, _, name = absolute(path).rpartition("/")
    return RunDirectory(folder or "/").read_bytes(name)


@dataclass(frozen=True)
class Report:
    """Hold the URL of the report, the run and the split that it is of, and its summary."""

    url: str
    run: str
    split: Split
    verdict: str

    def line(self) -> str:
        """Return what is printed where the report was there already."""
        return f"evaluated before: to do it again, remove {self.run}/{record_of(self.split)}"


def report_folder(run: str, given: str | None = None) -> str:
    """Return where a run's report goes: of `courant run --out FOLDER` it stays FOLDER/report."""
    runs, _, name = absolute(run).rstrip("/").rpartition("/")
    own = RunDirectory(f"{runs.rpartition('/')[0]}/report")
    is_free = given is None and not load_settings().reports
    found = own.read_object(INPUTS) if is_free and own.exists(INPUTS) else {}
    is_own = str(found.get("run")).rpartition("/")[2] == name
    return own.url if is_own else beside(run, "reports", given)


class Measurement(asks.EvaluationRequest):
    """Measure a run's errors, and write its report."""

    @property
    def place(self) -> str | None:
        """Return the URL of the dataset, if it is not where the run says."""
        return None if self.dataset is None else absolute(self.dataset)

    @property
    def folder(self) -> str:
        """Return the URL of the report's folder; of other than test cases it has their split."""
        ending = "" if self.report or self.split == "test" else f"-{self.split}"
        return report_folder(self.run, self.report) + ending

    def done(self) -> Report | None:
        """Return the report if it is of the run's present weights on this split."""
        run = RunDirectory(absolute(self.run))
        records.check_trained(run)
        evaluation = read_evaluation(run, self.split)
        page = evaluation and current_page(run, RunDirectory(self.folder), evaluation)
        return self._report(page, evaluation) if evaluation and page else None

    def _report(self, page: str, evaluation: Evaluation) -> Report:
        run, known, split = RunDirectory(absolute(self.run)), evaluation.dataset, self.split
        verdict, newest = str(judge_run(run, evaluation)), None
        with suppress(SimgenError):
            newest = simgen.open_dataset(self.place or known["url"])
        there, here = len(newest.cases(split)) if newest else 0, len(evaluation.cases)
        if newest and there > here:
            has = f"has {counted(there, f'{split} case')}; evaluated are the {here}"
            verdict += f"\n{newest.version} {has} of {known['version']}: train again to use all"
        if command := records.predict_command(run, "design", newest):
            verdict += f"\npredict  {command}\nexplore  courant explore {shlex.quote(run.url)}"
        return Report(page, run.url, split, verdict)

    def check(self) -> None:
        """Find the dataset of the training, and check that the evaluation can be kept."""
        run = RunDirectory(absolute(self.run))
        if read_evaluation(run, self.split) is None:
            run.check_writable()
        check_folder(self.folder)
        records.open_recorded(run.url, records.read_dataset_record(run), self.place)

    def execute(self) -> Report:
        """Measure errors by component, case and step, beside the references; draw the report."""
        from courant.evaluation.evaluate import evaluate
        from courant.report.report import write_report

        run = absolute(self.run)
        announce(f"evaluate {run}: errors beside those of references, then the report")
        evaluation = evaluate(run, self.split, self.place)
        page = write_report(run, self.folder, self.place, self.split)
        return self._report(page, evaluation)


@dataclass(frozen=True)
class Finished:
    """The URL of a page, and its summary with what else there is in lines of their own."""

    page: str
    verdict: str


class Optimisation(asks.OptimisationRequest):
    """Search for the best designs, solve each candidate, and refit the answers after each."""

    @cached_property
    def asked(self) -> optimisation.Search:
        """The search before its first candidate; InputError for a senseless request."""
        goals = [*(self.maximise or ()), *(self.minimise or ())]
        if not goals:
            raise InputError("name a quantity to --maximise or to --minimise")
        if len(set(goals)) < len(goals):
            raise InputError("a quantity is to be maximised and minimised; name each once")
        limits = tuple(map(optimisation.parse_limit, self.subject_to or ()))
        run = absolute(self.run)
        records.check_trained(RunDirectory(run))
        recorded = records.read_dataset_record(RunDirectory(run))
        dataset = simgen.open_dataset(records.open_recorded(run, recorded, self.dataset).url)
        found = optimisation.Search(
            run=run,
            dataset=dataset.url,
            maximise=tuple(self.maximise or ()),
            minimise=tuple(self.minimise or ()),
            limits=limits,
            seed=self.seed,
        )
        declared = [each.name for each in dataset.schema.quantities]
        if unknown := [name for name in found.names if name not in declared]:
            names = f"they are {', '.join(declared)}" if declared else "it declares none"
            raise InputError(f"{dataset.schema.family} has no quantity {unknown[0]}: {names}")
        if dataset.schema.source is not None:
            raise InputError(
                f"the cases of {dataset.url} were solved elsewhere: no candidate can be solved;"
                " make one of them a template, courant generate NAME --template CASE --vary …"
            )
        if dataset.url.rpartition("/")[2] != dataset.schema.family:
            raise InputError(
                f"{dataset.url} is not named {dataset.schema.family}: candidates could not be added"
            )
        known = optimisation.known_values(dataset, found.names, recorded["settings"])
        return found.model_copy(update={"known": known})

    @property
    def folder(self) -> RunDirectory:
        """Return the folder of the search: its name follows from what is asked for."""
        if self.out is not None:
            return RunDirectory(absolute(self.out))
        place = RunDirectory(beside(self.run, "optimisations"))
        return place / f"{self.asked.name}"

    def read(self) -> optimisation.Search:
        """Return the search as far as it is on record; InputError for a folder of another one."""
        folder, asked = self.folder, self.asked
        if not folder.exists(optimisation.RECORD):
            return asked
        found = folder.read_record(
            optimisation.RECORD, optimisation.Search, "remove the folder and search again"
        )
        if found.name != asked.name or found.run != asked.run:
            raise InputError(f"{folder.url} has another search ({found.title}); give another --out")
        # What was withdrawn since is not known any more.
        known = {case: of for case, of in found.known.items() if case in asked.known}
        on_record, candidates = self._on_record(), list[optimisation.Candidate]()
        for each in found.candidates:
            is_new = each.status == "chosen"
            candidates.append(each if is_new else optimisation.ended(each, on_record, found.names))
        return found.of(*candidates).model_copy(update={"known": known})

    def done(self) -> Finished | None:
        """Return the optimum if as many candidates as asked for were solved."""
        search = self.read()
        ended = [each for each in search.candidates if each.status != "chosen"]
        return self._result(search) if len(ended) >= self.solves else None

    def check(self) -> None:
        """Find BoTorch, the solver, and that limits can be kept as far as is known."""
        if find_spec("botorch") is None:
            raise InputError("courant optimise needs BoTorch: pip install botorch")
        check_folder(self.folder.url)
        (generation := self._generation({})).check()
        generation.find_solver()
        search = self.read()
        dataset = simgen.open_dataset(search.dataset)
        optimisation.Emulator.of(search, dataset, generation.settings or {})

    def execute(self) -> Finished:
        """Choose, predict and solve one candidate after the other; write table and page each time.

        The record is written before a candidate is solved, so that the same request goes on.
        """
        from courant.evaluation.quantities import (
            ensure_answers,
            fit_answers,
            outcomes_of,
            score_again,
        )
        from courant.prediction.surrogate import load
        from courant.problems.problem import collected_warnings
        from courant.report.optimisation import write_search_page

        folder = self.folder
        with records.heartbeat(folder), Bars("optimise", self.solves) as bars:
            search, surrogate = self.read(), load(self.run)
            announce(f"search {folder.url}: {search.title}")
            ensure_answers(surrogate, surrogate.open_dataset(self.dataset))

            def keep(search: optimisation.Search) -> optimisation.Search:
                folder.write_json(optimisation.RECORD, search.model_dump(mode="json"))
                return search

            while (done := sum(c.status != "chosen" for c in search.candidates)) < self.solves:
                if not search.candidates or search.candidates[-1].status != "chosen":
                    bars.show(done, "choosing a design")
                    dataset = simgen.open_dataset(search.dataset)
                    settings = surrogate.dataset["settings"]
                    emulator = optimisation.Emulator.of(search, dataset, settings)
                    outcomes = outcomes_of(dataset, self._on_record())
                    design = emulator.choose(surrogate, outcomes, dataset, len(search.candidates))
                    case = self._generation(design).points[0].id
                    with collected_warnings() as warned:
                        chosen = optimisation.predicted(surrogate, case, design, self.dataset)
                    search = keep(search.of(*search.candidates, chosen))
                    for doubt in dict.fromkeys([*warned, *search.doubts(chosen)]):
                        announce(f"warning: candidate {case}: {doubt}")
                *earlier, chosen = search.candidates
                bars.show(done, f"solving {chosen.case}")
                execute(self._generation(chosen.design))
                newest = simgen.open_dataset(search.dataset)
                ended = optimisation.ended(chosen, self._on_record(), search.names)
                found = search.of(*earlier, ended)
                announce(ended.line(search.names))
                shares = {name: of.share for name, of in surrogate.answers.quantities.items()}
                surrogate.keep(fit_answers(surrogate, newest, shares))
                score_again(surrogate, surrogate.open_dataset(self.dataset))
                write_search_page(folder, found, surrogate, newest)
                search = keep(found)  # last, since an ended candidate is not gone into again
        return self._result(search)

    def _generation(self, design: dict[str, float]) -> Generation:
        """Return the stage that solves a design like the cases of the training."""
        recorded = records.read_dataset_record(RunDirectory(absolute(self.run)))
        store, _, family = self.asked.dataset.rpartition("/")
        return Generation(
            family=family,
            store=store,
            settings=recorded["settings"],
            design_parameters=[design] if design else None,
            cases=1,
            split="train",
            note=f"courant optimise {self.asked.run}: {self.asked.title}",
            time_limit_s=self.time_limit_s,
            cores=self.cores,
        )

    def _on_record(self) -> Mapping[str, schema.Record]:
        """Return all cases; those without an accepted solution may be in no version yet."""
        found = versions.read_on_record(self.asked.dataset)
        return found.design if found else {}

    def _result(self, search: optimisation.Search) -> Finished:
        """Return the optimum; SimgenError where none is found."""
        folder = self.folder
        if all(each.status != "accepted" for each in search.candidates):
            first = search.candidates[0]
            raise SimgenError(
                f"none of {len(search.candidates)} candidates has an accepted solution, the first"
                f" was {first.status}: {first.reason}; {folder.url} has all"
            )
        if not search.front(search.solved):
            raise SimgenError(f"{search.verdict} {folder.url}/index.html shows them")
        settings = dict(self._generation({}).settings or {})
        verdict = f"{search.verdict}\ntable  {folder.url}/{optimisation.TABLE}"
        if size := settings.get("mesh_size"):
            settings["mesh_size"] = float(f"{size / FINER:.2g}")
            # A steady solve needs more iterations on more cells.
            settings |= {n: 2 * of for n, of in settings.items() if n == "max_iterations"}
            verdict += "\non a finer mesh  " + shlex.join(
                ["courant", "generate", search.dataset.rpartition("/")[2]]
                + ["--designs", f"{folder.url}/{optimisation.BEST}"]
                + [f"--set={name}={value:g}" for name, value in settings.items()]
                + ["--store", f"{folder.url}/finer"]
            )
        return Finished(f"{folder.url}/index.html", verdict)


class Trials(asks.SweepRequest):
    """Try the settings of a search space."""

    def plan(self) -> sweep.Sweep:
        """Plan every trial, and compare each with the data."""
        space = search_space.load_space(self.space)
        opened = open_training(self, self.budget)
        return sweep.plan_sweep(*opened, space, self.trials, runs_url(self), self.seed)

    def done(self) -> Finished | None:
        """Return None: `execute` looks at each trial, and skips those that have ended."""
        search_space.load_space(self.space)
        open_training(self, self.budget)
        return None

    def check(self) -> None:
        """Reject settings that do not fit the data."""
        check_job_reach(runs_url(self))
        self.plan()

    def execute(self) -> Finished:
        """Run all trials on Ray, with a line as each ends, and write the page."""
        from courant.report.comparison import sweep_line, write_sweep_page

        plan = self.plan()
        folder = plan.folder.url
        runs, _, name = folder.rpartition("/")
        ids = about(dataset=plan.dataset_url, sweep=name)
        with ids, TrialBars() as bars:
            for line in (f"sweep {folder}", *plan.left_out):
                announce(line)
            bars.begin(plan.trials)
            if load_settings().jobs_address:
                results = [sweep.read_result(trial) for trial in plan.trials]
                if not all(sweep.is_done(result, self.early_stopping) for result in results):
                    version = plan.version
                    pinned = replace(self, dataset=plan.dataset_url, version=version, runs=runs)
                    _run_job(f"sweep-{name}", runs, pinned)
                    results = [sweep.read_result(trial) for trial in plan.trials]
            else:
                from courant.sweeps.ray_trials import run_sweep

                names = ("early_stopping", "cpus_per_trial", "gpus_per_trial")
                limits = {name: getattr(self, name) for name in names}
                results = run_sweep(plan, on_trial=bars.show_trial, **limits)
        verdict = f"{sweep_line(plan, results)}\nbest  {folder}/{sweep.BEST}"
        return Finished(write_sweep_page(plan, results), verdict)


class ModelBenchmark(asks.BenchmarkRequest):
    """Train models at an equal budget, and compare them."""

    def plan(self) -> tuple[benchmark.Benchmark, simgen.Dataset]:
        """Make every experiment, and compare each with the data."""
        from courant.problems import open_problem

        budget = benchmark.parse_budget(self.budget)
        base, opened = open_training(self)
        # Trainings that are compared have the same budget, and spend all of it.
        base = base.derive(training={"budget_s": None, "patience": None})
        if self.space and (self.models or self.sizes):
            raise InputError(
                "give models, and sizes of them, or a space of one model's settings, not both"
                " (models=null for a deployment that sets them)"
            )
        space = search_space.load_space(self.space) if self.space else None
        left_out: tuple[str, ...] = ()
        if space:
            space, left_out = space.applied_to(base, lambda made: open_problem(made, opened))
            contenders = benchmark.settings_of(space, base, opened)
        else:
            try:
                given = _read_file(self.sizes) if self.sizes else b"{}"
                sizes = TypeAdapter(dict[str, dict[str, Any]]).validate_json(given)
            except ValidationError as error:
                example, why = '{"transolver": {"width": 64}}', error.errors()[0]["msg"]
                raise InputError(
                    f"{self.sizes} holds no sizes by model, such as {example}: {why}"
                ) from error
            contenders = benchmark.choose_contenders(
                self.models or ("courant", "transolver", "upt"), base, opened, sizes
            )
        planned = benchmark.plan_benchmark(
            base,
            contenders,
            opened,
            budget=budget,
            runs_url=runs_url(self),
            out=None if self.out is None else absolute(self.out),
            rates=self.rates or benchmark.RATES,
            seeds=self.seeds,
            best=self.best,
            space=space.name if space else None,
            left_out=left_out,
        )
        return planned, opened

    def done(self) -> Finished | None:
        """Write the page anew where every trial is on record."""
        planned, dataset = self.plan()
        planned.check_folder()
        return self._results(planned, dataset)

    def check(self) -> None:
        """Reject what does not fit the data, or a folder that is another benchmark's."""
        planned, _ = self.plan()
        check_job_reach(planned.url)
        planned.write()

    def execute(self) -> Finished:
        """Run all trials on Ray, with a line as each ends, and write the results."""
        planned, data = self.plan()
        limits = {name: getattr(self, name) for name in ("cpus_per_trial", "gpus_per_trial")}
        with TrialBars() as bars:

            def on_phase(phase: benchmark.Phase) -> None:
                bars.begin(phase.trials)
                announce(f"{phase.name}: {len(phase.trials)} to do")

            announce(f"benchmark {planned.url}")
            if load_settings().jobs_address is None:
                from courant.sweeps.ray_trials import run_benchmark

                run_benchmark(planned, on_phase=on_phase, on_trial=bars.show_trial, **limits)
            elif benchmark.next_phase(planned) is not None:
                place, _, name = planned.url.rpartition("/")
                runs = runs_url(self)
                pinned = replace(self, dataset=data.url, version=data.version, runs=runs)
                _run_job(f"benchmark-{name}", place, pinned)
        results = self._results(planned, data)
        if results is None:
            raise SimgenError(f"{planned.url}: some trials did not end; the same command goes on")
        return results

    def _results(self, planned: benchmark.Benchmark, data: simgen.Dataset) -> Finished | None:
        """Write the results where every trial is on record, else return None."""
        from courant.report.comparison import write_benchmark_page
        from courant.sweeps.benchmark_table import read_table

        if benchmark.next_phase(planned) is not None:
            return None
        table = read_table(planned, data, benchmark.final_trials(planned))
        return Finished(write_benchmark_page(table), table.verdict())


@dataclass(frozen=True)
class Outcome:
    """Hold the URLs that the stages left; None for a stage that was skipped or not asked for."""

    dataset: PublishedVersion | None
    run: str | None
    report: Report | None

    def line(self) -> str:
        """Return what the stages print that were done already."""
        return "\n".join(each.line() for each in (self.dataset, self.report) if each)


class MainJob(asks.MainJobRequest):
    """Run dataset, sweep, model, evaluation and report, or those that are asked for."""

    @cached_property
    def resolved(self) -> Self:
        """This job with its dataset version and its recipe named, so that all stages take the same.

        InputError for wrong names: it comes now, and not when the cases are solved.
        """
        if self.run:
            names = ("dataset", "version", "sweep", "trials", "recipe", "experiment", "designs")
            given = [name for name in names if getattr(self, name)]
            given += ["until"] * (self.until != "report")
            if given:
                raise InputError(
                    "a run is given: it has its dataset and its recipe, and only its report is left"
                    f" to make; leave {given[0]} out ({given[0]}=null for a deployment that sets"
                    " it)"
                )
            return self
        if self.sweep:
            search_space.load_space(self.sweep)
        elif self.trials:
            raise InputError("trials are those of a sweep; give a sweep too")
        if self.dataset is None:
            _ = self.generation.case_family
            job = self._with_recipe(self.family)
            _ = job.generation.points
            return job
        opened = simgen.open_dataset(absolute(self.dataset), self.version)
        found = replace(self, dataset=opened.url, version=opened.version)
        if opened.schema.source is not None and not (self.recipe or self.experiment):
            return found  # imported: the training fits a recipe to the data
        return found._with_recipe(opened.schema.family)

    def _with_recipe(self, family: str) -> Self:
        """Name the family's recipe for a demonstration if no other is named."""
        if self.until == "dataset":
            return self
        if self.experiment:
            chosen, recipe = read_experiment(self), None
        else:
            name = self.recipe or recipe_of(family, "demo")
            if name is None:  # of a user's own: the training fits a recipe to the data
                _ = self.budget and benchmark.parse_budget(self.budget)
                return self
            chosen = get_recipe(name)
            recipe = chosen.name
        with_values(chosen, self.settings_of("experiment"), self.budget)
        if chosen.family != family:
            raise InputError(
                f"experiment {chosen.name} is for {chosen.family}, the cases are of {family};"
                " choose a recipe of that family"
            )
        return replace(self, recipe=recipe)

    def settings_of(self, part: Literal["solver", "experiment"]) -> dict[str, Any] | None:
        """Return the settings without or with a section's name before a dot."""
        found = {
            name: value
            for name, value in (self.settings or {}).items()
            if ("." in name) == (part == "experiment")
        }
        return found or None

    @cached_property
    def generation(self) -> Generation:
        """The first stage, for a job without a given dataset or run."""
        asked = {each.name: getattr(self, each.name) for each in fields(asks.CaseRequest)}
        return Generation(**{**asked, "settings": self.settings_of("solver")})

    def done(self) -> Outcome | None:
        """Return what is there if no stage has anything left to do; a sweep always has."""
        return self._find(lambda stage: None)

    def check(self) -> None:
        """Reject what the first unfinished stage cannot do."""
        self._find(lambda stage: stage.check())

    def _find(self, on_unfinished: Callable[[Stage[Any]], None]) -> Outcome | None:
        def find(stage: Stage[Result]) -> Result:
            if (done := stage.done()) is None:
                on_unfinished(stage)
                raise LeftError
            return done

        with suppress(LeftError):
            return self.execute(find)
        return None

    def execute(self, each: Callable[[Stage[Any]], Any] = execute) -> Outcome:
        """Execute one stage after the other, each unless it is done."""
        job = self.resolved
        if job.run:
            run = absolute(job.run)
            return Outcome(None, run, each(Measurement(run, job.report)))
        if job.dataset and job.version:
            published = PublishedVersion(job.dataset, job.version)
        else:
            published = each(job.generation)
        if job.until == "dataset":
            return Outcome(published, None, None)
        where = published.dataset, published.version
        settings = job.settings_of("experiment")
        training = Training(*where, job.recipe, job.experiment, settings, job.budget, job.runs)
        if job.sweep:
            tried = each(Trials(space=job.sweep, trials=job.trials, **asdict(training)))
            # A trial is an ordinary run: the best one is found there if it was trained to its end,
            # and goes on if not.
            at = tried.page.rpartition("/")[0]
            training = Training(
                *where, experiment=f"{at}/{sweep.BEST}", runs=f"{at}/{sweep.TRIALS}"
            )
        trained = each(training)
        if job.until == "run":
            return Outcome(published, trained, None)
        return Outcome(published, trained, each(Measurement(trained, job.report)))
