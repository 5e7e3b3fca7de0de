"""Score whole runs, and compare them.

Check that two models answer the same question, so that their predictions can be compared.

Score a trained run on cases of its dataset version, and write what was found.

Put the scores of several runs side by side; runs that differ in their seed alone are one row.

Runs of several families stand in one table, each family's rows together and followed by its
controls: decompositions of the same predictions by chance, by place and by POD.

The fields of each run are matched with those of the next seed in its row. Each run is scored once:
`<run>-<key>.json` in the folder is read again as long as the run has the same weights and the cases
are the same, so a comparison that was cut off goes on where it stopped.

Hold the scores of several runs as one table, with each family's controls beside its rows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from courant.analysis.case_dynamics import follow_case, rhythm_scores
from courant.analysis.case_scores import CaseScores, ablation_effects, score_case
from courant.analysis.scores import (
    SCORES,
    gyration_radii,
    mean_scores,
    nearest_design,
    support_fractions,
)
from courant.evaluation.ledger import Interval
from courant.evaluation.references import shared
from courant.prediction.surrogate import Surrogate, load
from courant.runs.directory import RunDirectory
from courant.runs.record import open_recorded, read_dataset_record
from courant.runs.summary import flatten
from courant.runs.weights import weights_digest
from simgen.errors import InputError
from simgen.store.read import Dataset, StoredCase


def check_alike(surrogate: Surrogate, other: Surrogate) -> None:
    """Raise InputError where the other model predicts something else, or for another family."""
    ours, theirs = (
        (each.channels, each.problem.kind, each.step_s, each.dataset["family"])
        for each in (surrogate, other)
    )
    if ours != theirs:
        raise InputError(
            f"{other.url} predicts {', '.join(other.channels)} of {other.dataset['family']} (step"
            f" {other.step_s} s), the run {', '.join(surrogate.channels)} of"
            f" {surrogate.dataset['family']} (step {surrogate.step_s} s): compare like with like"
        )


SCORES_FILE = "scores.json"
REVISION = 4
"""Raise this when the file has other entries, or the same run would get other scores"""

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class CaseResult:
    """The numbers of one case; its fields are as large as the case times the anchors."""

    case: str
    scores: dict[str, float]
    control_scores: dict[str, dict[str, float]]


@dataclass(frozen=True)
class RunScores:
    """The scores of a run on each case, and their means."""

    run: str
    dataset: dict[str, Any]
    other: str | None
    cases: tuple[CaseResult, ...]

    @property
    def mean(self) -> dict[str, float]:
        return mean_scores([case.scores for case in self.cases])

    @property
    def controls(self) -> dict[str, dict[str, float]]:
        """Return the mean scores of each control, over the cases that have it."""
        names = dict.fromkeys(name for case in self.cases for name in case.control_scores)
        return {
            name: mean_scores(
                [case.control_scores[name] for case in self.cases if name in case.control_scores]
            )
            for name in names
        }

    def to_json(self) -> dict[str, Any]:
        """Return all numbers, with each score's name, range and what is good."""
        return {
            "revision": REVISION,
            "run": self.run,
            "dataset": self.dataset,
            "other": self.other,
            "definitions": {each.key: vars(each) for each in SCORES},
            "mean": self.mean,
            "controls": self.controls,
            "cases": {
                case.case: {"scores": case.scores, "controls": case.control_scores}
                for case in self.cases
            },
        }


def score_run(
    run_url: str,
    cases: Sequence[str] = (),
    other_url: str | None = None,
    progress: Progress = lambda done, total: None,
    dataset_url: str | None = None,
    keep: Callable[[CaseScores], None] = lambda case: None,
) -> RunScores:
    """Score the run on some cases (none named: on the test split), beside controls.

    `dataset_url` is where the dataset of the training lies by now, if it was moved. `keep` gets
    each case with its fields, which are in memory for one case at a time.

    InputError where there is no such run or case, where the model does not decompose its
    predictions, or where the other run is of other fields.
    """
    surrogate = load(run_url)
    _check(surrogate)
    other = None if other_url is None else load(other_url)
    if other is not None:
        _check(other)
        check_alike(surrogate, other)
    dataset = surrogate.open_dataset(dataset_url)
    chosen = list(cases) or dataset.cases("test")
    if not chosen:
        raise InputError(f"{dataset.url} {dataset.version} has no test case; name one by --case")
    return RunScores(
        surrogate.url,
        dict(surrogate.dataset, parameters=None),
        None if other is None else other.url,
        tuple(_score_all(surrogate, other, dataset, chosen, progress, keep)),
    )


