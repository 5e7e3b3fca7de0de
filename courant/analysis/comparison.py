"""Scores of whole runs, and of several runs side by side.

Runs that differ in their seed alone are one row, with the mean and its interval; its fields are
matched with those of the next seed in the row. Runs of several families are in one table, each
family's rows together and followed by its controls. A family's first row is called `first`, others
are named by what differs from it. Each run is scored once: `<run>-<key>.json` in the folder is read
again as long as weights and cases are the same.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean
from typing import Any

import pandas as pd

from courant.analysis import Progress
from courant.analysis.dynamics import follow_case
from courant.analysis.scores import (
    SCORES,
    CaseScores,
    ablation_effects,
    ablation_scores,
    mean_scores,
    score_case,
    values_by_score,
)
from courant.evaluation.ledger import Interval
from courant.evaluation.references import shared
from courant.experiment import MACHINE
from courant.prediction.surrogate import load
from courant.runs.directory import RunDirectory
from courant.runs.record import open_recorded, read_dataset_record
from courant.runs.summary import flatten
from courant.runs.weights import weights_digest
from simgen.errors import InputError

REVISION = 6  # Raise this when the file has other entries, or the same run would get other scores
MACHINES = {f"{section}.{name}" for section, names in MACHINE.items() for name in names}
LEFT_OUT = ("training.seed", "name", *MACHINES)  # settings by which runs of one row may differ
PLANNED = ["epochs", "validate_every", "checkpoint_every", "step_epochs", "warmup_steps"]
"""What a training within a budget of time takes by the pace of its machine"""
QUESTION = ("task", "data.fields", "data.step_s")  # what a run of a family predicts
SEEDS = "seed_correlation"


def score_run(
    run_url: str,
    cases: Sequence[str] = (),
    other_url: str | None = None,
    progress: Progress = lambda done, total: None,
    dataset_url: str | None = None,
    keep: Callable[[CaseScores], None] = lambda case: None,
) -> dict[str, Any]:
    """Score the run on some cases (none named: on the test split), beside controls.

    The record has the `mean` scores, those of the `controls` by name, and both of each of the
    `cases`. `dataset_url` is where the dataset of the training is now, if it was moved. `keep` gets
    each case with its fields, which are in memory for one case at a time. InputError for a model
    that does not decompose its predictions, and for another run that predicts something else.
    """
    surrogate = load(run_url)
    other = None if other_url is None else load(other_url)
    for each in (surrogate, other):
        if each is not None and not each.decomposes:
            raise InputError(
                f"{each.url}: a model of kind {each.model.config.kind} does not decompose its"
                " predictions, so there is nothing to score"
            )
    if other is not None:
        ours, theirs = (
            f"{', '.join(each.channels)} of {each.dataset['family']} (step {each.step_s} s)"
            for each in (surrogate, other)
        )
        if ours != theirs:
            raise InputError(
                f"{other.url} predicts {theirs}, the run {ours}: compare like with like"
            )
    dataset = surrogate.open_dataset(dataset_url)
    chosen = list(cases) or dataset.required("test", "name one by --case")
    training = shared(dataset, surrogate.normaliser) if len(dataset.cases("train")) > 1 else None
    found: dict[str, dict[str, Any]] = {}
    for number, name in enumerate(chosen):
        case = dataset[name]
        scored = score_case(
            surrogate,
            case,
            other=other,
            training=training,
            progress=_part(progress, number, len(chosen)),
        )
        keep(scored)
        effects = ablation_effects(surrogate, case, surrogate.problem.shown_start(case))
        scores = scored.scores | ablation_scores(effects, scored.fields.energies)
        if (rollout := follow_case(surrogate, case)) is not None:
            scores |= rollout.scores()
        found[name] = {"scores": scores, "controls": scored.control_scores}
        del scored
    controls = [case["controls"] for case in found.values()]
    names = dict.fromkeys(name for each in controls for name in each)
    return {
        "revision": REVISION,
        "run": surrogate.url,
        "dataset": dict(surrogate.dataset, parameters=None),
        "other": None if other is None else other.url,
        "definitions": {each.key: vars(each) for each in SCORES},
        "mean": mean_scores([case["scores"] for case in found.values()]),
        "controls": {
            name: mean_scores([each[name] for each in controls if name in each]) for name in names
        },
        "cases": found,
    }


def _part(progress: Progress, number: int, parts: int) -> Progress:
    """Return the progress of one of several parts, in percent of all."""
    return lambda done, total: progress(100 * number + 100 * done // max(1, total), 100 * parts)


@dataclass(frozen=True)
class ScoredRun:
    url: str
    settings: Mapping[str, Any]
    """All settings of the training by dotted name, the dataset's version included"""
    scores: Mapping[str, float] = field(default_factory=dict)
    controls: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def family(self) -> str:
        return str(self.settings.get("family", ""))

    @property
    def row(self) -> str:
        """What runs of one row share."""
        shared = {key: value for key, value in self.settings.items() if key not in LEFT_OUT}
        return json.dumps(shared, sort_keys=True, default=str)


