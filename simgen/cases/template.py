"""A family made of an OpenFOAM case: its parameters are numbers in the case's dictionaries.

    courant generate --template pitz --vary 'speed=0/U:boundaryField/inlet/value[0]=5:15:m/s'

The case is copied without its results, to `<store>/templates/<name>.tar.gz`, with `template.json`:
what the family declares. It is meshed once to learn its patches. A design is a copy in which
foamDictionary sets the parameters, and the settings in controlDict; it is meshed by the
applications that its Allrun names before the solver, or that its dictionaries are for.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import re
import shlex
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import fsspec
import numpy as np
from botocore.exceptions import BotoCoreError
from pydantic import BaseModel, ConfigDict, ValidationError

from simgen.case import CaseFamily, Field, Gate, SolvedCase
from simgen.case_description import (
    check_unit,
    describe_field,
    dimension_of,
    patch_kind,
    read_control,
    velocity_conditions,
)
from simgen.cases.expressions import AskedQuantity, Expression, SolvedFields, usual_quantities
from simgen.design_space import COUNT, DesignPoint, DesignSpace, Parameter
from simgen.errors import CaseError, InputError, MeshError, SolverError, StoreError
from simgen.foam.dictionaries import DictionaryPlace, number_at, read_entry, read_number
from simgen.foam.field import columns_of, read_field, read_values
from simgen.foam.log import SolverLog, residual_figures
from simgen.foam.mesh import read_geometry, time_directories
from simgen.foam.reader import FoamReader
from simgen.foam.run import find_openfoam, run_application
from simgen.meshing import check_mesh
from simgen.whole_file import cache_folder, not_there, pack_folder

RECORD = "template.json"
TURBULENCE = {
    *("k", "epsilon", "omega", "nut", "nuTilda", "alphat", "nuSgs", "R", "kl", "kt"),
    *("v2", "f"),
}
"""Fields that are solved and not stored unless they are asked for"""
MAX_RESIDUAL, MAX_COURANT, MAX_MASS_IMBALANCE = 1e-2, 5.0, 1e-2
_RESULTS = ("processor*", "postProcessing", "VTK", "log*", "*.log", "*.logfile", "dynamicCode")
_RUNS = re.compile(
    r"^\s*run(?:Application|Parallel)\s+"
    r"(?:-(?:s|suffix|np|decomposeParDict)\s+\S+\s+|-(?:a|append|o|overwrite)\s+)*(.+?)\s*$",
    re.MULTILINE,
)
_COPIES = re.compile(r"^\s*\\?cp\s+(?:-\w+\s+)*([^\s$*-][^\s$*]*)\s+([^\s$*]+)\s*$", re.MULTILINE)
#: Lines of scripts that are not run, and that a mesh may need: `m4 blockMeshDict.m4 > …`, `./mesh`.
_NOT_RUN = re.compile(
    r"^\s*((?:m4|sed|gunzip|tar|python3?|sh|bash|run(?!Application|Parallel)\w+)\s.+|\./.+?)\s*$",
    re.MULTILINE,
)
_COUNT = re.compile(r"n[A-Z]")  # As OpenFOAM calls whole numbers: nCells, nCorrectors
#: What an import does with an entry that is not read, and what is done in a template.
_ADVICE = "give the parameter in a table", "write its value out in the case"
#: Entries that a patch's `value` follows from, where its condition has one.
_COMPUTED_FROM = (
    *("volumetricFlowRate", "massFlowRate", "uniformValue", "refValue", "inletValue", "p0", "T0"),
    *("freestreamValue", "meanValue", "intensity", "mixingLength", "omega", "valueExpr"),
)
_STANDS_FOR_IT = "courantDesignParameter"
_SETTINGS = {"endTime": "end_time", "deltaT": "time_step", "writeInterval": "write_interval"}
"""Those of a transient case, by their entries in controlDict"""
_READ = ("startTime", "writeControl", "maxCo", *_SETTINGS)
_PARALLEL = {"decomposePar", "reconstructPar", "reconstructParMesh", "redistributePar"}
#: Applications by the dictionary that they need, in the order in which they run.
_BY_DICTIONARY = {
    "surfaceFeatureExtractDict": "surfaceFeatureExtract",
    "blockMeshDict": "blockMesh",
    "snappyHexMeshDict": "snappyHexMesh -overwrite",
    "createPatchDict": "createPatch -overwrite",
    "setFieldsDict": "setFields",
}


class Varied(BaseModel):
    """A design parameter, and the places of its number in the case's dictionaries."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    place: str
    low: float
    high: float
    unit: str = ""

    @property
    def places(self) -> list[DictionaryPlace]:
        """Return the places, which commas separate; one without a file is in that before it."""
        found, file = list[DictionaryPlace](), ""
        for text in self.place.split(","):
            found.append(DictionaryPlace.parse(text if ":" in text else f"{file}:{text}"))
            file = found[-1].file
        return found

    def option(self, unit: str) -> str:
        """Return the option that varies it in this unit."""
        return f"--vary '{self.name}={self.place}={self.low:g}:{self.high:g}:{unit}'"

    @classmethod
    def parse(cls, text: str) -> Varied:
        """Parse NAME=FILE:ENTRY/ENTRY[INDEX]=LOW:HIGH:UNIT; name and unit may be left out."""
        # The fields of 0 are those of 0.orig, and 0/T.orig is 0/T.
        original = re.compile(r"(^|,)0(?:\.orig)?/([^:,]+?)(?:\.orig)?:")
        parts = [original.sub(r"\g<1>0/\2:", part.strip()) for part in text.split("=")]
        if len(parts) == 2 and ":" in parts[0]:
            place = DictionaryPlace.parse(parts[0].partition(",")[0])
            index = "" if place.index is None else f"_{place.index}"
            parts.insert(0, "_".join(place.entries[-2:]) + index)
        form = (
            "write NAME=FILE:ENTRY/ENTRY=LOW:HIGH:UNIT, such as"
            " speed=0/U:boundaryField/inlet/value[0]=5:15:m/s"
        )
        if len(parts) != 3:
            raise InputError(f"--vary '{text}' has no place and range of its own: {form}")
        if not re.fullmatch(r"[A-Za-z]\w*", parts[0]):
            raise InputError(f"--vary '{text}': the name '{parts[0]}' is no word: {form}")
        low, _, rest = parts[2].partition(":")
        high, _, unit = rest.partition(":")
        try:
            found = cls(
                name=parts[0], place=parts[1], low=float(low), high=float(high), unit=unit or "1"
            )
        except ValueError as error:
            raise InputError(f"--vary '{text}': '{parts[2]}' is no range: {form}") from error
        if not found.low < found.high:
            wrong = f"low {found.low:g} is not below high {found.high:g}"
            raise InputError(f"--vary '{text}': {wrong}: {form}")
        if unit in ("", "1") and all(_COUNT.match(place.entries[-1]) for place in found.places):
            found = found.model_copy(update={"unit": COUNT})
        if found.unit == COUNT and (found.low % 1 or found.high % 1):
            raise InputError(f"--vary '{text}': a {COUNT} has whole numbers as limits: {form}")
        return found


