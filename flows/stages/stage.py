"""Define what the command line knows of a stage."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Protocol, TypeVar

RayWork = Literal["cases", "model", "models"]
"""What workers of this process's Ray begin with: solving, training in one worker, in any other"""
Result = TypeVar("Result", covariant=True)


class Stage(Protocol[Result]):
    """Describe a request that a flow carries out: a dataclass of the flow's parameters."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def finished(self) -> Result | None:
        """Return the result if nothing is left to do."""

    def prepare(self) -> RayWork | None:
        """Reject what cannot be carried out, before anything starts.

        Return what a Ray of this process is to do first; None where none is needed.
        """
