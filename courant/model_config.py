"""Define the sizes of a model as plain numbers.

An experiment is read and rejected without torch, which takes seconds to import. Models themselves
are in `courant.field_model`.
"""

from collections.abc import Iterable, Set
from dataclasses import MISSING, dataclass, field, fields
from difflib import get_close_matches
from typing import Any, ClassVar, Self


def size(default: Any, least: float, most: float) -> Any:
    """Return a field of a config with its bounds; whole bounds ask for whole numbers."""
    return field(default=default, metadata={"bounds": (least, most)})


def choice(*values: str) -> Any:
    """Return a field of a config that has one of these values, by default the first."""
    return field(default=values[0], metadata={"choices": values})


def check_names(config: type, given: Iterable[str], known: Set[str]) -> None:
    """Raise ValueError for values of fields that a config does not have."""
    if unknown := sorted({str(name)[:100] for name in given} - known):
        near = "".join(f"did you mean {of}? " for of in get_close_matches(unknown[0], known, 1))
        raise ValueError(
            f"{config.__name__} has no field {', '.join(unknown)[:200]}; {near}its fields are"
            f" {', '.join(sorted(known))}"
        )


@dataclass(frozen=True)
class ModelConfig:
    """The sizes that a dataset gives to a model; each kind of model adds its own choices.

    Frozen, checked, and the same after a JSON round trip. Bounds limit what an untrusted config can
    make this process allocate.
    """

    #: Channels at each encoder point (several input frames are simply more channels).
    num_features: int = size(MISSING, 0, 4096)
    num_outputs: int = size(MISSING, 1, 1024)  # C: channels of the predicted field
    #: Channels at each query, such as the distance field; 0 = coordinates only.
    num_query_features: int = size(0, 0, 4096)
    num_parameters: int = size(0, 0, 4096)  # Design parameters; 0 for none
    dimension: int = size(3, 1, 3)  # d: 1, 2 or 3. A 2D case may also have z = 0
    transient: bool = False  # Whether it predicts the states after 1..T steps, or a single field
    #: Models of these sizes whose predictions are averaged, each with a training of its own
    #: (`courant.ensemble`).
    num_members: int = size(1, 1, 64)

    def __post_init__(self) -> None:
        for each in fields(self):
            value, allowed = getattr(self, each.name), each.metadata.get("choices")
            if bounds := each.metadata.get("bounds"):
                least, most = bounds
                kind = int if isinstance(least, int) else int | float
                valid = isinstance(value, kind) and not isinstance(value, bool)
                valid = valid and least <= value <= most
                what = "a whole number" if kind is int else "a number"
                demand = f"{what} from {least:,} to {most:,}"
            elif allowed:
                valid, demand = value in allowed, f"one of {', '.join(allowed)}"
            else:
                valid = isinstance(value, bool) or each.type not in (bool, "bool")
                demand = "true or false"
            if not valid:
                # Python prints no whole number of more than 4,300 digits.
                long = isinstance(value, int) and value.bit_length() > 128
                shown = f"one of {value.bit_length()} bits" if long else repr(value)[:60]
                raise ValueError(f"{type(self).__name__}.{each.name} must be {demand}, got {shown}")

    kind: ClassVar[str]  # The name of this kind of model in experiments

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
        check_names(cls, values, {field.name for field in fields(cls)})
        try:
            return cls(**values)
        except TypeError as error:
            raise ValueError(f"{cls.__name__} is incomplete: {error}") from error