class TemplateRecord(BaseModel):
    """What the family declares."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    varied: tuple[Varied, ...]
    application: str
    dimension: int
    transient: bool
    fields: tuple[Field, ...]
    patches: dict[str, str]  # Kind by patch
    settings: dict[str, float]
    """Those of controlDict: end_time, write_interval and time_step, or max_iterations"""
    commands: tuple[str, ...]  # Applications with their arguments that run before the solver
    quantities: tuple[AskedQuantity, ...] = ()
    given: dict[str, dict[str, tuple[float, ...]]] = {}
    """Values that all designs have on patches, by field and patch"""
    digest: str = ""  # Of the names and contents of the case's files


class TemplateFamily(CaseFamily):
    """The family of a template, whose files lie in `folder`."""

    revision = 1
    snapshot_interval = "write_interval"

    def __init__(self, record: TemplateRecord, folder: Path) -> None:
        self.record, self.folder, self.name = record, folder, record.name
        self.title, self.dimension = f"{record.name}, a template case", record.dimension
        self.application, self.transient = record.application, record.transient
        self.content = record.digest
        self.horizon = "end_time" if record.transient else "max_iterations"
        self.design_space = DesignSpace(
            tuple(Parameter(v.name, v.unit, v.low, v.high, v.place) for v in record.varied)
        )
        # What is not in a dictionary of the mesh leaves the mesh as it is.
        parameters = self.design_space.parameters
        self.flow_parameters = tuple(of.name for of in parameters if not of.changes_mesh)
        unit = "s" if record.transient else "1"
        limit = ("max_courant", MAX_COURANT) if record.transient else ("max_residual", MAX_RESIDUAL)
        self.presets = {"template": record.settings | {limit[0]: record.settings.get(*limit)}}
        self.settings_space = DesignSpace(
            tuple(
                Parameter(name, "1" if name == limit[0] else unit, value * 1e-6, value * 1e6)
                for name, value in self.presets["template"].items()
            )
        )
        self.patches, self.fields = record.patches, record.fields
        self.measures = [
            Expression(
                each,
                fields=record.fields,
                patches=record.patches,
                parameters=self.design_space.names,
                transient=record.transient,
                given=record.given,
            )
            for each in record.quantities
        ]
        self.quantities = tuple(each.quantity for each in self.measures)
        self.preparation = ("foamDictionary", *(shlex.split(c)[0] for c in record.commands))

    def write_case(self, point: DesignPoint, directory: Path) -> None:
        copy_case(self.folder, directory)
        for each in self.record.varied:
            for place in each.places:
                number = point.parameters[each.name]
                set_number(directory, place, int(number) if each.unit == COUNT else number)
        set_control(directory, point.settings, self.transient)
        run_commands(self.record.commands, directory)

    def notes(self) -> Iterator[str]:
        """Yield a line for each varied value of a patch that the cells start from elsewhere."""
        for each in self.record.varied if self.transient else ():
            patch, *others = each.places
            # Where a macro is varied, the cells may follow it too.
            if others or patch.entries[0] != "boundaryField":
                continue
            with contextlib.suppress(CaseError):
                start = read_number(self.folder, replace(patch, entries=("internalField",)))
                if start == read_number(self.folder, patch) != 0:
                    both = f"{each.place},internalField{''.join(each.place.partition('[')[1:])}"
                    yield (
                        f"note: {each.name} varies a patch, and all designs start from {start:g} in"
                        f" the cells; both by --vary '{each.name}={both}=…'"
                    )

    def figures(self, case: SolvedCase, log: SolverLog) -> dict[str, float]:
        figures = {} if self.transient else residual_figures(log)
        figures |= dict.fromkeys((each.name for each in self.quantities), np.nan)
        # Without times and with values that are not finite, gates reject the case.
        with contextlib.suppress(InputError):
            if self.quantities and time_directories(case.directory):
                solved = SolvedFields.read(case, self)
                figures |= {each.asked.name: each(solved) for each in self.measures}
        return figures

    def gates(self, case: SolvedCase, figures: Mapping[str, float]) -> list[Gate]:
        name, title = "max_residual", "greatest initial residual"
        if self.transient:
            name, title = "max_courant", "greatest Courant number"
        value, most = figures[name], case.point.settings[name]
        hint = name if self.transient else f"{name}, or max_iterations"
        gates = [Gate(title, value, f"<= {most:g} (--set {hint})", value <= most)]
        if not self.transient and {"inlet", "outlet"} <= set(self.patches.values()):
            imbalance = figures["mass_imbalance"]
            gates.append(Gate.at_most("mass imbalance", imbalance, MAX_MASS_IMBALANCE))
        return gates


def copy_case(case: Path, directory: Path) -> None:
    """Copy a case without its results, and unpack its files.

    The fields of 0 are those of 0.orig, where there is one; 0/T.orig is 0/T, where that is missing,
    or where a script copies it there. Other files that scripts copy within the case are copied too.
    """
    times = (path.name for _, path in time_directories(case))
    results = shutil.ignore_patterns(*_RESULTS, *times)
    # Folders of constant/boundaryData are named by times as well.
    shutil.copytree(
        case,
        directory,
        ignore=lambda folder, names: results(folder, names) if Path(folder) == case else (),
        dirs_exist_ok=True,
        ignore_dangling_symlinks=True,
    )
    for packed in directory.rglob("*.gz"):
        if not (plain := packed.with_suffix("")).exists():  # which OpenFOAM reads first
            plain.write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()
    if (directory / "0.orig").is_dir():
        shutil.rmtree(directory / "0", ignore_errors=True)
        (directory / "0.orig").rename(directory / "0")
    for source, target in _COPIES.findall(_scripts(directory)):
        is_inside = ".." not in source + target and "/" not in (source[0], target[0])
        if is_inside and (directory / source).is_file() and (directory / target).parent.is_dir():
            shutil.copy(directory / source, directory / target)
    for original in directory.glob("0/**/*.orig"):
        if (field := original.with_suffix("")).exists():
            original.unlink()
        else:
            original.rename(field)


def _scripts(case: Path) -> str:
    """Return the text of the case's scripts, in the order in which they run."""
    files = (case / "Allrun.pre", case / "Allrun")
    text = "\n".join(file.read_text(errors="replace") for file in files if file.is_file())
    # A command in each line, without comments: runApplication blockMesh || exit 1  # first
    return re.sub(r"\s(?:&&|\|\|)\s", "\n", re.sub(r"\s#.*", "", text))


