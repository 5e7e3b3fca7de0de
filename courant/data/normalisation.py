"""Select channels of stored fields; normalise them, and lengths by one isotropic scale.

As in the paper's table of learning tasks (tab:dataset-details).
- A field component becomes (value - mean) / std with the statistics of the training split, as
  stored with the version. This holds for modelled components and for given ones, which are inputs.
  A component that does not vary by more than noise is no channel (`simgen.moments`).
- Points are centred on the training split's bounding box and divided by half its longest edge, so
  they lie in about [-1, 1] and keep their proportions; a 2D case has z = 0.
- The distance field has four channels for each patch kind: distance over the same length scale, and
  the unit vector towards the nearest face of that kind: 16 channels for the cylinder's four kinds.
  An experiment may choose some of the kinds, or the nearest of several ("wall+impeller").
- Design parameters run from -1 to 1 over the design space.
- An experiment may scale a field by powers of design parameters. `Normaliser.at` a design, mean and
  standard deviation are those of the split times the powers of (parameter / middle of its range).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from courant.data.geometry import DistanceField
from simgen.errors import InputError
from simgen.moments import fits_single

if TYPE_CHECKING:
    from simgen.case import Role
    from simgen.store.read import Dataset
    from simgen.store.schema import Schema

logger = logging.getLogger("courant.training")


@dataclass(frozen=True)
class Channel:
    """One modelled component of a stored field: `velocity.x`, with its column and unit."""

    field: str
    component: str
    column: int
    unit: str

    @property
    def name(self) -> str:
        return f"{self.field}.{self.component}"


def select_channels(
    schema: Schema, names: Sequence[str], role: Role = "solved"
) -> tuple[Channel, ...]:
    """Select the channels that names like "velocity" (every component) or "velocity.x" stand for.

    Only fields of the role count; InputError for other names.
    """
    available = {
        field.name: [
            Channel(field.name, component, column, field.unit)
            for column, component in enumerate(field.components)
        ]
        for field in schema.of_role(role)
    }
    by_name = {channel.name: channel for channels in available.values() for channel in channels}
    selected: list[Channel] = []
    for name in names:
        if name not in available and name not in by_name:
            other = {field.name for field in schema.fields} - set(available)
            wrong = f"is not {role}" if name.partition(".")[0] in other else "is not"
            raise InputError(
                f"field '{name}' {wrong} in dataset {schema.family}; choose of"
                f" {', '.join([*available, *by_name]) or 'none'}"
            )
        selected += available.get(name) or [by_name[name]]
    return tuple(selected)


MOST_POWER = 10.0


@dataclass(frozen=True)
class ParameterRange:
    """A design parameter and its range in the design space, in its unit."""

    name: str
    low: float
    high: float


def scale_of(
    parameters: Mapping[str, float],
    ranges: Sequence[ParameterRange],
    powers: Sequence[Sequence[float]],
    num_channels: int,
) -> np.ndarray:
    """Return (C,), each channel's product of powers of (parameter / middle of its range).

    Without powers these are ones. InputError for a parameter that scales and is not positive.
    """
    if not powers:
        return np.ones(num_channels, np.float32)
    ratios = [1.0] * len(ranges)
    for number, each in enumerate(ranges):
        if not any(row[number] for row in powers):
            continue
        value = parameters[each.name]
        if value <= 0:
            raise InputError(
                f"{each.name} = {value:g}: the fields scale with it, so it must be positive"
            )
        ratios[number] = value / (0.5 * (each.low + each.high))
    products = [
        math.prod(ratio**power for ratio, power in zip(ratios, row, strict=True)) for row in powers
    ]
    return np.array(products, dtype=np.float32)


def powers_of(
    scaled_by: Mapping[str, Mapping[str, float]],
    channels: Sequence[Channel],
    parameters: Sequence[ParameterRange],
) -> tuple[tuple[float, ...], ...]:
    """Return each channel's power of each parameter, () for none.

    InputError for a field that is not modelled, and a parameter that is unknown or not positive.
    """
    fields, known = {each.field for each in channels}, {each.name: each for each in parameters}
    for field, powers in scaled_by.items():
        if field not in fields:
            raise InputError(
                f"data.scaled_by: {field} is not modelled; choose of {', '.join(sorted(fields))}"
            )
        for name, power in powers.items():
            if abs(power) > MOST_POWER:
                raise InputError(
                    f"data.scaled_by: {name} to the power of {power:g}; at most {MOST_POWER:g} is"
                    " possible"
                )
            if name not in known:
                raise InputError(
                    f"data.scaled_by: no design parameter {name}; choose of {', '.join(known)}"
                )
            if known[name].low <= 0:
                raise InputError(
                    f"data.scaled_by: {name} is not positive over its whole range, from"
                    f" {known[name].low:g} to {known[name].high:g}"
                )
    rows = tuple(
        tuple(scaled_by.get(channel.field, {}).get(name, 0.0) for name in known)
        for channel in channels
    )
    return rows if any(any(row) for row in rows) else ()


def are_sound(powers: Sequence[Sequence[float]], parameters: Sequence[ParameterRange]) -> bool:
    """Tell whether a scale can be computed all over the ranges of its parameters."""
    return all(
        abs(power) <= MOST_POWER and each.low > 0
        for row in powers
        for power, each in zip(row, parameters, strict=False)
        if power
    )


CHANNELS_PER_PATCH_KIND = 4


@dataclass(frozen=True)
class Normaliser:
    """Convert between physical units and the model's units; numpy in, float32 numpy out.

    Travels as JSON with the trained model.
    """

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
    """The distance field's kinds, as in `SampleData`; empty = every patch kind"""
    parameters: tuple[ParameterRange, ...] = ()
    given: tuple[Channel, ...] = ()
    """Channels of given fields, which are inputs"""
    given_mean: tuple[float, ...] = ()
    given_std: tuple[float, ...] = ()
    measured_kinds: tuple[str, ...] | None = None
    """The patch kinds of stored distances, in order; None = every one"""
    has_boundary: bool = True
    powers: tuple[tuple[float, ...], ...] = ()
    """For each channel the power of each design parameter that scales it; empty = nothing does"""

    @classmethod
    def of(
        cls,
        dataset: Dataset,
        fields: Sequence[str],
        distance_kinds: Sequence[str] | None = None,
        given: Sequence[str] | None = None,
        scaled_by: Mapping[str, Mapping[str, float]] | None = None,
    ) -> Normaliser:
        """Build it from the training statistics that are stored with the dataset version.

        `given` names the given fields that are inputs, None = every one that varies; `scaled_by` is
        that of `SteadyData`.
        """
        statistics, schema = dataset.statistics, dataset.schema
        lower, upper = (
            np.asarray(statistics["points"][bound], dtype=float) for bound in ("min", "max")
        )
        every = (field.name for field in schema.of_role("given") if dataset.varying(field.name))
        names = list(every) if given is None else given
        channels = _that_vary(dataset, select_channels(schema, fields), fields, "fields")
        inputs = _that_vary(dataset, select_channels(schema, names, "given"), names, "given")
        mean, std = _moments(statistics, channels)
        given_mean, given_std = _moments(statistics, inputs)
        measured = schema.measured_kinds
        ranges = tuple(ParameterRange(each.name, each.low, each.high) for each in schema.parameters)
        return cls(
            dimension=schema.dimension,
            centre=tuple(((lower + upper) / 2).tolist()),
            length_scale=float((upper - lower).max() / 2),
            lower=tuple(lower.tolist()),
            upper=tuple(upper.tolist()),
            patch_kinds=tuple(schema.patch_kinds),
            channels=channels,
            mean=mean,
            std=std,
            distance_kinds=_check_kinds(distance_kinds or (), measured),
            parameters=ranges,
            given=inputs,
            given_mean=given_mean,
            given_std=given_std,
            measured_kinds=None if measured == schema.patch_kinds else measured,
            has_boundary=schema.boundary,
            powers=powers_of(scaled_by or {}, channels, ranges),
        )

    @property
    def stored_kinds(self) -> tuple[str, ...]:
        """The patch kinds of stored distances."""
        return self.patch_kinds if self.measured_kinds is None else self.measured_kinds

    @property
    def read_channels(self) -> tuple[Channel, ...]:
        """All channels read from a case's fields: the modelled ones, then the given ones."""
        return (*self.channels, *self.given)

    @property
    def num_distance_channels(self) -> int:
        return CHANNELS_PER_PATCH_KIND * len(self.distance_kinds or self.stored_kinds)

    def points(self, points: np.ndarray) -> np.ndarray:
        """(..., 3) m -> (..., 3) dimensionless, z = 0 in 2D."""
        scaled = (np.asarray(points, dtype=np.float64) - self.centre) / self.length_scale
        scaled[..., self.dimension :] = 0.0
        return scaled.astype(np.float32)

    def restore_points(self, points: np.ndarray) -> np.ndarray:
        """Invert `points` (2D: z = the centre's; nothing decides that of a learned anchor)."""
        flat = np.asarray(points, dtype=np.float64) * (np.arange(3) < self.dimension)
        return np.asarray(flat * self.length_scale + self.centre)

    def distance(self, distance: np.ndarray, direction: np.ndarray) -> np.ndarray:
        """Turn (N, K) m and (N, K, 3) unit vectors into (N, 4 K), four channels for each kind.

        K on the left are all stored patch kinds, on the right those of `distance_kinds`.
        """
        if self.distance_kinds:
            distance, direction = self._nearest_of_kinds(
                np.asarray(distance), np.asarray(direction)
            )
        field = np.concatenate(
            [np.asarray(distance)[..., None] / self.length_scale, direction], axis=-1
        )
        return field.reshape(len(field), self.num_distance_channels).astype(np.float32)

    def distance_channels(self, field: DistanceField | None, num_points: int) -> np.ndarray:
        """Return a distance field's channels (N, D); (N, 0) where the data have none."""
        if field is None or not self.num_distance_channels:
            return np.zeros((num_points, 0), np.float32)
        return self.distance(*field)

    def design(self, parameters: Mapping[str, float]) -> np.ndarray:
        """Scale design parameters (P,) to -1..1 over the design space."""
        scaled = [
            2 * (parameters[each.name] - each.low) / (each.high - each.low) - 1
            for each in self.parameters
        ]
        return np.asarray(scaled, dtype=np.float32)

    def _nearest_of_kinds(
        self, distance: np.ndarray, direction: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Reduce (N, K), (N, K, 3) of all kinds to those of `distance_kinds`."""
        rows = np.arange(len(distance))
        nearest = []
        for group in self.distance_kinds:
            columns = np.array([self.stored_kinds.index(kind) for kind in group.split("+")])
            nearest.append(columns[distance[:, columns].argmin(axis=1)])
        chosen = np.stack(nearest, axis=1)
        return distance[rows[:, None], chosen], direction[rows[:, None], chosen]

    def scale(self, parameters: Mapping[str, float]) -> np.ndarray:
        """Return (C,), by how much each channel's unit at a design is that of the split."""
        return scale_of(parameters, self.parameters, self.powers, len(self.channels))

    def at(self, parameters: Mapping[str, float]) -> Normaliser:
        """Return the normaliser of one design, which nothing scales any further."""
        if not self.powers:
            return self
        scale = self.scale(parameters).astype(float)
        return replace(
            self,
            mean=tuple((scale * self.mean).tolist()),
            std=tuple((scale * self.std).tolist()),
            powers=(),
        )

    def standardise(self, values: np.ndarray) -> np.ndarray:
        """(..., C) physical -> (..., C) standardised."""
        return _scaled(values, self.mean, self.std)

    def standardise_given(self, values: np.ndarray) -> np.ndarray:
        """Standardise (..., G) given channels."""
        return _scaled(values, self.given_mean, self.given_std)

    def standardise_read(self, values: np.ndarray) -> np.ndarray:
        """Standardise (..., C + G), all `read_channels`."""
        return _scaled(values, self.mean + self.given_mean, self.std + self.given_std)

    def restore(self, values: np.ndarray) -> np.ndarray:
        """(..., C) standardised -> (..., C) physical, float64 where float32 is too coarse."""
        precision = _precision(self.mean, self.std)
        std, mean = (np.asarray(each, precision) for each in (self.std, self.mean))
        return (np.asarray(values) * std + mean).astype(precision)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: Any) -> Normaliser:
        """Rebuild it; raise InputError in one line for invalid content."""
        try:
            normaliser = _FROM_JSON.validate_python(content)
        except ValidationError as error:
            wrong = "; ".join(
                f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:4]
            )
            raise InputError(f"normaliser: {wrong}") from error
        normaliser._check()
        return normaliser

    def _check(self) -> None:
        """Raise InputError if numbers are inconsistent or cannot be divided by."""
        num, num_given = len(self.channels), len(self.given)
        lengths = {"centre": 3, "lower": 3, "upper": 3, "mean": num, "std": num}
        lengths |= {"given_mean": num_given, "given_std": num_given}
        wrong = [
            f"{name} has {len(getattr(self, name))} numbers, expected {expected}"
            for name, expected in lengths.items()
            if len(getattr(self, name)) != expected
        ]
        numbers = [number for name in lengths for number in getattr(self, name)]
        numbers += [bound for each in self.parameters for bound in (each.low, each.high)]
        if not all(map(math.isfinite, [*numbers, self.length_scale])):
            wrong.append("a number is not finite")
        if not (self.length_scale > 0 and min(self.std + self.given_std, default=1) > 0):
            wrong.append("length_scale and std must be positive")
        if any(each.low >= each.high for each in self.parameters):
            wrong.append("a parameter's low is not below its high")
        if self.dimension not in (1, 2, 3) or not num:
            wrong.append("dimension must be 1, 2 or 3, channels name at least one")
        if self.has_boundary and not self.patch_kinds:
            wrong.append("patch_kinds must name at least one")
        if not set(self.stored_kinds) <= set(self.patch_kinds):
            wrong.append("measured_kinds must be patch kinds")
        if self.powers and {len(row) for row in self.powers} != {len(self.parameters)}:
            wrong.append("powers must be one for each parameter")
        if self.powers and len(self.powers) != num:
            wrong.append("powers must be given for each channel")
        if not are_sound(self.powers, self.parameters):
            wrong.append("a power is too large, or that of a parameter that is not positive")
        if any(channel.column < 0 for channel in self.read_channels):
            wrong.append("a channel's column is negative")
        if wrong:
            raise InputError(f"normaliser: {'; '.join(wrong)}")
        _check_kinds(self.distance_kinds, self.stored_kinds)


