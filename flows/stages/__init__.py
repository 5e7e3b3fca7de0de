"""The stages of the main job: each finds its finished work again, and does what is left.

Nothing here imports Prefect, so that a command does without; the flows execute the same stages.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol, TypeVar

Result = TypeVar("Result")
Found = TypeVar("Found", covariant=True)


class Stage(Protocol[Found]):
    """A request that can be executed: a dataclass of its flow's parameters."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def done(self) -> Found | None:
        """Return the result if nothing is left to do, else None.

        Writes nothing. InputError for a request that makes no sense, be it done or not.
        """

    def check(self) -> None:
        """Raise for whatever would stop the stage, before anything starts."""

    def execute(self) -> Found:
        """Do what is left, and return the result."""


class Each(Protocol):
    """What is done with each stage of a job, such as `execute`."""

    def __call__(self, stage: Stage[Result], /) -> Result | None: ...


def execute(stage: Stage[Result]) -> Result:
    """Return the result of a stage, which is executed unless it is done."""
    done = stage.done()
    return stage.execute() if done is None else done
