"""Sample design points from a design space with seeded samplers of `scipy.stats.qmc`.

Notable properties:
- The first n points of a scrambled Sobol design are the same however many are asked for, so a
  design grows from 8 to 800 cases without a case being solved twice.
- A design point's id is a hash of the family, its revision, the parameters and the solver settings:
  the same point has the same id on every machine, and any change of the physics gives a new one.
"""

import csv
import hashlib
import io
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from simgen.errors import InputError, RangeError, did_you_mean

#: Stricter than Python's `float`, which accepts what no CSV file means, such as 1_000.
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def read_cells(path: str | Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield each row's line number and its cells as text; InputError names file and line."""
    source = f"design file {path}"
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")  # with a spreadsheet's mark, or without
    except OSError as error:
        raise InputError(f"{source} cannot be read: {error.strerror}; give a CSV file") from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"{source} is no UTF-8 text (byte {error.start}); save it as CSV in UTF-8"
        ) from error
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [name.strip() for name in next(rows, [])]
        for name in header:
            if header.count(name) > 1:
                raise InputError(f"{source} has more than one column {name!r}; keep one")
        for cells in rows:
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) != len(header):
                raise InputError(
                    f"{source}, line {rows.line_num}: {len(cells)} values, its header has"
                    f" {len(header)} columns; write numbers with a point and separate them with"
                    " commas"
                )
            stripped = (cell.strip() for cell in cells)
            yield rows.line_num, dict(zip(header, stripped, strict=True))
    except csv.Error as error:
        raise InputError(f"{source}, line {rows.line_num}: {error}") from error


def number_of(source: str | Path, line: int, name: str, cell: str) -> float:
    """Return the number that a cell holds; InputError where it holds none."""
    if not _NUMBER.fullmatch(cell):
        raise InputError(f"design file {source}, line {line}: {name} = {cell!r} is no number")
    return float(cell)


Sampler = Literal["sobol", "latin-hypercube", "uniform", "grid"]
SAMPLERS: tuple[str, ...] = get_args(Sampler)

# Of parameters before they are hashed or used, so that an id survives a round trip through CSV.
SIGNIFICANT_DIGITS = 9
MOST_POINTS = 1_000_000
COUNT = "count"  # The unit of whole numbers, to which values are rounded


@dataclass(frozen=True)
class Parameter:
    """One named quantity with its unit and closed range [low, high]."""

    name: str
    unit: str
    low: float
    high: float
    description: str = ""

    def check(self, value: float) -> float:
        """Return the value, rounded; raise InputError unless it is a number inside the range."""
        if not math.isfinite(value) or not self.low <= value <= self.high:
            raise RangeError(
                f"{self.name} = {value:g} {self.unit} is outside its range "
                f"[{self.low:g}, {self.high:g}] {self.unit}; choose a value inside"
            )
        value = round(value) if self.unit == COUNT else value
        return float(f"{value:.{SIGNIFICANT_DIGITS}g}") + 0.0  # -0.0 is 0.0, and the same design

    def stated(self, value: float) -> str:
        """`center x 0.5 m`"""
        return f"{self.name.replace('_', ' ')} {value:.3g} {shown_unit(self.unit)}".strip()

    @property
    def changes_mesh(self) -> bool:
        """Whether its place in a case's dictionaries, its description, is in one of the mesh."""
        return re.search(r"(?i)mesh|\.geo|extrude", self.description) is not None


def with_unit(name: str, unit: str) -> str:
    """`pressure (m²/s²)`; the name alone where the unit is that of a plain number."""
    return f"{name} ({shown})" if (shown := shown_unit(unit)) else name


POWERS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def shown_unit(unit: str) -> str:
    """`m²/s²` of `m2/s2`, for readers; empty for a plain number."""
    plain = unit in ("", "1", "-")
    return "" if plain else re.sub(r"(?<=[a-zA-Z])-?\d", lambda of: of[0].translate(POWERS), unit)


def scaled(parameters: Sequence[Parameter], design: Mapping[str, float]) -> np.ndarray:
    """Return (P,) the parameters of a design, each -1..1 over its range."""
    return np.array([2 * (design[p.name] - p.low) / (p.high - p.low) - 1 for p in parameters])


