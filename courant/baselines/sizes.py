"""Check the sizes of a baseline before anything is built; without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from courant.model_config import ModelConfig

_COMMON: dict[str, tuple[int, int]] = {
    "num_features": (0, 4096),
    "num_outputs": (1, 1024),
    "num_query_features": (0, 4096),
    "num_parameters": (0, 4096),
    "dimension": (1, 3),
    "input_steps": (1, 1024),
}


@dataclass(frozen=True)
class BaselineConfig(ModelConfig):
    """The sizes of a baseline: frozen, checked, and the same after a JSON round trip."""

    #: Least and greatest value of each number that a kind adds; whole bounds ask for whole numbers.
    bounds: ClassVar[Mapping[str, tuple[float, float]]] = {}

    #: I: states that a transient model knows, the first channels of its features, oldest first.
    input_steps: int = 1

    def __post_init__(self) -> None:
        name = type(self).__name__
        for field, (least, most) in {**_COMMON, **self.bounds}.items():
            value = getattr(self, field)
            kind = int if isinstance(least, int) else int | float
            if not isinstance(value, kind) or isinstance(value, bool) or not least <= value <= most:
                what = "a whole number" if kind is int else "a number"
                raise ValueError(
                    f"{name}.{field} must be {what} from {least:,} to {most:,}, got {_shown(value)}"
                )
        if not isinstance(self.transient, bool):
            raise ValueError(
                f"{name}.transient must be true or false, got {_shown(self.transient)}"
            )
        if self.input_steps > 1 and not self.transient:
            raise ValueError(
                f"{name}.input_steps = {self.input_steps}: a steady model has no steps"
            )
        states = self.num_state_channels
        if self.transient and self.num_features < states:
            raise ValueError(
                f"{name}.num_features = {self.num_features}: a transient model reads the state,"
                f" at least num_outputs x input_steps = {states} channels"
            )

    @property
    def num_state_channels(self) -> int:
        """I C: channels of all known states together."""
        return self.input_steps * self.num_outputs

    def check_divides(self, width: str, parts: str) -> None:
        """Raise ValueError unless the field `width` is a multiple of the field `parts`."""
        whole, part = getattr(self, width), getattr(self, parts)
        if whole % part:
            raise ValueError(
                f"{type(self).__name__}.{width} = {whole} does not divide over {parts} = {part}"
            )


@dataclass(frozen=True)
class MeshConfig(BaselineConfig):
    """The sizes of a model whose points and queries are the same kind of thing.

    Such a model reads the mesh. A query knows its last channels itself, the given fields and the
    distance field, and gets the first ones, the state or the boundary conditions, from the cloud.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        states = self.num_state_channels
        if self.num_query_features and self.num_carried not in (0, states):
            raise ValueError(
                f"{type(self).__name__}.num_features = {self.num_features} and num_query_features ="
                f" {self.num_query_features}: points and queries of this model share their given"
                " fields and distance field, so num_features is num_query_features, with"
                f" num_outputs x input_steps = {states} more where a state or a boundary condition"
                ' is known; a steady experiment sets data.encoder to "mesh"'
            )

    @property
    def num_carried(self) -> int:
        """Channels that a query gets from the cloud."""
        return self.num_features - self.num_query_features


def _shown(value: Any) -> str:
    return repr(value)[:60]
