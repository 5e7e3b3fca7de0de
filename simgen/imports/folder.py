"""Import a folder of solved cases: one schema for all, and a reason for each case that departs.

A reader for one kind of files finds the cases, surveys each without its values, and reads it. What
most of the cases have in common, or what the dataset has if there is one already, is the schema; a
case that departs from it is skipped with a reason in one line, and the others are imported.
"""

import hashlib
import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from simgen.case import Field
from simgen.design_space import SIGNIFICANT_DIGITS, Parameter, number_of, read_cells
from simgen.errors import CaseError, InputError
from simgen.imports import importing
from simgen.imports.importing import SourceCase, case_name
from simgen.store.schema import IMPORTED, Schema, Source
from simgen.store.split import SPLITS, assign_splits, note_of_few
from simgen.store.versions import OnRecord, read_on_record
from simgen.whole_file import not_there

#: What reading somebody else's files may raise: a damaged mesh names corners and cells that it has
#: not, and a cut file ends anywhere.
FOREIGN = (
    *(CaseError, InputError, OSError, ValueError, LookupError, ArithmeticError),
    *(MemoryError, RecursionError),
)
#: Relative to the least; a training accepts no more.
STEP_TOLERANCE = 1e-3
MOST_NAMED = 5  # Rows of a table without a case that are named
NOT_STATED = Source("a folder", "a local folder", "not stated")
_COLUMN = re.compile(r"(?P<name>[^()\[\]]+?)\s*(?:[(\[](?P<unit>[^()\[\]]*)[)\]])?")

OnProgress = Callable[[int, int], None]


@dataclass(frozen=True)
class DesignFile:
    """A CSV file's rows by the dataset's name of the case that each is of."""

    path: Path
    parameters: dict[str, dict[str, float]]
    splits: dict[str, str]  # Empty where the file has no such column
    units: dict[str, str]  # The unit of each parameter; empty where the header has none


def read_case_table(path: Path) -> DesignFile:
    """Read a CSV file of cases; InputError names the line that is wrong.

    A column `case` has the case's place in the folder or its name in the dataset; `split`, if it is
    there, train, validation, test or calibration. Every other column is a parameter, with its unit
    in brackets if it has one: `speed (m/s)`.
    """
    found = DesignFile(path, {}, {}, {})
    for line, cells in read_cells(path):
        where = f"design file {path}, line {line}"
        if "case" not in cells:
            raise InputError(f"design file {path} has no column 'case', with each row's case")
        place = cells.pop("case")
        case = case_name(place)
        if not place or case in found.parameters:
            raise InputError(f"{where}: {f'there are two rows for {case}' if place else 'no case'}")
        if (split := cells.pop("split", None)) is not None:
            if split not in SPLITS:
                raise InputError(f"{where}: split = {split!r}, expected {', '.join(SPLITS)}")
            found.splits[case] = split
        values = found.parameters[case] = {}
        for column, cell in cells.items():
            name, unit = name_and_unit(column)
            if name in values:
                raise InputError(
                    f"design file {path} has two columns that are called {name} in a dataset, the"
                    f" second of them {column!r}; rename one"
                )
            values[name], found.units[name] = number_of(path, line, name, cell), unit
    if not found.parameters:
        raise InputError(f"design file {path} holds no row; expected a header case,NAME,…")
    return found


def name_and_unit(column: str) -> tuple[str, str]:
    """Parse `speed (m/s)`."""
    found = _COLUMN.fullmatch(column.strip())
    if found is None:
        raise InputError(f"{column!r} names no parameter; write NAME or NAME (UNIT)")
    return re.sub(r"\W+", "_", found["name"].strip()), (found["unit"] or "").strip()


