"""Normalisation (Table tab:dataset-details): per-component standardisation of fields, one isotropic scale for lengths.

- A field component becomes (value - mean) / std with the statistics of the training split, as stored with the version.
- Points are centred on the training split's bounding box and divided by half its longest edge, so they lie in about
  [-1, 1] and keep their proportions; a 2D case carries z = 0.
- The distance field has four channels for each patch kind: distance over the same length scale, and the unit vector
  towards the nearest face of that kind: 16 channels for the cylinder's four kinds. An experiment may choose some of the kinds, or
  the nearest of several ("wall+impeller").
- Design parameters run from -1 to 1 over the design space.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from simgen.errors import InputError

if TYPE_CHECKING:
    from simgen.store.layout import Schema
    from simgen.store.reader import Dataset

CHANNELS_PER_PATCH_KIND = 4


@dataclass(frozen=True)
class Channel:
    """One modelled component of a stored field: `velocity.x`, its column in the stored array, and its unit."""

    field: str
    component: str
    column: int
    unit: str

    @property
    def name(self) -> str:
        return f"{self.field}.{self.component}"


def select_channels(schema: Schema, names: Sequence[str]) -> tuple[Channel, ...]:
    """The channels that names like "velocity" (every component) or "velocity.x" stand for; InputError for others."""
    available = {
        field.name: [
            Channel(field.name, component, column, field.unit) for column, component in enumerate(field.components)
        ]
        for field in schema.fields
    }
    by_name = {channel.name: channel for channels in available.values() for channel in channels}
    selected: list[Channel] = []
    for name in names:
        if name not in available and name not in by_name:
            raise InputError(
                f"field '{name}' is not in dataset {schema.family}; choose of {', '.join([*available, *by_name])}"
            )
        selected += available.get(name) or [by_name[name]]
    return tuple(selected)


@dataclass(frozen=True)
class ParameterRange:
    """A design parameter and the range that its design space gives it, in its unit."""

    name: str
    low: float
    high: float


@dataclass(frozen=True)
class Normaliser:
    """Physical units <-> the model's units; numpy in, float32 numpy out. Travels as JSON with the trained model."""

    dimension: int
    centre: tuple[float, ...]
    """(3,) m"""
    length_scale: float
    """m"""
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    """(3,) m, the training points' bounding box"""
    patch_kinds: tuple[str, ...]
    channels: tuple[Channel, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    """One number per channel, in its unit"""
    distance_kinds: tuple[str, ...] = ()
    """What the distance field is taken to, as in `SampleData`; none named = every patch kind"""
    parameters: tuple[ParameterRange, ...] = ()

    @classmethod
    def of(cls, dataset: Dataset, fields: Sequence[str], distance_kinds: Sequence[str] | None = None) -> Normaliser:
        """From the training statistics that are stored with the dataset version."""
        statistics, schema = dataset.statistics, dataset.schema
        lower, upper = (np.asarray(statistics["points"][bound], dtype=float) for bound in ("min", "max"))
        channels = select_channels(schema, fields)
        std = [float(statistics[channel.field]["std"][channel.column]) for channel in channels]
        for channel, value in zip(channels, std, strict=True):
            if not value > 0:
                raise InputError(
                    f"{channel.name} is constant over the training split (std {value:g}): leave it out of the modelled fields"
                )
        return cls(
            dimension=schema.dimension,
            centre=tuple(((lower + upper) / 2).tolist()),
            length_scale=float((upper - lower).max() / 2),
            lower=tuple(lower.tolist()),
            upper=tuple(upper.tolist()),
            patch_kinds=tuple(schema.patch_kinds),
            channels=channels,
            mean=tuple(float(statistics[channel.field]["mean"][channel.column]) for channel in channels),
            std=tuple(std),
            distance_kinds=_check_kinds(distance_kinds or (), schema.patch_kinds),
            parameters=tuple(ParameterRange(each.name, each.low, each.high) for each in schema.parameters),
        )

    @property
    def num_distance_channels(self) -> int:
        return CHANNELS_PER_PATCH_KIND * len(self.distance_kinds or self.patch_kinds)

    def points(self, points: np.ndarray) -> np.ndarray:
        """(..., 3) m -> (..., 3) dimensionless, z = 0 in 2D."""
        scaled = (np.asarray(points, dtype=np.float64) - self.centre) / self.length_scale
        scaled[..., self.dimension :] = 0.0
        return scaled.astype(np.float32)

    def restore_points(self, points: np.ndarray) -> np.ndarray:
        """Inverse of `points` (2D: z = the centre's)."""
        return np.asarray(points, dtype=np.float64) * self.length_scale + self.centre

    def distance(self, distance: np.ndarray, direction: np.ndarray) -> np.ndarray:
        """(N, K) m and (N, K, 3) unit vectors -> (N, 4 K): distance and direction of each patch kind in turn.

        K on the left are all the family's patch kinds, on the right those of `distance_kinds`.
        """
        if self.distance_kinds:
            distance, direction = self._nearest_of_kinds(np.asarray(distance), np.asarray(direction))
        field = np.concatenate([np.asarray(distance)[..., None] / self.length_scale, direction], axis=-1)
        return field.reshape(len(field), self.num_distance_channels).astype(np.float32)

    def design(self, parameters: Mapping[str, float]) -> np.ndarray:
        """Design parameters in their units -> (P,), from -1 to 1 over the design space."""
        scaled = [2 * (parameters[each.name] - each.low) / (each.high - each.low) - 1 for each in self.parameters]
        return np.asarray(scaled, dtype=np.float32)

    def _nearest_of_kinds(self, distance: np.ndarray, direction: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(N, K), (N, K, 3) of all kinds -> those of `distance_kinds`."""
        rows = np.arange(len(distance))
        nearest = []
        for group in self.distance_kinds:
            columns = np.array([self.patch_kinds.index(kind) for kind in group.split("+")])
            nearest.append(columns[distance[:, columns].argmin(axis=1)])
        chosen = np.stack(nearest, axis=1)
        return distance[rows[:, None], chosen], direction[rows[:, None], chosen]

    def standardise(self, values: np.ndarray) -> np.ndarray:
        """(..., C) physical -> (..., C) standardised."""
        return ((np.asarray(values) - np.asarray(self.mean, np.float32)) / np.asarray(self.std, np.float32)).astype(
            np.float32
        )

    def restore(self, values: np.ndarray) -> np.ndarray:
        """(..., C) standardised -> (..., C) physical."""
        return (np.asarray(values) * np.asarray(self.std, np.float32) + np.asarray(self.mean, np.float32)).astype(
            np.float32
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: Any) -> Normaliser:
        """Rebuild it; InputError in one line for content that no dataset has."""
        try:
            normaliser = _FROM_JSON.validate_python(content)
        except ValidationError as error:
            wrong = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:4])
            raise InputError(f"normaliser: {wrong}") from error
        normaliser._check()
        return normaliser

    def _check(self) -> None:
        """InputError where the numbers do not belong together or cannot be divided by."""
        num = len(self.channels)
        lengths = {"centre": 3, "lower": 3, "upper": 3, "mean": num, "std": num}
        wrong = [f"{name} has {len(getattr(self, name))} numbers, expected {expected}"
                 for name, expected in lengths.items() if len(getattr(self, name)) != expected]  # fmt: skip
        numbers = [number for name in lengths for number in getattr(self, name)]
        numbers += [bound for each in self.parameters for bound in (each.low, each.high)]
        if not all(map(math.isfinite, [*numbers, self.length_scale])):
            wrong.append("a number is not finite")
        if not (self.length_scale > 0 and all(value > 0 for value in self.std)):
            wrong.append("length_scale and std must be positive")
        if any(each.low >= each.high for each in self.parameters):
            wrong.append("a parameter's low is not below its high")
        if self.dimension not in (2, 3) or not num or not self.patch_kinds:
            wrong.append("dimension must be 2 or 3, channels and patch_kinds name at least one")
        if any(channel.column < 0 for channel in self.channels):
            wrong.append("a channel's column is negative")
        if wrong:
            raise InputError(f"normaliser: {'; '.join(wrong)}")
        _check_kinds(self.distance_kinds, self.patch_kinds)


_FROM_JSON = TypeAdapter(Normaliser)


def _check_kinds(wanted: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """The distance field's kinds; InputError for one that the family does not have."""
    unknown = sorted({kind for group in wanted for kind in group.split("+")} - set(known))
    if unknown:
        raise InputError(f"data.distance_kinds: no patch kind {', '.join(unknown)}; choose of {', '.join(known)}")
    return tuple(wanted)