def set_entry(directory: Path, file: str, entries: Sequence[str], value: str) -> None:
    """Set an entry of a dictionary by foamDictionary, which leaves macros as they are."""
    place = ".".join(entries) if not any("." in each for each in entries) else "/".join(entries)
    command = ("foamDictionary", "-disableFunctionEntries", "-entry", place, "-set", value, file)
    run_commands([shlex.join(command)], directory)


def set_number(directory: Path, place: DictionaryPlace, number: float) -> None:
    text, span = number_at(directory, place)
    # Of a number foamDictionary would write six digits.
    value = f"{text[: span[0]]}{_STANDS_FOR_IT}{text[span[1] :]}"
    set_entry(directory, place.file, place.entries, value)
    file = directory / place.file
    file.write_text(file.read_text().replace(_STANDS_FOR_IT, repr(number)))


def set_control(directory: Path, settings: Mapping[str, float], transient: bool) -> None:
    """Set when the solver ends and what it stores, in controlDict."""
    values: dict[str, object] = {"startFrom": "startTime", "startTime": 0, "stopAt": "endTime"}
    if transient:
        adjusts = (read_entry(directory / "system/controlDict", ["adjustTimeStep"]) or "").lower()
        values |= {entry: settings[name] for entry, name in _SETTINGS.items()}
        is_adjusted = adjusts in ("yes", "on", "true")
        values["writeControl"] = "adjustableRunTime" if is_adjusted else "runTime"
    else:
        last = int(settings["max_iterations"])
        values |= {"endTime": last, "deltaT": 1, "writeControl": "timeStep", "writeInterval": last}
    # Digits enough that the names of times are theirs.
    values |= {"purgeWrite": 0, "timePrecision": 12, "writePrecision": 9}
    for name, value in values.items():
        set_entry(directory, "system/controlDict", [name], f"{value}")


