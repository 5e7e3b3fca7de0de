"""Judge what the fields of a trained model are good for: one word, with its reason.

docs/report.md defines the words. The fields' variation is that of RAE: around the mean of the
training cases.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Literal, NamedTuple

from courant.evaluation import record as names
from courant.evaluation.record import MODEL, Evaluation
from courant.report.page import called, component_name, count, listed, plain, reference
from courant.runs.directory import RunDirectory
from courant.runs.record import BANDS
from courant.runs.weights import weights_digest

if TYPE_CHECKING:
    from courant.prediction.bands import GridError

MOST_RAE, GOOD_RATIO, GOOD_RAE, GOOD_QUANTITY, LEAST_CASES = 0.5, 0.5, 0.2, 0.1, 3
TIED_RATIO, CLOSE_RATIO = 0.9, 0.95  # of what is about as good, and of what may be chance

Word = Literal["not usable", "unproven", "for trends", "usable"]


class Verdict(NamedTuple):
    """What a model's fields are good for."""

    word: Word
    reasons: Sequence[str]  # What kept it from the next better word
    measured: str
    """The error of the fields on so many cases; beside a reference's, unless `reasons` have that"""
    worst: Sequence[str]  # components below the training mean, or clearly below a reference
    besides: str
    """Which quantities can be used without the fields: a sentence after a space, or empty"""
    given: str = ""  # the modes that are judged, as their fields are given; empty for the network
    vague: Sequence[str] = ()  # sentences on answers that are of no use
    outlier: str = ""
    """The case with the largest error, of those that the model was not trained on, if far off"""

    def __str__(self) -> str:
        """A sentence on each line, the word first."""
        by = f" by {reference(self.given)}:" if self.given else ""
        said = filter(None, [*self.worst, self.measured, self.outlier, *self.reasons])
        texts = [f"fields{by} {self.word}.", *(f"{text[0].upper()}{text[1:]}." for text in said)]
        return "\n".join(filter(None, [*texts, self.besides.strip(), *self.vague]))


def judge(evaluation: Evaluation, grid: Mapping[str, GridError]) -> Verdict:
    """Judge an evaluation; `grid` are the errors of the mesh by quantity, as far as known."""
    from courant.prediction.answers import REGRESSION  # it loads SciPy

    given, num_cases = evaluation.better_fields, len(evaluation.cases)
    ours = evaluation.overall[judged := given or MODEL]
    others = [name for name in evaluation.references if name != given]
    best = min(others, key=lambda name: evaluation.overall[name].nmae)
    theirs = evaluation.overall[best].nmae
    ratio = ours.nmae / theirs if theirs else math.inf
    cases = count(num_cases, f"{evaluation.split} case")
    beyond = "beyond the designs of the training, " if evaluation.beyond else ""
    few = f", {beyond}which prove{'s' * (num_cases == 1)} little," * (num_cases < LEAST_CASES)
    measured = f"On {cases}{few} the mean error is {ours.nmae:.1%} of the mean value (NMAE)"
    outlier, lost_case = _outlier(evaluation, judged)
    behind = {name: _behind(evaluation, judged, name) for name in others}
    rival = min(behind, key=lambda name: behind[name][:1] or [(1.0, "")])
    worst, worse = list[str](), ""
    if below := behind.get(names.TRAINING_MEAN):
        text = _named(evaluation, judged, names.TRAINING_MEAN, below)
        worst.append(f"{called(judged)} is worse than the training mean in {text}")
    if rival != names.TRAINING_MEAN and (above := behind[rival]):
        worse = f"{reference(rival)} is better in {_named(evaluation, judged, rival, above)}"
        if ratio <= names.CLEAR_RATIO and above[0][0] < 1 / names.CLEAR_RATIO:
            worst, worse = [*worst, worse], ""
    rae = f"the fields' error is {ours['rae']:.1%} of their variation (RAE)"
    lost = [
        plain(name)
        for name, each in evaluation.quantities.items()
        if each.source != REGRESSION and (each.error or 0.0) > (each.null_error or math.inf)
    ]
    (wrong, regressed, wide, vague), unfit = (list[str]() for _ in range(4)), 0
    for name, each in evaluation.quantities.items():
        mesh, error, band = grid.get(name), each.error or 0.0, each.band or 0.0
        tolerated = max(GOOD_QUANTITY, *(map(abs, (mesh.low, mesh.high)) if mesh else [0.0]))
        is_banded = each.source == REGRESSION and each.band is not None and not each.constant
        is_wide = is_banded and not names.is_useful(band, each.spread)
        unfit += each.constant or is_wide or error > tolerated
        if is_wide:
            differ = f", designs differ by ± {each.spread:.0%}" if each.spread else ""
            wide.append(f"{plain(name)} (± {band:.0%}{differ})")
        if each.constant:
            vague.append(f"The regression found no trend in {plain(name)}: it gives its mean.")
        elif error > tolerated:
            wrong.append(f"{plain(name)} is wrong by {error:.0%}")
        elif is_banded and error > band:
            wrong.append(f"{plain(name)} is off by more than its band")
        elif is_banded and not is_wide and each.error is not None:
            regressed.append(plain(name))
    if wide:
        vague.append(f"Bands that are too wide to be of use: {listed(wide)}.")
    other = reference(best)
    beaten = f"{other} is about as good, without a network"
    close = f"that is {times(ratio)} the error of {other}, which needs no network"
    if ratio > names.CLEAR_RATIO:
        smaller = f"{times(ratio)} smaller, {theirs:.1%}" if theirs else "zero"
        beaten = f"the error of {other}, without a network, is {smaller}"
    if given:
        factor = times(evaluation.overall[MODEL].nmae / max(ours.nmae, 1e-9))
        measured += f", {factor} smaller than the network's"
    elif ratio <= GOOD_RATIO:
        measured += f", {times(ratio)} that of {other}"
    useless = {beaten: not given and ratio >= TIED_RATIO, rae: not ours["rae"] <= MOST_RAE}
    limits = {
        close: not given and ratio > GOOD_RATIO,
        f"{rae}: a usable model has {GOOD_RAE:.0%} at most": ours["rae"] > GOOD_RAE,
        f"a regression on the design parameters answers {listed(lost)} better": bool(lost),
        listed(wrong): bool(wrong),
        worse: bool(worse),
    }
    word: Word = "not usable"
    found = [reason for reason, holds in useless.items() if holds]
    if not found:
        word, found = "for trends", [reason for reason, holds in limits.items() if holds]
        word = "unproven" if few else word
    if not (found or few or worst or lost_case):
        word, found = "usable", [f"{rae}, and every quantity is within its limit"]
    all_unfit = unfit and unfit == len(evaluation.quantities)
    besides = " None of the quantities can be used." if all_unfit else ""
    if regressed:
        besides = f" By a regression on the parameters, {listed(regressed)} can"
        within = "their bands" if regressed[1:] else "its band"
        besides += f"{' perhaps' * bool(few)} be used within {within}."
    return Verdict(word, [*filter(None, found)], measured, worst, besides, given, vague, outlier)