@dataclass(frozen=True)
class ScoreRow:
    """Runs that differ in their seed alone, or a control of a family's runs."""

    label: str
    runs: tuple[str, ...]  # none of a control
    scores: dict[str, Interval]  # mean over runs with its interval; of a single run without
    family: str = ""


@dataclass(frozen=True)
class RunComparison:
    """Rows by family, in the order in which their first runs were named."""

    rows: tuple[ScoreRow, ...]
    controls: tuple[ScoreRow, ...] = ()

    @property
    def families(self) -> list[str]:
        return list(dict.fromkeys(row.family for row in self.rows))

    @property
    def columns(self) -> list[ScoreRow]:
        """Each family's rows, and after them its controls."""
        every = [*self.rows, *self.controls]
        return [row for family in self.families for row in every if row.family == family]

    def heading(self, row: ScoreRow) -> str:
        """`first (3)`, of several families `cylinder-flow: first (3)`."""
        family = f"{row.family}: " if len(self.families) > 1 else ""
        return f"{family}{row.label}" + (f" ({len(row.runs)})" if row.runs else "")

    @property
    def keys(self) -> list[str]:
        """The scores that any row has, in the order of all scores."""
        return [each.key for each in SCORES if any(each.key in row.scores for row in self.rows)]

    def to_json(self) -> dict[str, Any]:
        """Return means, half-widths and counts of the intervals, by row and score."""
        definitions = {each.key: vars(each) for each in SCORES if each.key in self.keys}
        return {"definitions": definitions, **asdict(self)}

    def to_csv(self) -> str:
        """Return one line for each row and score."""
        lines = [
            (row.family, row.label, key, each.mean, each.half_width, each.count)
            for row in self.columns
            for key, each in row.scores.items()
        ]
        names = ["family", "row", "score", "mean", "half_width", "runs"]
        return str(pd.DataFrame(lines, columns=names).to_csv(index=False, float_format="%.6g"))

    def to_markdown(self) -> str:
        """Return a table with one line for each score."""
        columns = self.columns
        lines = [["score", *(self.heading(row) for row in columns), "good is"]]
        lines += [["---", *["---:"] * len(columns), "---"]]
        for score in SCORES:
            if score.key in self.keys:
                found = [row.scores.get(score.key) for row in columns]
                cells = ["" if each is None else each.text() for each in found]
                lines.append([score.name, *cells, score.aim_text])
        return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def compare_runs(
    runs: Sequence[str],
    folder: RunDirectory,
    cases: Sequence[str] = (),
    dataset_url: str | None = None,
    progress: Progress = lambda done, total: None,
) -> RunComparison:
    """Score the runs on some cases (none: on the test split), and gather them by their settings.

    A run that is named twice counts once, and a named case for the family that has it. InputError
    for fewer than two runs, runs of one family that predict different things, the same training
    twice, versions of a family without a test case in common, and as `score_run` has it.
    """
    urls = list(dict.fromkeys(url.rstrip("/") for url in runs))
    if len(urls) < 2:
        raise InputError("one run has nothing to be compared with; name two or more")
    named, records = [], {}
    for url in urls:
        settings = flatten(RunDirectory(url).read_object("experiment.json"))
        if settings.get("training.budget_s") is not None:
            settings |= {f"training.{name}": "by budget" for name in PLANNED}
        records[url] = record = read_dataset_record(RunDirectory(url))
        version = {f"dataset.{key}": record[key] for key in ("version", "snapshot_id")}
        named.append(ScoredRun(url, settings | version))
    families, rows = _grouped(named, "family"), _grouped(named, "row")
    for first, *others in families.values():
        for run in others:
            for key in QUESTION:
                if run.settings.get(key) != first.settings.get(key):
                    raise InputError(f"{run.url} and {first.url} differ in {key}: leave one out")
    chosen: dict[str, list[str]] = {}
    for family, members in families.items():
        versions = {records[run.url]["snapshot_id"]: run.url for run in members}
        opened = [open_recorded(url, records[url], dataset_url) for url in versions.values()]
        if cases:
            chosen[family] = [case for case in cases if case in set(opened[0].cases())]
            missing = f"none of the named cases is of {family}; name one of each family, or none"
        else:
            first_cases, *rest = (dataset.cases("test") for dataset in opened)
            chosen[family] = [case for case in first_cases if all(case in each for each in rest)]
            missing = "the runs' datasets have no test case in common; name cases by --case"
        if not chosen[family]:
            raise InputError(missing)
    if unknown := set(cases).difference(*chosen.values()):
        raise InputError(f"case {min(unknown)} is in no dataset of these runs")
    partners: dict[str, str] = {}
    for row in rows.values():
        seeds: dict[Any, ScoredRun] = {}
        for run in row:
            twin = seeds.setdefault(run.settings["training.seed"], run)
            if twin is not run:
                raise InputError(f"{run.url} and {twin.url} are one training: name one")
        if len(row) > 1:
            partners |= {run.url: row[(n + 1) % len(row)].url for n, run in enumerate(row)}
    digests = {url: weights_digest(RunDirectory(url)) for url in urls}
    found = []
    for number, run in enumerate(named):
        partner, judged = partners.get(run.url), chosen[run.family]
        beside = None if partner is None else [partner, digests[partner]]
        asked = [run.url, digests[run.url], beside, REVISION, sorted(judged), dataset_url]
        key = hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:12]
        name = f"{run.url.rsplit('/', 1)[-1]}-{key}.json"
        if not folder.exists(name):
            report = _part(progress, number, len(named))
            folder.write_json(name, score_run(run.url, judged, partner, report, dataset_url))
        known = folder.read_object(name)
        found.append(replace(run, scores=known["mean"], controls=known["controls"]))
    return gather(found)


