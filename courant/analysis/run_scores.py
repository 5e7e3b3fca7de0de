"""Score a trained run on cases of its dataset version, and write what was found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from courant.analysis.alike import check_alike
from courant.analysis.decomposition import locality
from courant.analysis.decomposition.ablation import ablation_effects
from courant.analysis.decomposition.case_scores import CaseScores, score_case
from courant.analysis.decomposition.neighbouring import nearest_design
from courant.analysis.decomposition.scores import SCORES, mean_scores
from courant.analysis.dynamics.case_dynamics import follow_case, rhythm_scores
from courant.evaluation.reduced_order import shared
from courant.prediction.surrogate import Surrogate, load
from courant.runs.directory import RunDirectory
from simgen.errors import InputError
from simgen.store.read import Dataset, StoredCase

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
        "gyration_radii": locality.gyration_radii(fields),
        "support": locality.support_fractions(fields),
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
