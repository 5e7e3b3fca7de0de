"""Courant: a fast, legible surrogate of a simulation.

    import courant
    surrogate = courant.load("runs/cylinder-flow-demo-0123456789")
    surrogate.predict_case(case, start_s=200.0)

`courant.model` needs torch alone; what loading a run needs is imported on first use.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from courant.prediction.surrogate import Surrogate, load

__all__ = ["Surrogate", "load"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'courant' has no attribute '{name}'")
    import courant.prediction.surrogate

    return getattr(courant.prediction.surrogate, name)