def write_arrays(folder: RunDirectory, case: CaseScores) -> None:
    """Write what the scores of a case were computed from as <case>.npz."""
    folder.write_arrays(f"{case.case}.npz", case_arrays(case))


def write_scores(folder: RunDirectory, scores: RunScores) -> str:
    """Write scores.json and return its URL."""
    folder.write_json(SCORES_FILE, scores.to_json())
    return f"{folder.url.rstrip('/')}/{SCORES_FILE}"


def case_arrays(case: CaseScores) -> dict[str, np.ndarray]:
    """Return what the scores of a case were computed from, by anchor or by cell."""
    fields = case.fields
    arrays: dict[str, np.ndarray | None] = {
        "energies": fields.energies,
        "gram": fields.gram,
        "centroids": fields.centroids,
        "gyration_radii": gyration_radii(fields),
        "support": support_fractions(fields),
        "anchors": fields.anchors,
        "temporal_variance": case.temporal_variance,
        "points": fields.points,
        "volumes": fields.volumes,
        "dominant_anchor": case.dominant,
    }
    if case.addresses is not None:
        arrays |= {
            "error_address": case.addresses.errors,
            "error_governed": case.addresses.governed,
            "error_centre": case.addresses.centres,
            "squared_error": case.addresses.squared,
        }
    return {name: values for name, values in arrays.items() if values is not None}


def _check(surrogate: Surrogate) -> None:
    """Raise InputError, before anything is read, for a model that does not decompose."""
    if not surrogate.decomposes:
        raise InputError(
            f"{surrogate.url}: a model of kind {surrogate.model.config.kind} does not decompose its"
            " predictions, so there is nothing to score"
        )


