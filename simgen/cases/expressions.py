"""Quantities of templates and imports: expressions of fields, patches and design parameters.

    --quantity 'pressure_drop=average(p, inlet) - average(p, outlet)'
    --quantity 'loss=(average(p, inlet) - average(p, outlet)) / (0.5 * speed**2):1'

F is a stored field by either name, such as U, or a component of it, such as U.x; without one a
vector or tensor is its magnitude. P is a patch of a template, or a kind with all its patches;
without one a term is of the domain.

    average(F, P)         over area, or volume      min(F, P), max(F, P)    of all faces, or cells
    flow_average(F, P)    weighed by the flow       integral(F, P)          over area, or volume
    flow(P)               m3/s out of the domain    monitor(OBJECT, COLUMN) of a function object

Of a transient case terms are averages over the stored times, extremes those of all times; a monitor
is averaged over the last half of the time. end(…) is of the last time alone.
"""

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Self

import numpy as np
from pydantic import BaseModel, ConfigDict

from simgen.case import CaseFamily, Field, SolvedCase
from simgen.case_description import powers_of
from simgen.errors import CaseError, InputError
from simgen.foam.field import read_values
from simgen.foam.log import read_series, series_files
from simgen.foam.mesh import boundary_of, read_geometry, time_directories
from simgen.point_cloud import PointCloud
from simgen.quantities import CaseFields, Faces, Quantity

