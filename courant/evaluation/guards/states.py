"""Find in which of two states solved cases are, and score the share near a design as a forecast."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from pydantic import BaseModel, ConfigDict

from courant.evaluation.quantities import family_of
from courant.prediction.guards.outcomes import ObservedState
from simgen.case import CaseFamily
from simgen.design_space import scaled
from simgen.point_cloud import PointCloud
from simgen.quantities import CaseFields, observe, states_from
from simgen.store.access.reader import Dataset
from simgen.store.access.stored_case import StoredCase

TAUGHT_BY = ("train", "validation", "calibration")
#: Each is read whole.
MOST_READ = 500


class StateScore(BaseModel):
    """How well the share near a design foretells a state."""

    model_config = ConfigDict(frozen=True)
    meaning: str
    num_cases: int
    share: float
    """Of these cases, with the state"""
    brier: float
    """Mean squared difference of the share near each design and 0 or 1"""
    brier_of_share: float
    """The same of one share for all designs, that of the cases it was learned from"""


def observed_states(dataset: Dataset) -> dict[str, ObservedState]:
    """Read the states of solved cases; those of the test split stay unseen.

    Of many, those for calibration and validation come before those for training.
    """
    family = family_of(dataset)
    if family is None or not family.states:
        return {}
    cases = [case for split in TAUGHT_BY for case in dataset.cases(split)][-MOST_READ:]
    rows: dict[str, list[tuple[str, tuple[float, ...], bool]]] = {}
    for case in map(dataset.__getitem__, cases):
        design = tuple(scaled(dataset.schema.parameters, case.parameters).tolist())
        for name, found in _states_of(family, case).items():
            rows.setdefault(name, []).append((case.id, design, found))
    return {
        name: ObservedState(cases=ids, designs=designs, found=found)
        for name, (ids, designs, found) in (
            (name, zip(*each, strict=True)) for name, each in rows.items()
        )
    }


def score_states(
    known: Mapping[str, ObservedState], dataset: Dataset, cases: list[str]
) -> dict[str, StateScore]:
    """Score the shares on cases that they were not learned from."""
    family = family_of(dataset)
    if family is None or not known:
        return {}
    meanings = {each.name: each.meaning for each in family.states}
    rows = list(_forecasts(family, known, dataset, cases))
    return {
        name: _score(meanings[name], known[name].share, np.array(pairs))
        for name in known
        if name in meanings and (pairs := [pair for of, *pair in rows if of == name])
    }


def _forecasts(
    family: CaseFamily, known: Mapping[str, ObservedState], dataset: Dataset, cases: list[str]
) -> Iterator[tuple[str, float, float]]:
    """Yield state, share near the design, and 1 where the case has it, else 0."""
    learned = {case for each in known.values() for case in each.cases}
    for case in (dataset[each] for each in cases if each not in learned):
        design = scaled(dataset.schema.parameters, case.parameters)
        for name, found in _states_of(family, case).items():
            if name in known:
                yield name, known[name].near(design), float(found)


def _score(meaning: str, share: float, pairs: np.ndarray) -> StateScore:
    forecast, found = pairs.T
    return StateScore(
        meaning=meaning,
        num_cases=len(found),
        share=float(found.mean()),
        brier=float(((forecast - found) ** 2).mean()),
        brier_of_share=float(((share - found) ** 2).mean()),
    )


def _states_of(family: CaseFamily, case: StoredCase) -> dict[str, bool]:
    """Observe a solved case's states, of a transient one from when it has settled."""
    components = [component for each in family.states for component in each.needs]
    fields = case.read(*sorted({name.rpartition(".")[0] for name in components}))
    cloud = PointCloud(
        case.points,
        None,
        None,
        None,
        tuple(case.patch_kinds),
        None if case.time is None else np.asarray(case.time),
        fields,
        None,
    )
    settled = states_from(cloud, family.settled_from_s(case.settings))
    return observe(family.states, CaseFields(case.parameters, case.settings, settled), components)
