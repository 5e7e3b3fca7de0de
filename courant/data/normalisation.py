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
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field, FiniteFloat, TypeAdapter, ValidationError

from courant.data.geometry import DistanceField
from simgen.errors import InputError
from simgen.moments import fits_single

if TYPE_CHECKING:
    from simgen.case import Role
    from simgen.store.read import Dataset
    from simgen.store.schema import Schema

logger = logging.getLogger("courant.training")

MOST_POWER = 10.0
CHANNELS_PER_PATCH_KIND = 4
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Vector = tuple[FiniteFloat, FiniteFloat, FiniteFloat]
Powers = tuple[tuple[Annotated[float, Field(ge=-MOST_POWER, le=MOST_POWER)], ...], ...]


def check_names(what: str, names: Iterable[str], known: Collection[str]) -> None:
    """Raise InputError, with what there is to choose from, where a name is not known."""
    if unknown := [name for name in names if name not in known]:
        raise InputError(
            f"{what} {', '.join(unknown)} is unknown; choose of {', '.join(known) or 'none'}"
        )


@dataclass(frozen=True)
class Channel:
    """One modelled component of a stored field: `velocity.x`, with its column and unit."""

    field: str
    component: str
    column: Annotated[int, Field(ge=0)]
    unit: str

    @property
    def name(self) -> str:
        return f"{self.field}.{self.component}"


@dataclass(frozen=True)
class ParameterRange:
    """A design parameter and its range in the design space, in its unit."""

    name: str
    low: FiniteFloat
    high: FiniteFloat


def select_channels(
    schema: Schema, names: Sequence[str], role: Role = "solved"
) -> tuple[Channel, ...]:
    """Select the channels of fields of a role, "velocity" (every component) or "velocity.x"."""
    available = {
        field.name: [
            Channel(field.name, component, column, field.unit)
            for column, component in enumerate(field.components)
        ]
        for field in schema.of_role(role)
    }
    by_name = {channel.name: [channel] for channels in available.values() for channel in channels}
    choices = available | by_name
    check_names(f"dataset {schema.family}: {role} field", names, choices)
    return tuple(channel for name in names for channel in choices[name])


def powers_of(
    scaled_by: Mapping[str, Mapping[str, float]],
    channels: Sequence[Channel],
    parameters: Sequence[ParameterRange],
) -> Powers:
    """Return each channel's power of each parameter, () for none.

    InputError for a field that is not modelled, and a parameter that is unknown or not positive.
    """
    known = {each.name: each for each in parameters}
    check_names("data.scaled_by: field", scaled_by, {each.field: each for each in channels})
    for powers in scaled_by.values():
        check_names("data.scaled_by: design parameter", powers, known)
        for name, power in powers.items():
            if abs(power) > MOST_POWER or known[name].low <= 0:
                raise InputError(
                    f"data.scaled_by: {name} to the power of {power:g}; it has to be positive over"
                    f" its whole range, and the power {MOST_POWER:g} at most"
                )
    rows = tuple(
        tuple(scaled_by.get(channel.field, {}).get(name, 0.0) for name in known)
        for channel in channels
    )
    return rows if any(any(row) for row in rows) else ()