@dataclass(frozen=True)
class FolderOptions:
    """The options of an import, whatever its files are."""

    folder: Path
    url: str
    name: str
    table: DesignFile | None = None
    units: Mapping[str, str] = field(default_factory=dict)
    """Of the parameters that the reader finds"""
    places: Mapping[str, str] = field(default_factory=dict)
    """Where it finds them in each case's dictionaries"""
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    distance_kinds: tuple[str, ...] | None = None
    """Kinds of patches that each case must have; None = those that most cases have"""
    source: Source = NOT_STATED
    quantities: Sequence[str] | None = None  # NAME=EXPRESSION:UNIT of each; None = the usual ones
    keep_repeats: bool = False


@dataclass(frozen=True, kw_only=True)
class Surveyed:
    """A case before its values are read."""

    place: str  # Its path in the folder
    files: str  # A digest of the state of its files, and of its parameters and split
    fields: tuple[Field, ...]
    dimension: int
    times: tuple[float, ...] | None  # None for a steady case
    kind_of: Mapping[str, str] = field(default_factory=dict)
    """Kinds of the patches that are boundaries"""
    parameters: Mapping[str, float] = field(default_factory=dict)
    split: str | None = None
    left_out: tuple[str, ...] = ()  # Parts of the case that are not imported, and why

    @property
    def name(self) -> str:
        return case_name(self.place)


def fingerprint(paths: Sequence[Path], *settings: object) -> str:
    """Return a digest of these files' names, sizes and dates, and of these settings."""
    digest = hashlib.blake2b(repr(settings).encode(), digest_size=16)
    for path in paths:
        state = path.stat()
        digest.update(f"{path.name}:{state.st_size}:{state.st_mtime_ns};".encode())
    return digest.hexdigest()


@dataclass(frozen=True)
class NotImported:
    """A case, or a part of one, that is not imported, and why."""

    case: str
    reason: str


class CaseReader(Protocol):
    """A reader for one kind of files; an error of FOREIGN is why a case cannot be imported."""

    has_volumes: bool
    left_out: list[NotImported]  # What `find` passed over, though nobody asked for that

    def find(self, folder: Path) -> list[str]:
        """Return the places of the cases; InputError where there is none."""

    def survey(self, place: str) -> Surveyed: ...

    def notes(self, cases: Sequence[Any]) -> Iterator[str]:
        """Yield what is to be known of the cases that are imported."""

    def read(self, case: Any, schema: Schema) -> SourceCase: ...


@dataclass(frozen=True)
class FolderPlan:
    folder: Path
    url: str
    schema: Schema
    cases: tuple[Surveyed, ...]  # The cases that would be imported, if their values are good
    on_record: frozenset[str]  # Those of them whose files have not changed since they were imported
    splits: Mapping[str, str]
    skipped: tuple[NotImported, ...]
    left_out: tuple[NotImported, ...]
    notes: tuple[str, ...]

    @property
    def patches(self) -> dict[str, list[str]]:
        """Return the names of the patches of each kind, in all cases together."""
        pairs = {pair for case in self.cases for pair in case.kind_of.items()}
        return {
            kind: sorted(p for p, of in pairs if of == kind) for kind in self.schema.patch_kinds
        }