def run_commands(commands: Sequence[str], directory: Path) -> None:
    for command in commands:
        application, *arguments = shlex.split(command)
        run_application(application, directory, arguments=arguments)


def commands_of(case: Path, application: str) -> tuple[str, ...]:
    """Return what runs before the solver: by the case's Allrun, or by its dictionaries."""
    found: list[str] = []
    for command in _RUNS.findall(_scripts(case)):
        words = command.split()
        name = words[0].strip('"')
        if name in ("$application", "`getApplication`", "$(getApplication)", application):
            return tuple(found)
        if words[0] not in _PARALLEL and "$" not in command:
            found.append(" ".join(word for word in words if word != "-parallel"))
    if found:
        return tuple(found)
    meshed = (case / "constant/polyMesh/points").exists()
    return tuple(
        command
        for file, command in _BY_DICTIONARY.items()
        if any((case / place / file).is_file() for place in ("system", "constant/polyMesh"))
        and not (meshed and command == "blockMesh")
    )


def make_template(
    case: Path,
    name: str,
    varied: Sequence[Varied],
    fields: Sequence[str] | None,
    folder: Path,
    quantities: Sequence[AskedQuantity] | None = None,
) -> TemplateFamily:
    """Copy a case to `folder`, run it for a step, and describe it as a family; or InputError.

    `fields` are OpenFOAM's names of those to store; None: those of 0 that the solver writes, but
    for turbulence and components. Quantities that are None are the usual ones.
    """
    if not (case / "system/controlDict").is_file():
        lacking = f"{case} is no OpenFOAM case: it has no system/controlDict"
        raise InputError(not_there(str(case)) or lacking)
    copy_case(case, folder)
    if not (folder / "0").is_dir():
        raise InputError(f"{case} has no folder 0 or 0.orig with the initial fields")
    digest = hashlib.sha256()
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        digest.update(f"{path.relative_to(folder)}\n".encode() + path.read_bytes())
    for asked in quantities or ():
        for monitor in re.findall(r"monitor\(\s*([^,\s]+)", asked.expression):
            files = (file for file in (folder / "system").rglob("*") if file.is_file())
            if not any(monitor in file.read_text(errors="replace") for file in files):
                raise InputError(f"--quantity {asked.name}: {case}/system has no '{monitor}'")
    find_openfoam(("foamDictionary",))
    with tempfile.TemporaryDirectory(prefix="courant-template-") as scratch:
        trial = Path(scratch) / "case"
        copy_case(folder, trial)
        try:
            application, _, steady = read_control(trial)
            if not application:
                raise CaseError("system/controlDict names no application")
            settings = _settings(trial, bool(steady))
            for each in varied:
                for place in each.places:
                    _set_own_value(trial, each, place, bool(steady))
            set_control(trial, settings, not steady)
            set_entry(trial, "system/controlDict", ["stopAt"], "writeNow")
            commands = commands_of(trial, application)
            find_openfoam({application, "checkMesh", *(shlex.split(each)[0] for each in commands)})
            run_commands(commands, trial)
            if not (trial / "constant/polyMesh/boundary").exists():
                raise MeshError("it has no mesh, and no dictionary or Allrun that makes one")
            check_mesh(trial)
            run_application(application, trial)
            if not (times := time_directories(trial)):
                raise CaseError(f"{application} writes no time after 0, which would be stored")
            first, geometry = times[-1][1], read_geometry(trial)
            patches = geometry.patches
            dimension = dimension_of(patches, lambda: geometry.points)
            conditions = velocity_conditions(first / "U", patches)
            kinds = {
                patch: kind
                for patch, of in patches.items()
                if of.size and (kind := patch_kind(patch, of.type, conditions.get(patch, ""), {}))
            }
            written = dict[str, Field]()
            for path in sorted(first.iterdir()):
                with contextlib.suppress(CaseError):  # no field of cells
                    file = path.with_name(path.name.removesuffix(".gz"))
                    written[file.name] = describe_field(file, "", "solved", dimension)
            parts = {f"{n}{x}" for n, f in written.items() if len(f.components) > 1 for x in "xyz"}
            usual = [n for n in written.keys() - parts - TURBULENCE if (trial / "0" / n).is_file()]
            if unknown := [each for each in fields or () if each not in written]:
                raise CaseError(f"{application} writes {', '.join(written)}, and no {unknown[0]}")
            stored, given = [written[each] for each in fields or sorted(usual)], {}
            for field in stored:
                read_values(first / field.openfoam, geometry, kinds, field.components)
                own = f"0/{field.openfoam}"
                with contextlib.suppress(CaseError):  # macros, which may be varied
                    if not any(at.file == own for each in varied for at in each.places):
                        start = read_field(trial / own, patches)
                        columns = columns_of(trial / own, field.components, start)
                        given[field.name] = {
                            patch: tuple(of[columns].tolist())
                            for patch, of in start.boundary.items()
                            if start.patches[patch] == "fixedValue" and of.ndim == 1
                        }
        except CaseError as error:
            why = str(error).replace(f"{trial}/", "").replace(f"{trial}", "it").replace(*_ADVICE)
            is_of_mesh = isinstance(error, MeshError | SolverError)
            for line in _NOT_RUN.findall(_scripts(trial))[:1] if is_of_mesh else ():
                why += f"; its script's line '{line}' is not run: run it in the case first"
            if "expected label" in why:
                whole = " or ".join(each.option(COUNT) for each in varied if each.unit != COUNT)
                why += f"; a parameter of whole numbers has the unit {COUNT}: {whole}"
            raise InputError(f"{case}: {why}") from error
    if not stored:
        raise InputError(f"{case}/0 holds no field to store; give --fields {','.join(written)}")
    record = TemplateRecord(
        name=name,
        varied=tuple(varied),
        application=application,
        dimension=dimension,
        transient=not steady,
        fields=tuple(stored),
        patches=kinds,
        settings=settings,
        commands=commands,
        quantities=usual_quantities(stored, kinds) if quantities is None else tuple(quantities),
        given=given,
        digest=digest.hexdigest(),
    )
    (folder / RECORD).write_text(record.model_dump_json(indent=1))
    family = TemplateFamily(record, folder)
    for measure in family.measures:
        measure.checked()
    return family