@dataclass(frozen=True)
class Normaliser:
    """Convert between physical units and the model's units; numpy in, float32 numpy out."""

    dimension: Annotated[int, Field(ge=1, le=3)]
    centre: Vector  # m
    length_scale: Positive  # m
    lower: Vector
    upper: Vector  # m, the training points' bounding box
    patch_kinds: tuple[str, ...]
    stored_kinds: tuple[str, ...]  # The patch kinds of stored distances, in order
    distance_kinds: tuple[str, ...]  # The distance field's kinds, as in `SampleData`
    channels: Annotated[tuple[Channel, ...], Field(min_length=1)]
    mean: tuple[FiniteFloat, ...]
    std: tuple[Positive, ...]  # One number per channel, in its unit
    parameters: tuple[ParameterRange, ...] = ()
    given: tuple[Channel, ...] = ()  # Channels of given fields, which are inputs
    given_mean: tuple[FiniteFloat, ...] = ()
    given_std: tuple[Positive, ...] = ()
    has_boundary: bool = True
    powers: Powers = ()
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
        bounds = statistics["points"]
        lower, upper = (np.asarray(bounds[bound], dtype=float) for bound in ("min", "max"))
        every = [field.name for field in schema.of_role("given") if dataset.varying(field.name)]
        names = every if given is None else given
        channels = _that_vary(dataset, select_channels(schema, fields), fields, "fields")
        inputs = _that_vary(dataset, select_channels(schema, names, "given"), names, "given")
        ranges = tuple(ParameterRange(each.name, each.low, each.high) for each in schema.parameters)

        kinds = tuple(distance_kinds or schema.measured_kinds)
        _check_kinds(kinds, schema.measured_kinds)

        def moments(of: Sequence[Channel], figure: str) -> tuple[float, ...]:
            return tuple(float(statistics[each.field][figure][each.column]) for each in of)

        return cls(
            dimension=schema.dimension,
            centre=tuple(((lower + upper) / 2).tolist()),
            length_scale=float((upper - lower).max() / 2),
            lower=tuple(lower.tolist()),
            upper=tuple(upper.tolist()),
            patch_kinds=tuple(schema.patch_kinds),
            stored_kinds=schema.measured_kinds,
            distance_kinds=kinds,
            channels=channels,
            mean=moments(channels, "mean"),
            std=moments(channels, "std"),
            parameters=ranges,
            given=inputs,
            given_mean=moments(inputs, "mean"),
            given_std=moments(inputs, "std"),
            has_boundary=schema.boundary,
            powers=powers_of(scaled_by or {}, channels, ranges),
        )

    @property
    def read_channels(self) -> tuple[Channel, ...]:
        """All channels read from a case's fields: the modelled ones, then the given ones."""
        return (*self.channels, *self.given)

    @property
    def vectors(self) -> dict[str, list[int]]:
        """The numbers of the modelled components along the axes, by vector field."""
        found: dict[str, list[int]] = {}
        for number, channel in enumerate(self.channels):
            if channel.component in set("xyz"):
                found.setdefault(channel.field, []).append(number)
        return found

    def usual_ends(self, dataset: Dataset | None) -> list[tuple[float, float]]:
        """Return each channel's 5 and 95 % quantiles in training, or those of a normal one."""
        if dataset is None:
            moments = zip(self.mean, self.std, strict=True)
            return [(mean - 1.645 * std, mean + 1.645 * std) for mean, std in moments]
        of = [dataset.usual_ends[each.field][:, each.column] for each in self.channels]
        return [(float(low), float(high)) for low, high in of]

    @property
    def num_distance_channels(self) -> int:
        return CHANNELS_PER_PATCH_KIND * len(self.distance_kinds)

    def points(self, points: np.ndarray) -> np.ndarray:
        """(..., 3) m -> (..., 3) dimensionless, z = 0 in 2D."""
        scaled = (np.asarray(points, dtype=np.float64) - self.centre) / self.length_scale
        scaled[..., self.dimension :] = 0.0
        return scaled.astype(np.float32)

    def restore_points(self, points: np.ndarray) -> np.ndarray:
        """Invert `points` (2D: z = the centre's; nothing decides that of a learned anchor)."""
        flat = np.asarray(points, dtype=np.float64) * (np.arange(3) < self.dimension)
        return np.asarray(flat * self.length_scale + self.centre)

    def distance_channels(self, field: DistanceField | None, num_points: int) -> np.ndarray:
        """Turn a distance field (N, K), (N, K, 3) of all stored kinds into (N, D) channels.

        Four for each of `distance_kinds`; (N, 0) where the data have none.
        """
        if field is None or not self.distance_kinds:
            return np.zeros((num_points, 0), np.float32)
        distance, direction = np.asarray(field[0]), np.asarray(field[1])
        if self.distance_kinds != self.stored_kinds:
            rows, nearest = np.arange(len(distance)), []
            for group in self.distance_kinds:
                columns = np.array([self.stored_kinds.index(kind) for kind in group.split("+")])
                nearest.append(columns[distance[:, columns].argmin(axis=1)])
            chosen = np.stack(nearest, axis=1)
            distance, direction = distance[rows[:, None], chosen], direction[rows[:, None], chosen]
        channels = np.concatenate([distance[..., None] / self.length_scale, direction], axis=-1)
        return channels.reshape(num_points, self.num_distance_channels).astype(np.float32)

    def design(self, parameters: Mapping[str, float]) -> np.ndarray:
        """Scale design parameters (P,) to -1..1 over the design space."""
        scaled = [
            2 * (parameters[each.name] - each.low) / (each.high - each.low) - 1
            for each in self.parameters
        ]
        return np.asarray(scaled, dtype=np.float32)

    def scale(self, parameters: Mapping[str, float]) -> np.ndarray:
        """Return (C,), each channel's product of powers of (parameter / middle of its range).

        It scales the channel's unit at a design. InputError where the parameter is not positive.
        """
        if not self.powers:
            return np.ones(len(self.channels), np.float32)
        ratios = [1.0] * len(self.parameters)
        for number, each in enumerate(self.parameters):
            if any(row[number] for row in self.powers):
                value = parameters[each.name]
                if value <= 0:
                    raise InputError(
                        f"{each.name} = {value:g}: the fields scale with it, so it must be positive"
                    )
                ratios[number] = value / (0.5 * (each.low + each.high))
        products = [
            math.prod(ratio**power for ratio, power in zip(ratios, row, strict=True))
            for row in self.powers
        ]
        return np.array(products, dtype=np.float32)

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
        return _standardise(values, self.mean, self.std)

    def standardise_given(self, values: np.ndarray) -> np.ndarray:
        """Standardise (..., G) given channels."""
        return _standardise(values, self.given_mean, self.given_std)

    def standardise_read(self, values: np.ndarray) -> np.ndarray:
        """Standardise (..., C + G), all `read_channels`."""
        return _standardise(values, self.mean + self.given_mean, self.std + self.given_std)

    def restore(self, values: np.ndarray) -> np.ndarray:
        """(..., C) standardised -> (..., C) physical, float64 where float32 is too coarse."""
        precision = _precision(self.mean, self.std)
        std, mean = (np.asarray(each, precision) for each in (self.std, self.mean))
        return (np.asarray(values) * std + mean).astype(precision)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: Any) -> Normaliser:
        """Rebuild it; InputError for invalid content, such as numbers that do not fit together."""
        try:
            normaliser = TypeAdapter(Normaliser).validate_python(content)
        except ValidationError as error:
            lines = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:4]]
            raise InputError(f"normaliser: {'; '.join(lines)}") from error
        own, ranges = normaliser, normaliser.parameters
        powers = own.powers or ((0.0,) * len(ranges),) * len(own.channels)
        pairs = [zip(row, ranges, strict=False) for row in powers]
        rules = {
            "mean, std and powers have a row for each channel": {len(own.channels)}
            == {len(own.mean), len(own.std), len(powers)},
            "given_mean and given_std have a number for each given channel": {len(own.given)}
            == {len(own.given_mean), len(own.given_std)},
            "low is below high": all(each.low < each.high for each in ranges),
            "stored_kinds are patch kinds": set(own.stored_kinds) <= set(own.patch_kinds),
            "powers are of each parameter": all(len(row) == len(ranges) for row in powers),
            "a parameter with a power is positive": all(
                each.low > 0 for row in pairs for power, each in row if power
            ),
        }
        if broken := [rule for rule, holds in rules.items() if not holds]:
            raise InputError(f"normaliser: it is not so that {', or that '.join(broken)}")
        _check_kinds(own.distance_kinds, own.stored_kinds)
        return normaliser


