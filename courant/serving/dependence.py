"""Tell what each quantity depends on, while designs are being explored.

The indices take a model from seconds to minutes: a thread computes them once, and the page asks
again until they are there.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable

from pydantic import BaseModel

from courant.evaluation.sensitivity import Dependence, dependences
from courant.prediction.surrogate import Surrogate
from courant.serving.solved_designs import SolvedDesigns
from simgen.errors import SimgenError
from simgen.publish.sensitivity import LEAST_DESIGNS, Sensitivity

NICENESS = 10
logger = logging.getLogger("courant.serving")


class Indices(BaseModel):
    """Sobol indices of one quantity, by parameter."""

    first: dict[str, float]
    """the share of the variance over the design space that a parameter explains alone"""
    total: dict[str, float]
    """with all its interactions"""
    fit: float
    """R2, on designs left out, of the Gaussian process that they come from"""


class QuantityDependence(BaseModel):
    """What one quantity depends on; null where the designs do not tell it."""

    predicted: Indices | None
    solved: Indices | None


class Dependences(BaseModel):
    """What the quantities depend on."""

    ready: bool
    """false while they are being computed: ask again"""
    quantities: dict[str, QuantityDependence]
    reason: str
    """why there are none; else empty"""


class DependenceStudy:
    """The indices of a model, computed once in a thread of low priority."""

    def __init__(
        self,
        surrogate: Surrogate,
        solved: SolvedDesigns,
        measure: Callable[..., dict[str, Dependence]] = dependences,
    ) -> None:
        self._surrogate, self._solved, self._measure = surrogate, solved, measure
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._answer = Dependences(ready=False, quantities={}, reason="")

    def answer(self) -> Dependences:
        """Return what is known by now; the first call starts the study."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._study, name="sobol", daemon=True)
                self._thread.start()
        return self._answer

    def _study(self) -> None:
        # Of this thread alone: moves of sliders come first. Only root may lower what it has.
        with contextlib.suppress(OSError):
            thread = threading.get_native_id()
            mine = os.getpriority(os.PRIO_PROCESS, thread)
            os.setpriority(os.PRIO_PROCESS, thread, max(mine, NICENESS))
        try:
            dataset = self._solved.trained
            found = self._measure(self._surrogate, dataset)
            names = [each.name for each in dataset.schema.parameters]
        except SimgenError as error:
            self._end({}, self._solved.reason(error))
            with self._lock:
                self._thread = None  # the next request tries again
        except Exception:  # the client learns nothing of this machine, its log has it all
            logger.exception("Sobol indices could not be computed")
            self._end({}, "the indices could not be computed; the log says why")
        else:
            self._end(
                {
                    quantity: QuantityDependence(
                        predicted=_indices(each.predicted, names),
                        solved=_indices(each.solved, names),
                    )
                    for quantity, each in found.items()
                    if each.predicted or each.solved
                },
                f"the dataset's designs do not tell them: they ask for {LEAST_DESIGNS} designs a"
                " parameter, and for quantities that depend smoothly on the parameters",
            )

    def _end(self, quantities: dict[str, QuantityDependence], reason: str) -> None:
        self._answer = Dependences(
            ready=True, quantities=quantities, reason="" if quantities else reason
        )


def _indices(found: Sensitivity | None, parameters: list[str]) -> Indices | None:
    if found is None:
        return None
    return Indices(
        first=dict(zip(parameters, found.first, strict=True)),
        total=dict(zip(parameters, found.total, strict=True)),
        fit=found.fit,
    )