def plan_folder(
    asked: FolderOptions, reader: CaseReader, on_progress: OnProgress = lambda done, total: None
) -> FolderPlan:
    """Survey all cases and decide what is imported; InputError where no case is good."""
    if not asked.folder.is_dir():
        raise InputError(not_there(str(asked.folder)) or f"{asked.folder} is no folder")
    there = read_on_record(asked.url)
    if there is not None and there.schema.source is None:
        raise InputError(f"{asked.url} holds cases solved here; choose another --name or --store")
    held = {} if there is None else there.held
    table, places = asked.table, reader.find(asked.folder)
    skipped: list[NotImported] = []
    surveyed: list[Surveyed] = []
    for done, place in enumerate(places, start=1):
        try:
            case = reader.survey(place)
            if table is not None:
                parameters, split = table.parameters.get(case.name), table.splits.get(case.name)
                if parameters is None:
                    raise InputError(f"{table.path} has no row for it: none names {place}")
                if twice := parameters.keys() & case.parameters.keys():
                    raise InputError(
                        f"--parameter {min(twice)} is a column of {table.path} too; leave one out"
                    )
                case = replace(case, parameters={**parameters, **case.parameters}, split=split)
            surveyed.append(case)
        except FOREIGN as error:
            why = _reason(error, asked.folder)
            if case_name(place) in held:
                why += "; the dataset keeps it from an earlier import: courant dataset withdraw"
                why += " removes it, another --name takes other --fields"
            skipped.append(NotImported(place, why))
        on_progress(done, len(places))
    kept: list[Surveyed] = []
    if surveyed:
        surveyed, notes = _with_its_parameters(surveyed, asked, there)
        schema = _schema(asked, surveyed, there, reader)
    design = {} if there is None else there.design
    for case in surveyed:
        row = design.get(case.name, {"status": ""})
        if row["status"] == "withdrawn" and row.get(IMPORTED, {}).get("files") == case.files:
            why = f"it was withdrawn ({row['reason']}), and its files have not changed since"
            skipped.append(NotImported(case.place, why))
        elif why := next(_departures(case, schema, kept, there, asked), ""):
            skipped.append(NotImported(case.place, why))
        else:
            kept.append(case)
    if not kept:
        raise InputError(
            f"none of the {len(skipped)} cases in {asked.folder} can be imported; the first,"
            f" {skipped[0].case}: {skipped[0].reason}"
        )
    bound = {} if there is None else there.splits
    if schema.splits == "published":
        splits = {case.name: bound.get(case.name, case.split or "") for case in kept}
        if "train" not in {*splits.values(), *bound.values()}:
            where = table.path if table else asked.folder
            raise InputError(f"{where} puts no case that can be imported into the split train")
    else:
        accepted = [name for name, row in held.items() if row["status"] == "accepted"]
        drawn = assign_splits(list(dict.fromkeys([*accepted, *(of.name for of in kept)])), bound)
        splits = {case.name: drawn[case.name] for case in kept}
    if lost := sorted({*(table.parameters if table else ())} - {*map(case_name, places)}):
        more = f" and {len(lost) - MOST_NAMED} more" if len(lost) > MOST_NAMED else ""
        notes.append(f"no case is that of these rows: {', '.join(lost[:MOST_NAMED])}{more}")
    # No transient model can be trained on irregular times: it has one step for all.
    steps = [(float(step), case.place) for case in kept for step in np.diff(case.times or ())]
    (least, close), (most, wide) = min(steps, default=(0.0, "")), max(steps, default=(0.0, ""))
    if most - least > STEP_TOLERANCE * least:
        notes.append(
            f"times lie {least:g} s ({close}) to {most:g} s ({wide}) apart, and a model is trained"
            " on one interval; --interval SECONDS interpolates OpenFOAM's cases to one"
        )
    if any(each.changes_mesh for each in schema.parameters):
        example = str(asked.folder / kept[0].place)
        notes.append(
            "the cases have several meshes, so that a model of them predicts no other design; a"
            f" template meshes any: {schema.template_command(example)}"
            f" --store {shlex.quote(asked.url.rpartition('/')[0])}"
        )
    if few := note_of_few(splits.values()):
        notes.append(few)
    files = {name: row.get(IMPORTED, {}).get("files") for name, row in held.items()}
    return FolderPlan(
        asked.folder,
        asked.url,
        schema,
        tuple(kept),
        frozenset(case.name for case in kept if files.get(case.name) == case.files),
        splits,
        tuple(skipped),
        (*reader.left_out, *(NotImported(of.place, why) for of in kept for why in of.left_out)),
        (*notes, *reader.notes(kept)),
    )