def named_arrays(
    values: np.ndarray, channels: Sequence[Channel], dimension: int, suffix: str = ""
) -> dict[str, np.ndarray]:
    """Split (N, C) into arrays by field, as ParaView knows them; `suffix` ends their names.

    A vector whose components are all modelled is (N, 3), in two dimensions with z = 0. Of any other
    field each modelled component is an array of its own, such as `velocity.x`: nothing takes the
    place of those that are not modelled.
    """
    fields: dict[str, np.ndarray] = {}
    for name in dict.fromkeys(channel.field for channel in channels):
        columns = {each.component: c for c, each in enumerate(channels) if each.field == name}
        axes = "xyz"[: max(dimension, len(columns))]
        if set(columns) == set(axes):
            vector = values[:, [columns[axis] for axis in axes]]
            fields[f"{name}{suffix}"] = np.pad(vector, ((0, 0), (0, 3 - len(axes))))
        elif len(columns) == 1 and not set(columns) <= set("xyz"):
            fields[f"{name}{suffix}"] = values[:, next(iter(columns.values()))]
        else:
            for component, column in columns.items():
                fields[f"{name}.{component}{suffix}"] = values[:, column]
    return fields


def _standardise(values: np.ndarray, mean: Sequence[float], std: Sequence[float]) -> np.ndarray:
    precision = _precision(mean, std)
    centred = np.asarray(values) - np.asarray(mean, precision)
    return (centred / np.asarray(std, precision)).astype(np.float32)


def _precision(mean: Sequence[float], std: Sequence[float]) -> type[np.floating[Any]]:
    """Return the precision that values of these moments need in physical units."""
    fine = fits_single(np.asarray(std, float), np.abs(np.asarray(mean, float)))
    return np.float32 if fine.all() else np.float64


def _that_vary(
    dataset: Dataset, channels: Sequence[Channel], names: Sequence[str], key: str
) -> tuple[Channel, ...]:
    """Return the channels that vary by more than noise; InputError where a named one does not."""
    varying = {channel.field: dataset.varying(channel.field) for channel in channels}
    kept = tuple(each for each in channels if each.component in varying[each.field])
    for channel in channels:
        if channel not in kept:
            std = dataset.statistics[channel.field]["std"][channel.column]
            what = f"{channel.name} is constant over the training split, or noise (std {std:g})"
            if channel.name in names or not varying[channel.field]:
                raise InputError(f"{what}: leave it out of data.{key}")
            logger.info("%s: it is no channel", what)
    return kept


def _check_kinds(wanted: Sequence[str], known: Sequence[str]) -> None:
    """Raise InputError for a kind of the distance field that the family does not have."""
    kinds = [kind for group in wanted for kind in group.split("+")]
    check_names("data.distance_kinds: patch kind", kinds, known)