@dataclass(frozen=True)
class DesignSpace:
    """An ordered set of parameters; the axis-aligned box that they span."""

    parameters: tuple[Parameter, ...]

    def __post_init__(self) -> None:
        for name in {name for name in self.names if self.names.count(name) > 1}:
            raise InputError(f"two parameters have the name '{name}'; give one another name")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(parameter.name for parameter in self.parameters)

    def check(self, values: Mapping[str, float], called: str = "parameters") -> dict[str, float]:
        """Return the values in the space's order, rounded.

        InputError names what is missing, unknown or out of range; `called` is its subject.
        """
        differing = {
            "unknown": sorted(values.keys() - set(self.names)),
            "missing": [name for name in self.names if name not in values],
        }
        if any(differing.values()):
            wrong = (f"{kind} {', '.join(names)}" for kind, names in differing.items() if names)
            open_to = differing["missing"] or self.names
            near = "".join(did_you_mean(of, open_to) for of in differing["unknown"])
            raise InputError(
                f"{called}: {' and '.join(wrong)}; {near}expected {', '.join(self.names)}"
            )
        return {each.name: each.check(float(values[each.name])) for each in self.parameters}

    def sample(self, num: int, method: Sampler = "sobol", seed: int = 42) -> list[dict[str, float]]:
        """Return `num` points of the box, the same for the same arguments.

        `grid` takes the smallest full factorial grid with at least `num` points (ends included) and
        returns the whole of it, since a grid with points missing is none.
        """
        if not 1 <= num <= MOST_POINTS:
            raise InputError(f"cases = {num}: ask for 1 to {MOST_POINTS:,}")
        if method not in SAMPLERS:
            raise InputError(f"sampler '{method}' is unknown; choose one of {', '.join(SAMPLERS)}")
        unit = _unit_points(len(self.parameters), num, method, seed)
        low = np.array([parameter.low for parameter in self.parameters])
        high = np.array([parameter.high for parameter in self.parameters])
        return [
            self.check(dict(zip(self.names, row, strict=True)))
            for row in np.clip(low + unit * (high - low), low, high)
        ]

    def read_csv(self, path: str | Path) -> list[dict[str, float]]:
        """Read designs from a CSV file with one column per parameter; more columns are an error."""
        designs = []
        for line, cells in read_cells(path):
            row = {name: number_of(path, line, name, cell) for name, cell in cells.items()}
            try:
                designs.append(self.check(row))
            except InputError as error:
                raise InputError(f"design file {path}, line {line}: {error}") from error
        if not designs:
            raise InputError(
                f"design file {path} holds no design; expected a header {','.join(self.names)} and"
                " one line per design"
            )
        return designs


def _unit_points(dimensions: int, num: int, method: Sampler, seed: int) -> np.ndarray:
    """Return (num, dimensions) points of the unit box."""
    if method == "grid":
        per_axis = math.ceil(round(num ** (1 / dimensions), 9))
        axis = np.linspace(0.0, 1.0, per_axis) if per_axis > 1 else np.array([0.5])
        return np.stack(np.meshgrid(*[axis] * dimensions, indexing="ij"), axis=-1).reshape(
            -1, dimensions
        )
    generator = np.random.default_rng(seed)
    if method == "uniform":
        return generator.random((num, dimensions))
    from scipy.stats import qmc  # takes longer to import than most commands take

    if method == "latin-hypercube":
        return qmc.LatinHypercube(dimensions, rng=generator).random(num)
    # Draw a power of two and cut it: scipy warns of anything else, and the prefix is the same.
    return qmc.Sobol(dimensions, scramble=True, rng=generator).random_base2(
        max(1, math.ceil(math.log2(num)))
    )[:num]


@dataclass(frozen=True)
class DesignPoint:
    """One point of a family's design space with the settings to solve it with."""

    family: str
    family_revision: int
    parameters: Mapping[str, float]
    settings: Mapping[str, float]

    @property
    def id(self) -> str:
        """Twelve hexadecimal digits, independent of machine, process and order of parameters."""
        content = {
            "family": self.family,
            "revision": self.family_revision,
            "parameters": {name: repr(float(value)) for name, value in self.parameters.items()},
            "settings": {name: repr(float(value)) for name, value in self.settings.items()},
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def unique(points: Sequence[DesignPoint]) -> list[DesignPoint]:
    """Drop repeats and keep the order (a grid and a CSV file may name a point twice)."""
    return list({point.id: point for point in points}.values())
