"""Derive a model whose anchors lie closer together where a trained one errs.

The errors are those of the validation cases, divided among the anchors (`error_addresses`): E_k /
V_k is the mean square error where anchor k speaks. Its square root, over the median of all anchors,
says how many times closer anchors should lie around it, between half and twice as close: with its
root again, since an error that falls in proportion to the spacing would be even after that. Places
of all cases are gathered into a few that the experiment names, so that a design that nobody has
solved has its anchors by the same rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy.cluster.vq import kmeans2

from courant.analysis.error_indicators.anchor_state import AnchorState, anchor_states
from courant.data_config import TransientData
from courant.experiment import MAX_NAME, Experiment
from courant.field_model import Decomposes
from courant.prediction.surrogate import Surrogate
from simgen.errors import InputError
from simgen.store.access.reader import Dataset

MAX_PLACES = 128
"""Places that an experiment names"""
MAX_CASES = 100
"""Validation cases that are looked at"""
CLOSEST = 2.0
"""Anchors lie at most so many times closer or farther than at the median place"""
SUFFIX = "-refined"
_DIGITS = 4

Progress = Callable[[int, int], None]


def refined(
    surrogate: Surrogate,
    dataset: Dataset,
    num_anchors: int,
    progress: Progress = lambda done, total: None,
) -> Experiment:
    """Return the experiment of a run with so many anchors, closer together where it errs.

    InputError for a model without anchors that are sampled, and where no validation case has a
    solution.
    """
    model = surrogate.experiment.model
    if not isinstance(surrogate.model, Decomposes) or not model.num_sampled_anchors:
        raise InputError(
            f"{surrogate.url}: only a model that samples its anchors from the points can have them"
            " closer together"
        )
    # Before any case is predicted: a number that the model cannot have is told.
    wider = surrogate.experiment.derive(model={"num_anchors": num_anchors})
    cases = dataset.cases("validation")[:MAX_CASES]
    states = []
    for number, case in enumerate(cases):
        progress(number, len(cases))
        states += [
            state for state in anchor_states(surrogate, dataset[case]) if state.errors is not None
        ]
    if not states:
        raise InputError("errors are learned from the validation split, which has no solved case")
    found = closeness(surrogate, states)
    # The errors are those that are left with the closeness that the run has.
    had = surrogate.problem.anchors.closeness_at(np.array(found)[:, :3])
    closer = [
        (x, y, z, _bounded(each * float(before)))
        for (x, y, z, each), before in zip(found, had, strict=True)
    ]
    data, normaliser = surrogate.experiment.data, surrogate.normaliser
    if isinstance(data, TransientData) and data.mirror_y:
        # The plane y = 0 m may lie off the middle of normalised coordinates.
        plane = -normaliser.centre[1] / normaliser.length_scale
        closer += [(x, round(2 * plane - y, _DIGITS), z, each) for x, y, z, each in closer]
    name = f"{wider.name[: MAX_NAME - len(SUFFIX)].rstrip('-')}{SUFFIX}"
    return wider.derive(name=name, data={"closer_anchors": closer})


def closeness(
    surrogate: Surrogate, states: Sequence[AnchorState]
) -> tuple[tuple[float, float, float, float], ...]:
    """Return places in normalised coordinates, and how many times closer anchors should lie."""
    places, densities = [], []
    for state in states:
        assert state.errors is not None
        if state.places is None:
            raise InputError(f"{surrogate.url}: its anchors have no positions")
        spoken = state.governed > 0
        places.append(surrogate.normaliser.points(state.places)[spoken])
        densities.append(state.errors[spoken] / state.governed[spoken])
    return gathered(np.concatenate(places), np.concatenate(densities))


def gathered(
    places: np.ndarray, densities: np.ndarray
) -> tuple[tuple[float, float, float, float], ...]:
    """Gather places (n, 3) with mean square errors (n,) into a few with their closeness."""
    middle = float(np.median(densities))
    if not middle > 0:
        raise InputError("the model has no error on half of its validation cases: nothing to mend")
    number = min(MAX_PLACES, len(np.unique(places, axis=0)))
    centres, group = kmeans2(places.astype(np.float64), number, minit="++", seed=0)
    found = []
    for each, centre in enumerate(centres):
        inside = densities[group == each]
        if len(inside):
            closer = (float(inside.mean()) / middle) ** 0.25
            x, y, z = (round(float(value), _DIGITS) for value in centre)
            found.append((x, y, z, _bounded(closer)))
    return tuple(found)


def _bounded(closer: float) -> float:
    return round(float(np.clip(closer, 1 / CLOSEST, CLOSEST)), _DIGITS)
