"""Check that two models answer the same question, so that their predictions can be compared."""

from __future__ import annotations

from courant.prediction.surrogate import Surrogate
from simgen.errors import InputError


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
