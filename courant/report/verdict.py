"""Judge a trained run in one or two sentences, from the numbers alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from courant.evaluation.record import MODEL, Evaluation
from courant.report.wording import listed, plain, reference


def summary_line(evaluation: Evaluation) -> str:
    """Compare the model's error with each reference's, and say where it beats the first of them.

    Quantities of interest that the null predicts better come before all. The first reference is the
    one that is hard to beat: over a rollout each step counts, elsewhere each case.
    """
    return _null_wins(evaluation) + _fields_line(evaluation)


def _null_wins(evaluation: Evaluation) -> str:
    """Say first where fields tell less than the design parameters alone."""
    lost = [name for name, each in evaluation.quantities.items() if each.null_wins]
    if not lost:
        return ""
    return (
        f"A regression on the design parameters alone predicts {listed(list(map(plain, lost)))}"
        " better than the model does. "
    )


def _fields_line(evaluation: Evaluation) -> str:
    ours = evaluation.overall[MODEL].nmae
    beside = [_beside(ours, name, evaluation.overall[name].nmae) for name in evaluation.references]
    over_variation = evaluation.overall[MODEL]["rae"]
    line = (
        f"NMAE {ours:.3f} on the {evaluation.split} split, {listed(beside)}."
        f" Over the variation of the fields (RAE) the error is {over_variation:.3f}. "
    )
    hardest = evaluation.references[0]
    if evaluation.step_s is None:
        return line + _cases_won(evaluation, hardest)
    return line + _steps_won(evaluation.beats(hardest), hardest)


def _beside(ours: float, name: str, theirs: float) -> str:
    if not theirs:
        return f"where {reference(name)} makes no error"
    share = ours / theirs - 1
    return f"{abs(share):.0%} {'below' if share < 0 else 'above'} {reference(name)}'s {theirs:.3f}"


def _cases_won(evaluation: Evaluation, name: str) -> str:
    cases = evaluation.cases.values()
    won = sum(case.overall[MODEL].nmae < case.overall[name].nmae for case in cases)
    return f"The model is better than {reference(name)} on {won} of {len(cases)} cases."


def _steps_won(beats: Sequence[bool], name: str) -> str:
    hardest = reference(name)
    won = [step for step, beaten in enumerate(beats, start=1) if beaten]
    lost = [step for step, beaten in enumerate(beats, start=1) if not beaten]
    if not lost:
        return f"The model beats {hardest} at every rollout step."
    if not won:
        return f"It does not beat {hardest} at any rollout step yet."
    return f"It beats {hardest} at steps {_ranges(won)}, and not yet at {_ranges(lost)}."


def _ranges(steps: Sequence[int]) -> str:
    """Format [1, 2, 3, 7] as `1-3 and 7`."""
    gaps = [
        0,
        *(at for at, (a, b) in enumerate(pairwise(steps), start=1) if b != a + 1),
        len(steps),
    ]
    runs = [steps[begin:end] for begin, end in pairwise(gaps)]
    return listed([f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs])
