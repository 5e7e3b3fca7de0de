"""Put the scores of several runs side by side; runs that differ in their seed alone are one row.

Runs of several families stand in one table, each family's rows together and followed by its
controls: decompositions of the same predictions by chance, by place and by POD.

The fields of each run are matched with those of the next seed in its row. Each run is scored once:
`<run>-<key>.json` in the folder is read again as long as the run has the same weights and the cases
are the same, so a comparison that was cut off goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from courant.analysis.comparison_table import Comparison, Row
from courant.analysis.decomposition.scores import SCORES
from courant.analysis.run_scores import REVISION, score_run
from courant.evaluation.interval import Interval
from courant.runs.dataset_record import open_recorded, read_dataset_record
from courant.runs.directory import RunDirectory
from courant.runs.summary import flatten
from courant.runs.weights import weights_digest
from simgen.errors import InputError

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

Progress = Callable[[int, int], None]

__all__ = ["Comparison", "Row", "compare_runs", "gather"]


def compare_runs(
    runs: Sequence[str],
    folder: RunDirectory,
    cases: Sequence[str] = (),
    dataset_url: str | None = None,
    progress: Progress = lambda done, total: None,
) -> Comparison:
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
) -> Comparison:
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
    return Comparison(tuple(rows), tuple(compared))


def _controls_of(family: str, found: Sequence[Mapping[str, Mapping[str, float]]]) -> Iterator[Row]:
    """Yield each control with its mean scores over a family's runs, which is one number."""
    for name in dict.fromkeys(name for each in found for name in each):
        scores = [each[name] for each in found if name in each]
        keys = [each.key for each in SCORES if any(each.key in of for of in scores)]
        means = {key: [of[key] for of in scores if key in of] for key in keys}
        yield Row(
            name,
            (),
            {key: Interval(fmean(values), None, len(values)) for key, values in means.items()},
            family,
        )


def _rows_of(found: Sequence[tuple[str, dict[str, Any], dict[str, float]]]) -> list[Row]:
    """Return the rows of runs of one family."""
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