def _grouped(runs: Iterable[ScoredRun], attribute: str) -> dict[str, list[ScoredRun]]:
    """Return the runs by their family or row, in the order in which they were named."""
    found: dict[str, list[ScoredRun]] = {}
    for run in runs:
        found.setdefault(getattr(run, attribute), []).append(run)
    return found


def gather(runs: Sequence[ScoredRun]) -> RunComparison:
    """Gather runs that differ in their seed alone into rows."""
    rows, controls = [], []
    for family, members in _grouped(runs, "family").items():
        for group in _grouped(members, "row").values():
            label = _label(group[0].settings, members[0].settings)
            scores = values_by_score([run.scores for run in group])
            # The match of two seeds is one measurement.
            intervals = {
                key: Interval(fmean(values), None, 1)
                if key == SEEDS and len(values) == 2
                else Interval.of(values)
                for key, values in scores.items()
            }
            rows.append(ScoreRow(label, tuple(run.url for run in group), intervals, family))
        for name in dict.fromkeys(name for run in members for name in run.controls):
            found = values_by_score([run.controls[name] for run in members if name in run.controls])
            means = {key: Interval(fmean(each), None, len(each)) for key, each in found.items()}
            controls.append(ScoreRow(name, (), means, family))
    return RunComparison(tuple(rows), tuple(controls))


def _label(settings: Mapping[str, Any], of_first: Mapping[str, Any]) -> str:
    """Name a row by the settings in which it differs from the family's first one."""
    names = (key for key in {**of_first, **settings} if key not in LEFT_OUT)
    own = {key: str(settings.get(key, "absent")) for key in names}
    changed = (key for key, value in own.items() if value != str(of_first.get(key, "absent")))
    return ", ".join(f"{key.partition('.')[2] or key}={own[key]}" for key in changed) or "first"