def import_plan(
    plan: FolderPlan,
    reader: CaseReader,
    *,
    on_progress: OnProgress = lambda done, total: None,
    on_skipped: Callable[[str, str], None] = lambda case, why: None,
) -> importing.Imported:
    """Import what was planned; a case of wrong values is passed to `on_skipped` by its place."""
    places = {case.name: case.place for case in plan.cases}

    def unread(case: Surveyed) -> importing.UnreadCase:
        def read() -> SourceCase:
            try:
                return reader.read(case, plan.schema)
            except FOREIGN as error:
                raise CaseError(_reason(error, plan.folder)) from error

        return importing.UnreadCase(case.name, case.files, read)

    assert plan.schema.source is not None
    return importing.import_cases(
        plan.url,
        plan.schema,
        map(unread, plan.cases),
        message=f"imported from {plan.schema.source.name}",
        on_progress=lambda done, _: on_progress(done, len(plan.cases)),
        on_skipped=lambda name, why: on_skipped(places[name], why),
    )


def _reason(error: Exception, folder: Path) -> str:
    """Show an error without the folder's own path, and with its type where it is not ours."""
    text = importing.one_line(error)
    if isinstance(error, OSError) and error.filename:
        text = f"{error.filename}".removesuffix(".gz") + f": {error.strerror}"
    elif not isinstance(error, CaseError | InputError):
        text = f"its files cannot be read ({type(error).__name__}: {text})"
    return text.replace(f"{folder}/", "")


def _with_its_parameters(
    cases: list[Surveyed], asked: FolderOptions, there: OnRecord | None
) -> tuple[list[Surveyed], list[str]]:
    """Drop parameters that are the same in all cases: there is nothing to learn from them."""
    values: dict[str, set[float]] = defaultdict(set)
    for case in cases:
        for name, value in case.parameters.items():
            values[name].add(value)
    if unknown := [name for name in asked.ranges if name not in values]:
        known = ", ".join(values) or "none"
        raise InputError(f"--range {unknown[0]}: the cases' parameters are {known}")
    names = set() if there is None else {each.name for each in there.schema.parameters}
    notes = []
    for name, found in values.items():
        if len(found) == 1 and name not in asked.ranges and name not in names:
            notes.append(
                f"{name} is {min(found):g} in all cases, so it is no parameter of the dataset;"
                f" --range {name}=LOW:HIGH makes it one"
            )
        elif there is None:
            names.add(name)
        elif name not in names:
            raise InputError(
                f"{asked.url} has no parameter {name}: choose another --name or --store for all"
            )

    def finished(case: Surveyed) -> Surveyed:
        # As design points are rounded, so that a case is the same after a round trip.
        mine = {
            name: float(f"{value:.{SIGNIFICANT_DIGITS}g}") + 0.0
            for name, value in case.parameters.items()
            if name in names
        }
        return replace(case, parameters=mine, files=fingerprint([], case.files, mine, case.split))

    return [finished(case) for case in cases], notes