def _outlier(evaluation: Evaluation, judged: str) -> tuple[str, bool]:
    """Name the case of the largest error, if it is far off, and return if it has no use there."""
    if not (name := evaluation.outlier):
        return "", False
    case, split = evaluation.unseen[name], evaluation.split_of(name)
    error = case.overall[judged]
    parts = {of: fmean(case.nmae[judged][of]) for of in evaluation.components}
    worst = max(parts, key=parts.__getitem__)
    at = f"case {name} ({', '.join(filter(None, [split, case.design]))})"
    seen = ", not trained on either," * (split == "validation")
    of = f", that of {component_name(worst)} {parts[worst]:.1%}" * (len(parts) > 1)
    return f"in {at}{seen} the NMAE is {error.nmae:.1%}{of}", error["rae"] > MOST_RAE


def _behind(evaluation: Evaluation, judged: str, name: str) -> list[tuple[float, str]]:
    """List where a reference is better, by the ratio of the errors and the component's name."""
    ours, theirs = (evaluation.by_component[of] for of in (judged, name))
    ratios = [(theirs[of].nmae / each.nmae, of) for of, each in ours.items() if each.nmae]
    return sorted(each for each in ratios if each[0] < CLOSE_RATIO)


def _named(
    evaluation: Evaluation, judged: str, name: str, found: Sequence[tuple[float, str]]
) -> str:
    """Format as `velocity x (NMAE 0.013 against the network's 0.071) and velocity y`."""
    low, high = (evaluation.by_component[of][found[0][1]].nmae for of in (name, judged))
    first, *others = (component_name(of) for _, of in found)
    return listed([f"{first} (NMAE {low:.2g} against {called(judged)}'s {high:.2g})", *others])


def judge_run(run: RunDirectory, evaluation: Evaluation) -> Verdict:
    """Judge a run, with the errors of the mesh where it is calibrated."""
    if not run.exists(BANDS):
        return judge(evaluation, {})
    # Here, because bands load SciPy.
    from courant.prediction.bands import Bands

    bands = run.read_record(BANDS, Bands, "calibrate the run again")
    return judge(evaluation, bands.grid if bands.weights == weights_digest(run) else {})


def known_verdict(run: RunDirectory) -> Verdict | None:
    """Judge a run's present weights; None without an evaluation of them."""
    evaluation = names.read_evaluation(run)
    return None if evaluation is None else judge_run(run, evaluation)


def times(ratio: float) -> str:
    """`0.54 times`, `12 times`"""
    return f"{float(f'{ratio:.2g}'):g} times"
