"""Tell how designs are solved and measured: as the cases that the model was trained on."""

from __future__ import annotations

import numpy as np

from courant.prediction.predictor import Predictor
from simgen.case import CaseFamily
from simgen.errors import InputError, SimgenError


def settings_of(surrogate: Predictor) -> dict[str, float]:
    """Return the solver settings of the dataset that the model was trained on.

    Runs of older releases do not have them on record, and ask the dataset.
    """
    recorded = surrogate.dataset.get("settings")
    if recorded:
        return dict(recorded)
    try:
        return surrogate.open_dataset()[0].settings
    except SimgenError as error:
        raise InputError(
            "the run does not say with which settings its designs are meshed, and its dataset is"
            f" not where it was ({surrogate.dataset['url']}): bring it back, or train the model"
            " again"
        ) from error


def counted_from_s(surrogate: Predictor, family: CaseFamily, times: np.ndarray | None) -> float:
    """Return the time from which states count in quantities.

    A rollout to the end of the dataset's cases is measured as these are, from the family's settled
    state on; of any other one all predicted states count.
    """
    settings, step_s = settings_of(surrogate), surrogate.step_s
    if times is None or step_s is None:
        return 0.0
    to_the_end = times[-1] > settings[family.horizon] - step_s * (1 - 1e-6)
    return family.settled_from_s(settings) if to_the_end else 0.0