def _score_all(
    surrogate: Surrogate,
    other: Surrogate | None,
    dataset: Dataset,
    chosen: Sequence[str],
    progress: Progress,
    keep: Callable[[CaseScores], None],
) -> list[CaseResult]:
    found: list[CaseResult] = []
    share = 100
    training = shared(dataset, surrogate.normaliser) if len(dataset.cases("train")) > 1 else None
    for number, name in enumerate(chosen):

        def report(done: int, total: int, before: int = number) -> None:
            progress(share * before + share * done // total, share * len(chosen))

        case = dataset[name]
        scored = score_case(
            surrogate,
            case,
            other=other,
            neighbour=nearest_design(dataset, case),
            training=training,
            progress=report,
        )
        keep(scored)
        left_out = ablation_effects(surrogate, case, surrogate.problem.shown_start(case))
        ablated = {} if left_out is None else left_out.scores(scored.fields.energies)
        scores = {**scored.scores, **ablated, **_rhythm(surrogate, case)}
        found.append(CaseResult(case.id, scores, scored.control_scores))
        del scored
    return found


def _rhythm(surrogate: Surrogate, case: StoredCase) -> dict[str, float]:
    """Return the scores of a rollout to the case's end; none of a flow without a rhythm."""
    found = follow_case(surrogate, case)
    return {} if found is None else rhythm_scores(found)


LEFT_OUT = ("training.seed", "name")
"""Settings by which runs may differ and still be one row"""
WATCHED = ("training.validate_every", "training.checkpoint_every", "training.keep_checkpoints")
"""Settings that name a row only where no other one tells it apart"""
ANCHORS, WINDOWS = "model.anchor_kind", "model.gaussian_window"
PLAIN = {ANCHORS: "sampled", WINDOWS: "none"}
IDLE = {
    "model.window_scale": (WINDOWS, ("none",)),
    "data.anchor_start": (ANCHORS, ("sampled", "abstract")),
}
"""Settings that do nothing where another one has one of these values"""

_QUESTION = ("task", "data.fields", "data.step_s")
"""Settings that say what a run of a family predicts"""
SEEDS = "seed_correlation"


__all__ = ["RunComparison", "ScoreRow", "compare_runs", "gather"]


def compare_runs(
    runs: Sequence[str],
    folder: RunDirectory,
    cases: Sequence[str] = (),
    dataset_url: str | None = None,
    progress: Progress = lambda done, total: None,
) -> RunComparison:
    """Score the runs on some cases (none: on the test split), and gather them by their settings.

    A run that is named twice counts once, and a named case for the family that has it. InputError
    for fewer than two runs, runs of one family that predict different things, runs that differ in
    nothing, not even in their seed, versions of a family without a test case in common, and as
    `score_run` has it.
    """
    runs = list(dict.fromkeys(url.rstrip("/") for url in runs))
    if len(runs) < 2:
        raise InputError("one run has nothing to be compared with; name two or more")
    settings = {url: _settings(RunDirectory(url)) for url in runs}
    _check_comparable(settings)
    judged = {
        family: _cases_of(family, members, cases, dataset_url, len(runs) > len(members))
        for family, members in _by_family(settings).items()
    }
    partners = _next_seeds(settings)
    found: list[tuple[str, dict[str, Any], dict[str, float]]] = []
    controls: dict[str, dict[str, dict[str, float]]] = {}
    for number, url in enumerate(runs):

        def report(done: int, total: int, before: int = number) -> None:
            progress(100 * before + 100 * done // max(1, total), 100 * len(runs))

        run, partner = RunDirectory(url), partners.get(url)
        of_family = judged[_family(settings[url])]
        scores = _scores(run, partner, folder, of_family, dataset_url, report)
        found.append((run.url, settings[url], scores["mean"]))
        controls[run.url] = scores.get("controls", {})
    return gather(found, controls)


def _settings(run: RunDirectory) -> dict[str, Any]:
    settings = flatten(run.read_object("experiment.json"))
    record = read_dataset_record(run)
    return settings | {f"dataset.{key}": record[key] for key in ("version", "snapshot_id")}


def _check_comparable(settings: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise InputError for runs of different questions, and for two that are the same training."""
    seeds: dict[tuple[str, str], str] = {}
    firsts = {family: members[0] for family, members in _by_family(settings).items()}
    for url, each in settings.items():
        first = firsts[_family(each)]
        for key in _QUESTION:
            if each.get(key) != settings[first].get(key):
                raise InputError(
                    f"{url} and {first} differ in {key}: compare runs that predict the same"
                )
        twin = seeds.setdefault((_row_key(dict(each)), str(each["training.seed"])), url)
        if twin != url:
            raise InputError(
                f"{url} and {twin} are one training: same settings, data and seed; name one"
            )


def _family(settings: Mapping[str, Any]) -> str:
    return str(settings.get("family", ""))


def _by_family(settings: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the runs of each family, in the order in which they were named."""
    found: dict[str, list[str]] = {}
    for url, each in settings.items():
        found.setdefault(_family(each), []).append(url)
    return found


def _cases_of(
    family: str,
    runs: Sequence[str],
    named: Sequence[str],
    dataset_url: str | None,
    among_others: bool,
) -> list[str]:
    """Return the cases that a family's runs are scored on: the named ones, or the test split."""
    if not named:
        return _common_cases(runs, dataset_url)
    if not among_others:
        return list(named)
    record = read_dataset_record(RunDirectory(runs[0]))
    known = set(open_recorded(runs[0], record, dataset_url).cases())
    chosen = [case for case in named if case in known]
    if not chosen:
        raise InputError(
            f"none of the named cases is of {family}; name one of each family, or none"
        )
    return chosen


def _common_cases(runs: Sequence[str], dataset_url: str | None) -> list[str]:
    """Return the test cases of all the runs' dataset versions."""
    versions: dict[str, tuple[str, dict[str, Any]]] = {}
    for url in runs:
        record = read_dataset_record(RunDirectory(url))
        versions.setdefault(record["snapshot_id"], (url, record))
    first, *others = (
        open_recorded(url, record, dataset_url).cases("test") for url, record in versions.values()
    )
    common = [case for case in first if all(case in cases for cases in others)]
    if not common:
        raise InputError("the runs' datasets have no test case in common; name cases by --case")
    return common


def _row_key(settings: dict[str, Any]) -> str:
    """Return what runs of one row share."""
    shared = {key: value for key, value in settings.items() if key not in LEFT_OUT}
    return json.dumps(shared, sort_keys=True, default=str)


def _next_seeds(settings: dict[str, dict[str, Any]]) -> dict[str, RunDirectory]:
    """Return the run that each is matched with: the next of its row, of the last one the first."""
    rows: dict[str, list[str]] = {}
    for url, each in settings.items():
        rows.setdefault(_row_key(each), []).append(url)
    return {
        url: RunDirectory(row[(number + 1) % len(row)])
        for row in rows.values()
        if len(row) > 1
        for number, url in enumerate(row)
    }


def gather(
    found: Sequence[tuple[str, dict[str, Any], dict[str, float]]],
    controls: Mapping[str, Mapping[str, Mapping[str, float]]] | None = None,
) -> RunComparison:
    """Gather runs (URL, settings, scores) that differ in their seed alone into rows.

    `controls` are the scores of each run's controls, by URL and name.
    """
    families = dict.fromkeys(_family(settings) for _, settings, _ in found)
    parts = [[each for each in found if _family(each[1]) == family] for family in families]
    rows = [row for part in parts for row in _rows_of(part)]
    compared = [
        row
        for family, part in zip(families, parts, strict=True)
        for row in _controls_of(family, [(controls or {}).get(url, {}) for url, *_ in part])
    ]
    return RunComparison(tuple(rows), tuple(compared))


def _controls_of(
    family: str, found: Sequence[Mapping[str, Mapping[str, float]]]
) -> Iterator[ScoreRow]:
    """Yield each control with its mean scores over a family's runs, which is one number."""
    for name in dict.fromkeys(name for each in found for name in each):
        scores = [each[name] for each in found if name in each]
        keys = [each.key for each in SCORES if any(each.key in of for of in scores)]
        means = {key: [of[key] for of in scores if key in of] for key in keys}
        yield ScoreRow(
            name,
            (),
            {key: Interval(fmean(values), None, len(values)) for key, values in means.items()},
            family,
        )


def _rows_of(found: Sequence[tuple[str, dict[str, Any], dict[str, float]]]) -> list[ScoreRow]:
    """Return the rows of runs of one family."""
    groups: dict[str, list[tuple[str, dict[str, Any], dict[str, float]]]] = {}
    for each in found:
        groups.setdefault(_row_key(each[1]), []).append(each)
    labels = _labels([group[0][1] for group in groups.values()])
    rows = []
    for label, group in zip(labels, groups.values(), strict=True):
        keys = [each.key for each in SCORES if any(each.key in scores for *_, scores in group)]
        rows.append(
            ScoreRow(
                label,
                tuple(url for url, *_ in group),
                {key: _interval(key, [of[key] for *_, of in group if key in of]) for key in keys},
                _family(group[0][1]),
            )
        )
    return rows


def _interval(key: str, values: Sequence[float]) -> Interval:
    """Return the interval of a score; none for the match of two seeds, which is one measurement."""
    if key == SEEDS and len(values) == 2:
        return Interval(fmean(values), None, 1)
    return Interval.of(values)


def _labels(groups: Sequence[dict[str, Any]]) -> list[str]:
    """Name rows by their anchors and windows, and by what else tells them apart."""
    names = dict.fromkeys(key for settings in groups for key in settings if key not in LEFT_OUT)
    differing = [key for key in names if len({str(settings.get(key)) for settings in groups}) > 1]
    telling = [key for key in differing if key not in WATCHED]
    at_work = [[key for key in telling if _is_at_work(key, settings)] for settings in groups]
    for named in (at_work, [telling] * len(groups), [differing] * len(groups)):
        labels = [_label(settings, keys) for settings, keys in zip(groups, named, strict=True)]
        if len(set(labels)) == len(labels):
            break
    return labels


def _is_at_work(key: str, settings: dict[str, Any]) -> bool:
    """Tell whether a setting does anything in a run that has the others."""
    if key not in IDLE:
        return True
    other, values = IDLE[key]
    return settings.get(other, PLAIN[other]) not in values


def _label(settings: dict[str, Any], differing: Sequence[str]) -> str:
    parts = []
    if settings.get(ANCHORS, PLAIN[ANCHORS]) != PLAIN[ANCHORS]:
        parts.append(f"{settings[ANCHORS]} anchors")
    if settings.get(WINDOWS, PLAIN[WINDOWS]) != PLAIN[WINDOWS]:
        parts.append(f"windows ({settings[WINDOWS]})")
    parts += [
        f"{key.rpartition('.')[2]}={settings.get(key)}"
        for key in differing
        if key not in (ANCHORS, WINDOWS)
    ]
    return ", ".join(parts) or "baseline"


def _scores(
    run: RunDirectory,
    partner: RunDirectory | None,
    folder: RunDirectory,
    cases: Sequence[str],
    dataset_url: str | None,
    progress: Progress,
) -> dict[str, Any]:
    """Return a run's mean scores and controls, from the folder where they are there already."""
    beside = None if partner is None else [partner.url, weights_digest(partner)]
    asked = [run.url, weights_digest(run), beside, REVISION, sorted(cases), dataset_url]
    key = hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:12]
    name = f"{run.url.rstrip('/').rsplit('/', 1)[-1]}-{key}.json"
    if folder.exists(name):
        return folder.read_object(name)
    other = None if partner is None else partner.url
    scored = score_run(run.url, cases, other, progress, dataset_url)
    written: dict[str, Any] = scored.to_json()
    folder.write_json(name, written)
    return written


@dataclass(frozen=True)
class ScoreRow:
    """Runs that differ in their seed alone."""

    label: str
    runs: tuple[str, ...]
    scores: dict[str, Interval]
    """Mean over runs with its interval; of a single run without"""
    family: str = ""


@dataclass(frozen=True)
class RunComparison:
    """Rows by family, in the order in which their first runs were named."""

    rows: tuple[ScoreRow, ...]
    controls: tuple[ScoreRow, ...] = ()
    """Of each family, the mean over its runs; the label names the control"""

    @property
    def families(self) -> list[str]:
        return list(dict.fromkeys(row.family for row in self.rows))

    @property
    def columns(self) -> list[ScoreRow]:
        """List each family's rows, and after them its controls."""
        every = [*self.rows, *self.controls]
        return [row for family in self.families for row in every if row.family == family]

    def of_family(self, family: str) -> RunComparison:
        """Return the rows and controls of one family."""
        rows, controls = (
            tuple(row for row in each if row.family == family)
            for each in (self.rows, self.controls)
        )
        return RunComparison(rows, controls)

    def heading(self, row: ScoreRow) -> str:
        """`baseline (3)`, of several families `cylinder-flow: baseline (3)`."""
        family = f"{row.family}: " if len(self.families) > 1 else ""
        return f"{family}{row.label}" + ("" if row in self.controls else f" ({len(row.runs)})")

    @property
    def keys(self) -> list[str]:
        """List the scores that any row has, in the order of all scores."""
        return [each.key for each in SCORES if any(each.key in row.scores for row in self.rows)]

    def to_json(self) -> dict[str, Any]:
        """Return means and half-widths of the intervals, by row and score."""
        return {
            "definitions": {each.key: vars(each) for each in SCORES if each.key in self.keys},
            "rows": [_row_json(row) for row in self.rows],
            "controls": [_row_json(row) for row in self.controls],
        }

    def to_csv(self) -> str:
        """Return one line for each row and score."""
        lines = ["family,row,score,mean,half_width,runs"]
        for row in self.columns:
            for key, each in row.scores.items():
                width = "" if each.half_width is None else f"{each.half_width:.6g}"
                lines.append(
                    f'{row.family},"{row.label}",{key},{each.mean:.6g},{width},{each.count}'
                )
        return "\n".join(lines) + "\n"

    def to_markdown(self) -> str:
        """Return a table with one line for each score."""
        names = {each.key: each for each in SCORES}
        columns = self.columns
        head = ["score", *(self.heading(row) for row in columns), "good is"]
        lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * len(columns) + " --- |"]
        for key in self.keys:
            cells = [row.scores[key].text() if key in row.scores else "" for row in columns]
            lines.append("| " + " | ".join([names[key].name, *cells, names[key].aim_text]) + " |")
        return "\n".join(lines) + "\n"


def _row_json(row: ScoreRow) -> dict[str, Any]:
    return {
        "family": row.family,
        "label": row.label,
        "runs": list(row.runs),
        "scores": {
            key: {"mean": each.mean, "half_width": each.half_width, "runs": each.count}
            for key, each in row.scores.items()
        },
    }