def _set_own_value(case: Path, varied: Varied, place: DictionaryPlace, steady: bool) -> None:
    """Set a number to its own value, as a design does; CaseError where that has no effect."""
    number, entry = read_number(case, place), place.entries[0]
    if place.file == "system/controlDict" and entry in _SETTINGS:
        setting = "max_iterations" if steady else _SETTINGS[entry]
        why = f"{place.file}: {entry} is a setting, the same in all designs"
        raise CaseError(f"{why}: give --set {setting}={number:g}, not --vary")
    check_unit(varied.unit, case, place)
    _check_computed(case, place)
    reader = FoamReader(case / place.file)
    try:
        if entry not in [name for name in reader.names() if reader.skip_entry()]:
            raise CaseError("it would be added behind those that refer to it")
        set_number(case, place, int(number) if varied.unit == COUNT else number)
    except CaseError as error:
        way = varied.model_copy(update={"place": f"{place.file}:{varied.name}"}).option(varied.unit)
        raise CaseError(
            f"{place.file}: {'/'.join(place.entries)} cannot be set, as it is in an included file"
            f" or under a pattern in quotes: put `{varied.name} {number:g};` at the top of the"
            f" file, write ${varied.name} in place of the number, and give {way}"
        ) from error


def _check_computed(case: Path, place: DictionaryPlace) -> None:
    """Raise CaseError for the `value` of a patch that OpenFOAM computes from another entry."""
    *patch, entry = place.entries
    condition = read_entry(case / place.file, [*patch, "type"]) if entry == "value" else None
    for other in _COMPUTED_FROM if condition not in (None, "fixedValue") else ():
        if read_entry(case / place.file, [*patch, other]) is not None:
            name = "/".join(patch)
            why = f"the value of {name}, a {condition}, follows from another: vary {name}/{other}"
            raise CaseError(f"{place.file}: {why}")