_FROM_JSON = TypeAdapter(Normaliser)


def _scaled(values: np.ndarray, mean: Sequence[float], std: Sequence[float]) -> np.ndarray:
    precision = _precision(mean, std)
    centred = np.asarray(values) - np.asarray(mean, precision)
    return (centred / np.asarray(std, precision)).astype(np.float32)


def _precision(mean: Sequence[float], std: Sequence[float]) -> type[np.floating[Any]]:
    """Return the precision that values of these moments need in physical units."""
    fine = fits_single(np.asarray(std, float), np.abs(np.asarray(mean, float)))
    return np.float32 if fine.all() else np.float64


def _moments(
    statistics: Mapping[str, Mapping[str, np.ndarray]], channels: Sequence[Channel]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return each channel's mean and standard deviation."""
    mean, std = (
        tuple(float(statistics[each.field][figure][each.column]) for each in channels)
        for figure in ("mean", "std")
    )
    return mean, std


def _that_vary(
    dataset: Dataset, channels: Sequence[Channel], names: Sequence[str], key: str
) -> tuple[Channel, ...]:
    """Return the channels without components of a field that are constant, or noise.

    InputError where such a component was named, or is all of a field.
    """
    varying = {channel.field: dataset.varying(channel.field) for channel in channels}
    kept = tuple(each for each in channels if each.component in varying[each.field])
    for channel in channels:
        if channel in kept:
            continue
        std = dataset.statistics[channel.field]["std"][channel.column]
        what = f"{channel.name} is constant over the training split, or noise (std {std:g})"
        if channel.name in names or not varying[channel.field]:
            raise InputError(f"{what}: leave it out of data.{key}")
        logger.info("%s: it is no channel", what)
    return kept


def _check_kinds(wanted: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """Return the distance field's kinds; InputError for one that the family does not have."""
    unknown = sorted({kind for group in wanted for kind in group.split("+")} - set(known))
    if unknown:
        raise InputError(
            f"data.distance_kinds: no patch kind {', '.join(unknown)}; choose of {', '.join(known)}"
        )
    return tuple(wanted)
