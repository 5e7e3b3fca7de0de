"""Measure what the quantities of interest depend on, through a model and in the solved designs.

Both are Sobol indices of a Gaussian process: fitted to the quantities of the model's predictions
for some of the dataset's designs, and to those on record of all solved ones. Where the two differ,
the model has learned another dependence than the solver has.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from courant.evaluation.quantities import family_of, of_prediction, recorded
from courant.prediction.surrogate import Surrogate
from simgen.publish.dataset_figures import LEAST_DESIGNS, Sensitivity, sobol_indices
from simgen.quantities import obtainable
from simgen.store.read import Dataset

DESIGNS = 12
"""Predicted for each parameter, at most"""


@dataclass(frozen=True)
class Dependence:
    """The indices of one quantity; None where the designs do not tell them."""

    solved: Sensitivity | None
    predicted: Sensitivity | None


def dependences(surrogate: Surrogate, dataset: Dataset) -> dict[str, Dependence]:
    """Return the indices of each quantity that the model predicts; empty with too few designs."""
    family, parameters = family_of(dataset), dataset.schema.parameters
    ids = dataset.cases()
    if family is None or not parameters or len(ids) < LEAST_DESIGNS * len(parameters):
        return {}
    wanted, _ = obtainable(family.quantities, surrogate.channels)
    number = min(len(ids), DESIGNS * len(parameters))
    chosen = sorted(np.random.default_rng(0).permutation(len(ids))[:number].tolist())
    predicted = [of_prediction(surrogate, family, wanted, dataset[ids[place]]) for place in chosen]
    designs = [dataset[case].parameters for case in ids]
    return {
        each.name: Dependence(
            sobol_indices(parameters, designs, recorded(dataset, each.name, ids)),
            sobol_indices(
                parameters,
                [designs[place] for place in chosen],
                [of_case[each.name] for of_case in predicted],
            ),
        )
        for each in wanted
    }