def _settings(case: Path, steady: bool) -> dict[str, float]:
    """Return the settings that controlDict has; CaseError for a start that is not 0."""
    file = case / "system/controlDict"
    control = {n: read_entry(file, [n]) or "" for n in _READ}
    try:
        end = float(control["endTime"])
        start, step = float(control["startTime"] or 0), float(control["deltaT"])
        if steady:
            return {"max_iterations": float(round(end / step))}
        interval, most = float(control["writeInterval"]), float(control["maxCo"] or 0)
    except ValueError as error:
        raise CaseError(f"{file}: {error}") from error
    if start:
        raise CaseError(f"{file} starts at {start:g}; a template starts at 0")
    if control["writeControl"] in ("", "timeStep"):
        interval *= step
    count = max(1, round(end / interval))
    found = {"end_time": count * interval, "write_interval": interval, "time_step": step}
    # Steps that the solver adjusts overshoot.
    return found | ({"max_courant": 2 * most} if 2 * most > MAX_COURANT else {})


def url_of(store: str, name: str) -> str:
    """Return where a store keeps a template."""
    return f"{store.rstrip('/')}/templates/{name}.tar.gz"


def keep(family: TemplateFamily, store: str, *, is_used: bool) -> None:
    """Pack the template into the store, unless it is there.

    Another one of its name is replaced, and its dataset removed; InputError where it `is_used`.
    """
    url = url_of(store, family.name)
    known = find(family.name, store)
    if known is not None and known.record == family.record:
        return
    if known is not None and is_used:
        old, new = known.record, family.record
        gone, added = (
            " ".join(each.option(each.unit) for each in of.varied if each not in other.varied)
            for of, other in ((old, new), (new, old))
        )
        which = [of for of in ("fields", "quantities") if getattr(old, of) != getattr(new, of)]
        how = f"with other {' and '.join(which) or 'files'}"
        if gone or added:
            how = f"with {gone or 'fewer --vary'}, not {added or 'fewer'}"
        raise InputError(
            f"{url} has cases {how}: leave --template out to add to them, or give this one"
            " another name"
        )
    try:
        if known is not None:
            files, path = fsspec.core.url_to_fs(f"{store}/{family.name}", skip_instance_cache=True)
            if files.exists(path):
                files.rm(path, recursive=True)
        pack_folder(family.folder, url)
    except OSError as error:
        raise StoreError(f"{url} cannot be written: {error.strerror or error}") from error


def find(name: str, store: str) -> TemplateFamily | None:
    """Return a store's template, unpacked in the user's cache; None where it has none."""
    url = url_of(store, name)
    try:
        with fsspec.open(url, "rb") as source:
            content = source.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, BotoCoreError) as error:
        raise StoreError(f"{url} cannot be read: {error}") from error
    digest = hashlib.sha256(content).hexdigest()[:16]
    folder = cache_folder("templates") / f"{name}-{digest}"
    if not (folder / RECORD).exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as part:
            with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
                archive.extractall(part, filter="data")
            with contextlib.suppress(OSError):  # another process was first
                (Path(part) / name).rename(folder)
    return read_template(folder)


def read_template(folder: Path) -> TemplateFamily:
    """Read an unpacked template; InputError where its record is damaged."""
    try:
        record = TemplateRecord.model_validate_json((folder / RECORD).read_text())
    except (OSError, ValidationError) as error:
        raise InputError(f"{folder}/{RECORD} is no template: remove {folder}") from error
    return TemplateFamily(record, folder)