def _schema(
    asked: FolderOptions, cases: list[Surveyed], there: OnRecord | None, reader: CaseReader
) -> Schema:
    """Return the dataset's schema; of a new dataset that of most cases."""
    units = {**(asked.table.units if asked.table else {}), **asked.units}
    if there is not None:
        if there.schema.family != asked.name:
            raise InputError(f"{asked.url} holds {there.schema.family}: choose another --store")
        for each in there.schema.parameters:
            if asked.ranges.get(each.name, (each.low, each.high)) != (each.low, each.high):
                raise InputError(
                    f"{asked.url} has {each.name} from {each.low:g} to {each.high:g}: leave --range"
                    " out, or import all cases into another store"
                )
            if (unit := units.get(each.name) or each.unit) != each.unit:
                raise InputError(
                    f"{asked.url} has {each.name} in {each.unit or 'no unit'}, and here it is in"
                    f" {unit}: give its values in the dataset's unit"
                )
        stated, wanted = there.schema.quantities, asked.quantities
        if wanted is not None and importing.stated_quantities(there.schema, wanted) != stated:
            raise InputError(
                f"{asked.url} has other quantities: leave --quantity out, or import all cases into"
                " another store"
            )
        return there.schema
    forms = Counter((case.fields, case.dimension, case.times is None) for case in cases)
    fields, dimension, steady = forms.most_common(1)[0][0]
    counts = Counter(kind for case in cases for kind in set(case.kind_of.values()))
    least = 0 if asked.distance_kinds is not None else len(cases) / 2
    kinds = sorted(kind for kind, count in counts.items() if count > least)
    parameters = []
    for name in dict.fromkeys(name for case in cases for name in case.parameters):
        values = [case.parameters[name] for case in cases if name in case.parameters]
        low, high = asked.ranges.get(name, (min(values), max(values)))
        place = asked.places.get(name, "")
        parameters.append(Parameter(name, units.get(name, ""), low, high, place))
    return importing.imported_schema(
        asked.name,
        dimension=dimension,
        fields=fields,
        source=asked.source,
        transient=not steady,
        parameters=parameters,
        splits="published" if asked.table is not None and asked.table.splits else "drawn",
        boundary=bool(kinds),
        volumes=reader.has_volumes,
        patch_kinds=kinds,
        distance_kinds=kinds if asked.distance_kinds is None else asked.distance_kinds,
        quantities=asked.quantities,
    )


def _departures(
    case: Surveyed,
    schema: Schema,
    kept: Sequence[Surveyed],
    there: OnRecord | None,
    asked: FolderOptions,
) -> Iterator[str]:
    """Yield how a case departs from the schema, or repeats another case."""
    for other in kept:
        if other.name == case.name:
            yield f"its name in the dataset, {case.name}, is that of {other.place}; rename one"

    def form(steady: bool, of: Surveyed | Schema) -> list[str]:
        fields = [
            f"of {each.openfoam or each.name} as {each.name} in {each.unit or '1'} with"
            f" {len(each.components)} components"
            for each in of.fields
        ]
        named = f"of {', '.join(each.openfoam or each.name for each in of.fields)}"
        return ["steady" if steady else "transient", f"{of.dimension}D", named, *fields]

    own, common = form(case.times is None, case), form(not schema.transient, schema)
    for number, (mine, theirs) in enumerate(zip(own, common, strict=False)):
        if mine != theirs:
            way_out = f"give {'its --fields or ' * (number > 1)}another --name"
            yield f"it is {mine}, the dataset is {theirs}; {way_out}"
    kinds = set(case.kind_of.values())
    if schema.patch_kinds and (unknown := sorted(kinds - set(schema.patch_kinds))):
        yield (
            f"it has a patch of kind {unknown[0]}, which the dataset has not"
            f" ({', '.join(schema.patch_kinds)}); --kind PATCH=KIND gives it another"
        )
    if missing := [kind for kind in schema.measured_kinds if kind not in kinds]:
        yield (
            f"it has no patch of kind {missing[0]}, to which the dataset has distances; name one"
            " with --kind PATCH=KIND, or leave it out for all with --distance KIND,KIND"
        )
    own, common = sorted(case.parameters), sorted(each.name for each in schema.parameters)
    if own != common:
        yield f"it has the parameters {', '.join(own)}, the dataset {', '.join(common) or 'none'}"
    for each in schema.parameters:
        if not each.low <= (value := case.parameters[each.name]) <= each.high:
            yield (
                f"its {each.name} = {value:g} lies outside the dataset's range {each.low:g} to"
                f" {each.high:g}; import all cases into another store, with a wider --range"
            )
    others = {} if there is None else {name: of["parameters"] for name, of in there.held.items()}
    others |= {other.name: other.parameters for other in kept}
    for name, parameters in others.items():
        repeats = case.parameters and parameters == case.parameters and name != case.name
        if repeats and not asked.keep_repeats:
            yield f"it has the parameters of {name}, solved twice; --keep-repeats imports both"