MOST_PAIRS = 4  # Pairs of inlet and outlet with a pressure drop each
_OPERATORS: dict[type[ast.operator], Callable[[np.float64, np.float64], np.float64]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_TERMS = ("average", "min", "max", "integral", "flow_average", "flow", "monitor")
_FORM = "write NAME=EXPRESSION:UNIT, such as pressure_drop=average(p,inlet)-average(p,outlet)"
Value = Callable[[CaseFields], np.float64]
Given = Mapping[str, Mapping[str, tuple[float, ...]]]
"""Values that all designs have on patches: by field and patch, a number for each component"""


class AskedQuantity(BaseModel):
    """A quantity's name, its expression, and its unit; empty: that of its terms."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    expression: str
    unit: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse NAME=EXPRESSION:UNIT; the unit may be left out."""
        name, _, rest = text.partition("=")
        expression, _, unit = rest.partition(":")
        if not re.fullmatch(r"[A-Za-z]\w*", name.strip()) or not expression.strip():
            raise InputError(f"--quantity '{text}' has no name or no expression: {_FORM}")
        return cls(name=name.strip(), expression=" ".join(expression.split()), unit=unit.strip())


def usual_quantities(
    fields: Sequence[Field], patches: Mapping[str, str], volumes: bool = True
) -> tuple[AskedQuantity, ...]:
    """Return pressure drops from inlets to outlets, the greatest speed, and a temperature."""
    files = {field.openfoam or field.name for field in fields}
    speed, heat = (
        next((name for name in names if name in files), "")
        for names in (("U", "velocity"), ("T", "temperature"))
    )
    inlets, outlets = ([p for p in patches if patches[p] == kind] for kind in ("inlet", "outlet"))
    pressure, found = next((name for name in ("p", "p_rgh") if name in files), None), {}
    for pair in [*product(inlets, outlets)][:MOST_PAIRS] if pressure else ():
        which = [one for one, of in zip(pair, (inlets, outlets), strict=True) if len(of) > 1]
        # Without quotes `in` would be a keyword of Python's.
        ends = [p if p.isidentifier() and len(p) > 2 else f"'{p}'" for p in pair]
        drop = f"average({pressure}, {ends[0]}) - average({pressure}, {ends[1]})"
        found["_".join(["pressure_drop", *which])] = drop
    if speed:
        found["max_speed"] = f"max({speed})"
    if heat and speed and outlets:
        found["outlet_temperature"] = f"flow_average({heat}, outlet)"
    elif heat and volumes:
        found["mean_temperature"] = f"average({heat})"
    return tuple(
        AskedQuantity(name=re.sub(r"\W", "_", name), expression=expression)
        for name, expression in found.items()
    )


class SolvedFields(CaseFields):
    """The fields of a solved case with values on its faces, and its directory, if there is one."""

    def __init__(
        self, parameters: Mapping[str, float], cloud: PointCloud, directory: Path | None
    ) -> None:
        super().__init__(parameters, {}, cloud)
        self.directory = directory

    @classmethod
    def read(cls, case: SolvedCase, family: CaseFamily) -> Self:
        """Read a case directory: patches have their names in place of their kinds."""
        patches = tuple(family.patches)
        needs = {need.rpartition(".")[0] for each in family.quantities for need in each.needs}
        geometry = read_geometry(case.directory)
        times = time_directories(case.directory)[0 if family.transient else -1 :]
        cells, faces = dict[str, np.ndarray](), dict[str, np.ndarray]()
        for field in (each for each in family.fields if each.name in needs):
            files = (time / field.openfoam for _, time in times)
            found = [read_values(file, geometry, patches, field.components) for file in files]
            cells[field.name], faces[field.name] = map(np.stack, zip(*found, strict=True))
        groups = [(number, geometry.patches[name].faces) for number, name in enumerate(patches)]
        _, boundary = boundary_of(geometry, groups)
        cloud = PointCloud(
            points=geometry.centres,
            volumes=geometry.volumes,
            distance=None,
            direction=None,
            patch_kinds=patches,
            time=np.array([time for time, _ in times]),
            fields=cells,
            boundary=replace(boundary, fields=faces),
        )
        return cls(case.point.parameters, cloud, case.directory)

    def on(self, name: str, *kinds: str) -> tuple[Faces, np.ndarray]:
        boundary = self.cloud.boundary
        assert boundary is not None
        chosen = np.isin(boundary.patch, [self.cloud.patch_kinds.index(kind) for kind in kinds])
        return self.faces(*kinds), np.asarray(boundary.fields[name][..., chosen, :], np.float64)


class Expression:
    """An expression of cases that have these in common; InputError for what they do not have.

    Calls measure it on `SolvedFields`, and on others where `quantity` has `from_fields`. `patches`
    has kinds by patch, and `volumes` whether cells have any.
    """

    def __init__(
        self,
        asked: AskedQuantity,
        *,
        fields: Sequence[Field],
        patches: Mapping[str, str],
        parameters: Sequence[str],
        transient: bool,
        volumes: bool = True,
        given: Given | None = None,
    ) -> None:
        self.asked, self.patches, self.parameters = asked, patches, parameters
        self.transient, self.volumes, self.given = transient, volumes, given or {}
        self.fields = {each.name: each for each in fields}
        self.fields |= {each.openfoam: each for each in fields if each.openfoam}
        self.needs, self.units, self.why_not = dict[str, None](), set[str](), ""
        self.over = dict[str, None]()
        try:
            tree = ast.parse(asked.expression, mode="eval")
        except (SyntaxError, ValueError, RecursionError) as error:
            raise self._error("it cannot be read; put a name such as 'in' in quotes") from error
        self._value = self._compile(tree.body, False)
        alters = (ast.Mult, ast.Div, ast.Pow)
        plain = len(self.units) == 1 and not any(isinstance(n, alters) for n in ast.walk(tree))
        self.of_terms = self.units.pop() if plain else ""
        self.quantity = Quantity(
            name=asked.name,
            unit=asked.unit or self.of_terms,
            meaning=asked.expression,
            over=" and ".join(self.over if transient else ()),
            from_fields=None if self.why_not else self,
            needs=tuple(self.needs),
            not_from_fields=self.why_not,
        )

    def checked(self) -> Self:
        """Return this; InputError for a unit that is not that of its terms."""
        mine, terms = powers_of(self.asked.unit), powers_of(self.of_terms)
        if self.asked.unit and self.of_terms and terms and mine != terms:
            raise self._error(
                f"its terms have the unit {self.of_terms}, not {self.asked.unit}; give a factor"
                " too, such as a density: 1.2*average(p,inlet)"
            )
        return self

    def __call__(self, case: CaseFields) -> float:
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(self._value(case))

    def _error(self, why: str) -> InputError:
        return InputError(f"--quantity '{self.asked.name}={self.asked.expression}': {why}")

    def _compile(self, node: ast.expr, at_end: bool) -> Value:
        match node:
            case ast.Constant(value=int() | float() as number):
                return lambda case: np.float64(number)
            case ast.Name(id=name) if name in self.parameters:
                return lambda case: np.float64(case.parameters[name])
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                value = self._compile(inner, at_end)
                return lambda case: -value(case)
            case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATORS:
                sides = self._compile(left, at_end), self._compile(right, at_end)
                apply = _OPERATORS[type(sign)]
                return lambda case: apply(sides[0](case), sides[1](case))
            case ast.Call(func=ast.Name(id="end"), args=[inner], keywords=[]):
                return self._compile(inner, True)
            case ast.Call(func=ast.Name(id=term), args=args, keywords=[]) if term in _TERMS:
                words = [ast.get_source_segment(self.asked.expression, each) for each in args]
                return self._term(term, [(word or "").strip("'\"") for word in words], at_end)
        terms, known = ", ".join(_TERMS), ", ".join(self.parameters)
        part = ast.get_source_segment(self.asked.expression, node)
        raise self._error(f"'{part}' is no number, no term ({terms}) and no parameter ({known})")

    def _term(self, term: str, words: Sequence[str], at_end: bool) -> Value:
        least = 1 + (term in ("monitor", "flow_average"))
        if not least <= len(words) <= (1 if term == "flow" else 2):
            raise self._error(
                f"{term}() has {len(words)} arguments, see docs/families/a-template-case.md"
            )
        if term == "monitor" and not self.volumes:
            raise self._error("cases of OpenFOAM alone have function objects")
        over = "mean over the stored times"
        if at_end:
            over = "at the last stored time"
        elif term in ("min", "max"):
            over = f"{'least' if term == 'min' else 'greatest'} over the stored times"
        elif term == "monitor":
            over = "mean over the last half of the run"
        self.over[over] = None
        if term == "monitor":
            self.why_not = f"the solver's function object {words[0]} measures it"
            return lambda case: self._monitored(case, words[0], words[1], at_end)
        field, columns = self._field("U" if term == "flow" else words[0])
        patch = words[0] if term == "flow" else words[1] if len(words) > 1 else ""
        patches = self._patches(patch) if patch else ()
        if not (patches or self.volumes or term in ("min", "max")):
            raise self._error(f"cells have no volumes, so that {term}({words[0]}) is not known")
        weigh = self._field("U")[0] if term.startswith("flow") else None
        # A factor behind `/` would divide, as in m/s m2.
        of_whole = f"{'m2' if patch else 'm3'} {field.unit}".removesuffix(" 1").strip()
        of = {"flow": "m3/s", "integral": of_whole}
        self.units.add(of.get(term, field.unit))
        used = {} if term == "flow" else {field.name: [field.components[n] for n in columns]}
        used |= {} if weigh is None else {weigh.name: [*weigh.components]}
        self.needs |= {f"{name}.{each}": None for name, of_it in used.items() for each in of_it}

        def measure(case: CaseFields) -> np.float64:
            if patches:
                faces, values = self._on(case, field, patches)
                weights = faces.areas
            else:
                values, weights = case.cells(field.name), np.asarray(case.cloud.volumes, float)
            if weigh is not None:
                velocity = self._on(case, weigh, patches)[1]
                missing = [(0, 0)] * (velocity.ndim - 1) + [(0, 3 - velocity.shape[-1])]
                weights = faces.outflow(np.pad(velocity, missing))
            if at_end and case.cloud.time is not None:
                values, weights = values[-1], weights[-1] if weights.ndim > 1 else weights
            if term == "flow":
                return np.float64(weights.sum(-1).mean())
            values = values[..., columns]
            values = np.linalg.norm(values, axis=-1) if len(columns) > 1 else values[..., 0]
            if term in ("min", "max"):
                return np.float64(getattr(values, term)())
            total = (values * weights).sum(-1)
            return np.float64((total if term == "integral" else total / weights.sum(-1)).mean())

        return measure

    def _field(self, name: str) -> tuple[Field, list[int]]:
        """Return a field and its columns, those of a symmetric tensor's yx, zx and zy too."""
        if found := self.fields.get(name):
            twice = {"xy", "xz", "yz"}.difference(each[::-1] for each in found.components)
            numbers = [*enumerate(found.components)]
            return found, [n for n, _ in numbers] + [n for n, each in numbers if each in twice]
        whole, _, component = name.rpartition(".")
        if (found := self.fields.get(whole)) and component in found.components:
            return found, [found.components.index(component)]
        raise self._error(f"no field or component '{name}' is among {', '.join(self.fields)}")

    def _patches(self, name: str) -> tuple[str, ...]:
        """Return the patches of this name or kind, and note if the cloud cannot tell them apart."""
        kind = self.patches.get(name, name)
        of_kind = tuple(patch for patch, of in self.patches.items() if of == kind)
        if not of_kind:
            there = ", ".join(p if p == k else f"{p} ({k})" for p, k in self.patches.items())
            has_names = any(patch != of for patch, of in self.patches.items())
            what = "patch or kind" if has_names else "patch kind"
            raise self._error(f"no {what} '{name}'; there are {there or 'none'}")
        found = (name,) if name in self.patches else of_kind
        if len(found) < len(of_kind):
            self.why_not = f"{name} is one of several patches of the kind {kind}"
        return found

    def _on(
        self, case: CaseFields, field: Field, patches: Sequence[str]
    ) -> tuple[Faces, np.ndarray]:
        """Return the faces of patches and a field there: what is given, else of the cells behind.

        Behind an outlet of fixed pressure a long cell's pressure may differ by a quarter of a drop.
        """
        if isinstance(case, SolvedFields):
            return case.on(field.name, *patches)
        faces, values = case.on(field.name, *dict.fromkeys(self.patches[each] for each in patches))
        known = {self.given.get(field.name, {}).get(patch) for patch in patches}
        value = known.pop() if len(known) == 1 else None
        return faces, values if value is None else np.broadcast_to(value, values.shape)

    def _monitored(self, case: CaseFields, name: str, column: str, at_end: bool) -> np.float64:
        assert isinstance(case, SolvedFields)
        if case.directory is None:
            raise CaseError(f"monitor({name}, {column}) is of OpenFOAM cases alone")
        columns: dict[str, list[str]] = {}  # of each file: forceCoeffs writes several
        for file, parts in series_files(case.directory, name).items():
            heads = [line for line in parts[max(parts)].open() if line.startswith("#")]
            columns[file] = heads[-1].strip("#\n ").split() if heads else []
        of = [file for file, names in columns.items() if column in names or column.isdigit()]
        if columns and not of:
            there = ", ".join(dict.fromkeys(each for names in columns.values() for each in names))
            raise CaseError(f"monitor {name} has no column {column}; {there[:300]}")
        for written in of or ["*.dat"]:
            rows, names = read_series(case.directory, name, 0.0, written), columns.get(written, [])
            index, width = int(column) if column.isdigit() else names.index(column), rows.shape[1]
            if index < width and (column.isdigit() or len(names) == width):
                break
        else:
            raise CaseError(
                f"monitor {name} has {width} numbers in a row for {len(names)} names of columns:"
                f" name one of them by its number, 0 to {width - 1}"
            )
        values = rows[:, index]
        late = rows[:, 0] >= rows[-1, 0] / 2
        if not self.transient or at_end or late.sum() < 2:
            return np.float64(values[-1])
        # Adjusted steps are short where the flow is fast.
        return np.float64(np.average(values[late], weights=np.gradient(rows[late, 0])))
