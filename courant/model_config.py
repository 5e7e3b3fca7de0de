"""Define the sizes of a model as plain numbers.

An experiment is read and rejected without torch, which takes seconds to import. Models themselves
are in `courant.field_model`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self


@dataclass(frozen=True)
class ModelConfig:
    """The sizes that a dataset gives to a model; each kind of model adds its own choices."""

    #: Channels at each encoder point (several input frames are simply more channels).
    num_features: int
    #: C: channels of the predicted field.
    num_outputs: int
    #: Channels at each query, such as the distance field; 0 = coordinates only.
    num_query_features: int = 0
    #: Design parameters; 0 for none.
    num_parameters: int = 0
    #: d: 1, 2 or 3. A 2D case may also have z = 0.
    dimension: int = 3
    #: Whether it predicts the states after 1..T steps, or a single field.
    transient: bool = False
    #: Models of these sizes whose predictions are averaged, each with a training of its own
    #: (`courant.ensemble`).
    num_members: int = 1

    #: The name of this kind of model in experiments.
    kind: ClassVar[str]

    @property
    def num_sampled_anchors(self) -> int:
        """Number of points sampled from each cloud for this model, once a case; 0 = none."""
        return 0

    @property
    def num_learned_anchors(self) -> int:
        """Number of places that the model learns, which a training may start; 0 = none."""
        return 0

    @property
    def reads_edges(self) -> bool:
        """Whether the model reads which points of the cloud a mesh connects."""
        return False

    @property
    def waits_for_device(self) -> str | None:
        """Name what makes the host wait for a number from the device, if anything.

        Such a model cannot be held by a CUDA graph.
        """
        return None

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Rebuild a config; ValueError names a field that is unknown, missing or invalid."""
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ValueError(
                f"{cls.__name__} has no field {', '.join(unknown)[:200]}; its fields are"
                f" {', '.join(sorted(known))}"
            )
        try:
            return cls(**values)
        except TypeError as error:
            raise ValueError(f"{cls.__name__} is incomplete: {error}") from error
