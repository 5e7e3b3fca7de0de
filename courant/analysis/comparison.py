"""Put the scores of several runs side by side; runs that differ in their seed alone are one row.

The fields of each run are matched with those of the next seed in its row. Each run is scored once:
`<run>-<key>.json` in the folder is read again as long as the run has the same weights and the cases
are the same, so a comparison that was cut off goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from courant.analysis.decomposition.scores import SCORES
from courant.analysis.run_scores import REVISION, score_run
from courant.evaluation.interval import Interval
from courant.experiment import without_younger
from courant.runs.dataset_record import open_recorded, read_dataset_record
from courant.runs.directory import RunDirectory
from courant.runs.summary import flatten
from courant.runs.weights_file import weights_digest
from simgen.errors import InputError

LEFT_OUT = ("training.seed", "name")
"""Settings by which runs may differ and still be one row"""
WATCHED = ("training.validate_every", "training.checkpoint_every", "training.keep_checkpoints")
"""Settings that name a row only where no other one tells it apart"""
ANCHORS, WINDOWS = "model.anchor_kind", "model.gaussian_window"
PLAIN = {ANCHORS: "sampled", WINDOWS: "none"}

_QUESTION = ("family", "task", "data.fields", "data.step_s")
"""Settings that say what a run predicts"""
SEEDS = "seed_correlation"

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Row:
    """Runs that differ in their seed alone."""

    label: str
    runs: tuple[str, ...]
    scores: dict[str, Interval]
    """Mean over runs with its interval; of a single run without"""


@dataclass(frozen=True)
class Comparison:
    """Rows in the order in which their first runs were named."""

    rows: tuple[Row, ...]

    @property
    def keys(self) -> list[str]:
        """List the scores that any row has, in the order of all scores."""
        return [each.key for each in SCORES if any(each.key in row.scores for row in self.rows)]

    def to_json(self) -> dict[str, Any]:
        """Return means and half-widths of the intervals, by row and score."""
        return {
            "definitions": {each.key: vars(each) for each in SCORES if each.key in self.keys},
            "rows": [
                {
                    "label": row.label,
                    "runs": list(row.runs),
                    "scores": {
                        key: {"mean": each.mean, "half_width": each.half_width, "runs": each.count}
                        for key, each in row.scores.items()
                    },
                }
                for row in self.rows
            ],
        }

    def to_csv(self) -> str:
        """Return one line for each row and score."""
        lines = ["row,score,mean,half_width,runs"]
        for row in self.rows:
            for key, each in row.scores.items():
                width = "" if each.half_width is None else f"{each.half_width:.6g}"
                lines.append(f'"{row.label}",{key},{each.mean:.6g},{width},{each.count}')
        return "\n".join(lines) + "\n"

    def to_markdown(self) -> str:
        """Return a table with one line for each score."""
        names = {each.key: each for each in SCORES}
        head = ["score", *(f"{row.label} ({len(row.runs)})" for row in self.rows), "good is"]
        lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * len(self.rows) + " --- |"]
        for key in self.keys:
            cells = [row.scores[key].text() if key in row.scores else "" for row in self.rows]
            lines.append("| " + " | ".join([names[key].name, *cells, names[key].aim_text]) + " |")
        return "\n".join(lines) + "\n"


def compare_runs(
    runs: Sequence[str],
    folder: RunDirectory,
    cases: Sequence[str] = (),
    dataset_url: str | None = None,
    progress: Progress = lambda done, total: None,
) -> Comparison:
    """Score the runs on some cases (none: on the test split), and gather them by their settings.

    A run that is named twice counts once. InputError for fewer than two runs, runs that predict
    different things, runs that differ in nothing, not even in their seed, versions without a test
    case in common, and as `score_run` has it.
    """
    runs = list(dict.fromkeys(url.rstrip("/") for url in runs))
    if len(runs) < 2:
        raise InputError("one run has nothing to be compared with; name two or more")
    settings = {url: _settings(RunDirectory(url)) for url in runs}
    _check_comparable(settings)
    cases = list(cases) or _common_cases(runs, dataset_url)
    partners = _next_seeds(settings)
    found: list[tuple[str, dict[str, Any], dict[str, float]]] = []
    for number, url in enumerate(runs):

        def report(done: int, total: int, before: int = number) -> None:
            progress(100 * before + 100 * done // max(1, total), 100 * len(runs))

        run, partner = RunDirectory(url), partners.get(url)
        scores = _scores(run, partner, folder, cases, dataset_url, report)
        found.append((run.url, settings[url], scores))
    return gather(found)


def _settings(run: RunDirectory) -> dict[str, Any]:
    settings = flatten(without_younger(run.read_object("experiment.json")))
    record = read_dataset_record(run)
    return settings | {f"dataset.{key}": record[key] for key in ("version", "snapshot_id")}


def _check_comparable(settings: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise InputError for runs of different questions, and for two that are the same training."""
    first = next(iter(settings))
    seeds: dict[tuple[str, str], str] = {}
    for url, each in settings.items():
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


def gather(found: Sequence[tuple[str, dict[str, Any], dict[str, float]]]) -> Comparison:
    """Gather runs (URL, settings, scores) that differ in their seed alone into rows."""
    groups: dict[str, list[tuple[str, dict[str, Any], dict[str, float]]]] = {}
    for each in found:
        groups.setdefault(_row_key(each[1]), []).append(each)
    labels = _labels([group[0][1] for group in groups.values()])
    rows = []
    for label, group in zip(labels, groups.values(), strict=True):
        keys = [each.key for each in SCORES if any(each.key in scores for *_, scores in group)]
        rows.append(
            Row(
                label,
                tuple(url for url, *_ in group),
                {key: _interval(key, [of[key] for *_, of in group if key in of]) for key in keys},
            )
        )
    return Comparison(tuple(rows))


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
    labels = [_label(settings, telling) for settings in groups]
    if len(set(labels)) == len(labels):
        return labels
    return [_label(settings, differing) for settings in groups]


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
) -> dict[str, float]:
    """Return a run's mean scores, from the folder where they are there already."""
    beside = None if partner is None else [partner.url, weights_digest(partner)]
    asked = [run.url, weights_digest(run), beside, REVISION, sorted(cases), dataset_url]
    key = hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:12]
    name = f"{run.url.rstrip('/').rsplit('/', 1)[-1]}-{key}.json"
    if folder.exists(name):
        return dict(folder.read_object(name)["mean"])
    other = None if partner is None else partner.url
    scored = score_run(run.url, cases, other, progress, dataset_url)
    folder.write_json(name, scored.to_json())
    return scored.mean
