"""Read OpenFOAM's fields into numpy, binary or ascii, packed or not.

An entry may be of one patch, of a group of patches, or of all that a pattern in quotes matches: the
patch's own entry counts, else that of the last of its groups, else that of the last pattern. Values
that a file takes by a directive or a macro are an error.

Most conditions write their values. Those of `COMPUTED` follow from the cells behind the faces
(v1912's fvPatchFields; `foamToVTK` has the same values). What any other has there is not known.
"""

import contextlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from simgen.errors import CaseError, PatchValueError
from simgen.foam.mesh import CONSTRAINTS, MeshGeometry, PatchRange, read_boundary, time_directories
from simgen.foam.reader import COMPONENTS, FoamReader, matches, numbers

_UNIFORM = re.compile(rb"uniform\s+(\([^()]*\)|[^\s();]+)\s*;")
_CONSTRAINT_TYPES = re.compile(r'#includeEtc\s+"caseDicts/setConstraintTypes"')
#: The components of OpenFOAM's fields in the order of their files, by how many there are.
COMPONENT_NAMES: Mapping[int, tuple[str, ...]] = {
    3: ("x", "y", "z"),
    6: ("xx", "xy", "xz", "yy", "yz", "zz"),
    9: ("xx", "xy", "xz", "yx", "yy", "yz", "zx", "zy", "zz"),
}
#: Conditions whose values OpenFOAM computes when it reads a file, from those of the cells and from
#: these entries; a `value` beside them does not count.
COMPUTED: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("zeroGradient", "extrapolatedCalculated", "empty", "noSlip"), ()),
    **dict.fromkeys(("slip", "symmetry", "symmetryPlane"), ()),
    "fixedGradient": ("gradient",),
    "partialSlip": ("valueFraction", "refValue"),
    "fixedNormalSlip": ("fixedValue",),
    "surfaceNormalFixedValue": ("refValue",),
}


@dataclass
class FoamField:
    """One volume or surface field; arrays are (N, c), or (c,) where uniform."""

    internal: np.ndarray
    boundary: dict[str, np.ndarray] = field(default_factory=dict)  # The patches with a value
    patches: Mapping[str, str] = field(default_factory=dict)
    """All patches in the file with the types of their conditions"""
    given: Mapping[str, Mapping[str, np.ndarray]] = field(default_factory=dict)
    """The entries by patch and name that `COMPUTED` conditions are computed from"""


@dataclass
class PatchEntry:
    """The entry of a patch, a group of patches or a pattern in a field's file."""

    name: str
    is_pattern: bool
    condition: str = ""
    at: dict[str, int] = field(default_factory=dict)
    """Where in the file the value of each of its own entries begins"""
    unread: str = ""  # A directive or macro in it, which may bring in other entries


def read_field(path: Path, patches: Mapping[str, PatchRange] | None = None) -> FoamField:
    """Read a vol*Field or surface*Field file; CaseError where it is damaged.

    With the mesh's `patches`, each has the entry that OpenFOAM finds for it; without, entries are
    by their names as they are written.
    """
    reader = FoamReader(path)
    internal: np.ndarray | None = None
    entries: list[PatchEntry] = []
    for key in reader.names():
        if key == "internalField":
            internal = _value(reader, key)
        elif key == "boundaryField":
            entries = patch_entries(reader)
        else:
            reader.skip_entry()
    if internal is None:
        raise CaseError(f"{path} has no internalField")
    by_patch = {each.name: each for each in entries}
    if patches is not None:
        by_patch = entries_of(patches, entries)
    values: dict[str, np.ndarray] = {}
    given: dict[str, dict[str, np.ndarray]] = {}
    components = internal.shape[-1]
    for patch, entry in by_patch.items():
        if entry.unread:
            raise CaseError(
                f"{path}: the patch {patch} refers to another place ({entry.unread[:60]});"
                " only fields that OpenFOAM has written out are read"
            )
        # What is computed is computed from these; nothing of what changes in time is read.
        is_computed = entry.condition in COMPUTED and "ramp" not in entry.at
        computed_from = COMPUTED[entry.condition] if is_computed else ()
        number = "refValue" if entry.condition == "surfaceNormalFixedValue" else "valueFraction"
        given[patch] = {
            name: _entry(reader, patch, entry, name, 1 if name == number else components)
            for name in computed_from
            if name in entry.at
        }
        # The value of what is computed does not count; surface fields have one where a patch is
        # of a constraint's type.
        at = entry.at.get("value")
        is_number = at is not None and reader.data.startswith((b"uniform", b"nonuniform"), at)
        if at is not None and (not is_computed or (is_number and not computed_from)):
            values[patch] = _entry(reader, patch, entry, "value", components)
    conditions = {patch: entry.condition for patch, entry in by_patch.items()}
    return FoamField(internal, values, conditions, given)


def read_values(
    path: Path,
    mesh: MeshGeometry,
    patches: Collection[str],
    components: Sequence[str],
    as_the_cell: Collection[str] = (),
    *,
    needs_entries: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """Read components of a field in the cells (C, c), and on the patches' faces (B, c), in f8.

    Conditions named in `as_the_cell` have the cell's value where they write none. A field without
    any entry, as post-processing may make it, has its cells' unless it `needs_entries`. CaseError
    names the file, and what it lacks or where it is damaged; PatchValueError where a patch has a
    value that is not known.
    """
    field = read_field(path, mesh.patches)
    needed = patches if needs_entries or field.patches else ()
    check_sizes(path, field, len(mesh.centres), mesh.patches, needed)
    columns = columns_of(path, components, field)
    cells = np.broadcast_to(field.internal, (len(mesh.centres), field.internal.shape[-1]))
    faces = [np.empty((0, cells.shape[-1]))]
    try:
        faces += [_patch_values(field, name, mesh, cells, as_the_cell) for name in patches]
    except PatchValueError as error:
        raise PatchValueError(f"{path}: {error}") from error
    return cells[:, columns].astype("f8"), np.concatenate(faces)[:, columns].astype("f8")


def check_sizes(
    path: Path,
    field: FoamField,
    num_cells: int,
    patches: Mapping[str, PatchRange],
    needed: Iterable[str],
) -> None:
    """Raise CaseError if the field in `path` lacks values, or the entry of a needed patch."""
    if field.internal.ndim > 1 and len(field.internal) != num_cells:
        raise CaseError(f"{path} has values for {len(field.internal)} cells, not {num_cells}")
    for patch in needed:
        if patch not in field.patches:
            raise CaseError(f"{path} has no entry for the patch {patch}")
        written = [field.boundary[patch]] if patch in field.boundary else []
        for values in (*written, *field.given.get(patch, {}).values()):
            if values.ndim > 1 and len(values) != patches[patch].size:
                on = f"on the {patches[patch].size} faces of the patch {patch}"
                raise CaseError(f"{path} has {len(values)} values {on}")


def columns_of(path: Path, components: Sequence[str], field: FoamField) -> list[int]:
    """Return the components' columns in the field of `path`; CaseError where it lacks one."""
    number = field.internal.shape[-1]
    known = COMPONENT_NAMES.get(number, ())
    if number == len(components) == 1:
        return [0]
    if set(components) <= set(known):
        return [known.index(name) for name in components]
    names = ", ".join(known or ("one",))
    raise CaseError(f"{path} has the components {names}, not {', '.join(components)}")


def read_flux(case: Path) -> FoamField:
    """Read phi of the case's last time, with a value for each face of each patch."""
    times = time_directories(case)
    flux = read_field((times[-1][1] if times else case / "0") / "phi")
    for patch, faces in read_boundary(case / "constant/polyMesh/boundary").items():
        if (values := flux.boundary.get(patch)) is not None and values.ndim == 1:
            flux.boundary[patch] = np.broadcast_to(values, (faces.size, len(values)))
    return flux


def patch_entries(reader: FoamReader) -> list[PatchEntry]:
    """Read the entries of a boundaryField, in the order of the file."""
    entries: dict[str, PatchEntry] = {}

    def take(directive: str) -> None:
        if not _CONSTRAINT_TYPES.fullmatch(directive):
            raise CaseError(
                f"{reader.path}: the boundaryField refers to another place ({directive[:60]}); only"
                " fields that OpenFOAM has written out are read"
            )
        for type_ in CONSTRAINTS:
            entries.setdefault(type_, PatchEntry(type_, False)).condition = type_

    reader.expect(b"{")
    for name in reader.names(b"}", take):
        is_pattern = reader.is_quoted
        if reader.peek() != b"{":
            reader.skip_entry()
            continue
        # Entries of the same name, in quotes or not, are one, of the kind of the first; what is in
        # the later ones replaces the same in the earlier ones.
        entry = entries.setdefault(name, PatchEntry(name, is_pattern))
        reader.unread = ""
        reader.expect(b"{")
        for word in reader.names(b"}"):
            reader.skip_space()
            entry.at[word] = reader.position
            text = reader.skip_entry()
            if word == "type":
                entry.condition = text.decode(errors="replace").strip().rstrip(";").strip()
        entry.unread = reader.unread or entry.unread
    return list(entries.values())


def entries_of(
    patches: Mapping[str, PatchRange], entries: Sequence[PatchEntry]
) -> dict[str, PatchEntry]:
    """Return the entry of each patch, as GeometricBoundaryField::readField of OpenFOAM does."""
    named = {entry.name: entry for entry in entries}
    # A group that is called like a patch is none.
    order = {name: number for number, name in enumerate(named) if not named[name].is_pattern}
    of_groups = {name: number for name, number in order.items() if name not in patches}
    patterns = [entry for entry in reversed(entries) if entry.is_pattern]
    found = {}
    for name, patch in patches.items():
        entry = named[name] if name in order else None
        if entry is None and (groups := of_groups.keys() & set(patch.groups)):
            entry = named[max(groups, key=of_groups.__getitem__)]
        if entry is None and entries and patch.type == "empty":
            entry = PatchEntry(name, False, "empty")
        if entry is None:  # the patch's name in quotes goes before other patterns
            fitting = (each for each in patterns if matches(each.name, name))
            entry = named.get(name) or next(fitting, None)
        if entry is not None:
            found[name] = entry
    return found


def _entry(
    reader: FoamReader, patch: str, entry: PatchEntry, name: str, components: int
) -> np.ndarray:
    reader.position = entry.at[name]
    value = _value(reader, f"{name} on the patch {patch}")
    if not len(value):
        # An empty patch may be written without saying of what: nonuniform 0()
        return np.empty((0, components))
    if value.shape[-1] != components:
        raise CaseError(
            f"{reader.path}: the {name} on the patch {patch} has {value.shape[-1]} components,"
            f" expected {components}"
        )
    return value


def _value(reader: FoamReader, name: str) -> np.ndarray:
    """Read a value: `uniform v` gives (c,), `nonuniform List<type> N(...)` gives (N, c)."""
    reader.skip_space()
    begin = reader.position
    if uniform := _UNIFORM.match(reader.data, begin):
        reader.position = uniform.end()
        with contextlib.suppress(ValueError):
            return numbers(uniform[1])
    if not reader.data.startswith(b"nonuniform", begin):
        reader.position = begin
        shown = " ".join(reader.skip_entry().decode(errors="replace").split())[:60]
        raise CaseError(
            f"{reader.path}: the {name} is '{shown}', no numbers; only fields that OpenFOAM has"
            " written out are read"
        )
    reader.position += len(b"nonuniform")
    head = reader.list_head()
    if head is None:  # `nonuniform 0()` on an empty patch
        if reader.count():
            raise reader.error(f"does not say of what type the {name} is")
        reader.skip_entry()
        return np.empty((0, 1))
    kind, count = head
    if kind not in COMPONENTS:
        raise reader.error(f"holds a {name} of type {kind}, which is not read")
    values = reader.payload(count, COMPONENTS[kind], reader.scalar)
    reader.skip_entry()
    return values


#: Conditions that have the cell's value where they write none: kin of zeroGradient.
_AS_THE_CELL = ("calculated", "kqRWallFunction")


def _patch_values(
    field: FoamField,
    name: str,
    geometry: MeshGeometry,
    cells: np.ndarray,
    as_the_cell: Collection[str] = (),
) -> np.ndarray:
    """Return the values (B, c) on a patch of B faces; `cells` (C, c) are the field's in the cells.

    Conditions named in `as_the_cell` have the cell's value where they write none; PatchValueError
    for others without a value.
    """
    patch = geometry.patches[name]
    behind = cells[geometry.owner[patch.faces]]
    if not field.patches:  # a field of cells alone, as post-processing makes it
        return behind
    condition, given = field.patches[name], field.given[name]
    areas = geometry.face_areas[patch.faces]
    normals = areas / np.maximum(np.linalg.norm(areas, axis=1, keepdims=True), 1e-300)
    across = normals[:, :, None] * normals[:, None]
    match condition:
        case "zeroGradient" | "extrapolatedCalculated" | "empty":
            return behind
        case "noSlip":
            return np.zeros_like(behind)
        case "slip" | "symmetry" | "symmetryPlane":
            return 0.5 * (behind + _transformed(np.eye(3) - 2 * across, behind))
        case "fixedGradient" if "gradient" in given:
            centres = geometry.centres[geometry.owner[patch.faces]]
            distance = ((geometry.face_centres[patch.faces] - centres) * normals).sum(axis=1)
            return behind + given["gradient"] * np.abs(distance)[:, None]
        case "partialSlip" if "valueFraction" in given:
            along = _transformed(np.eye(3) - across, behind)
            fraction = given["valueFraction"]
            return fraction * given.get("refValue", 0.0) + (1 - fraction) * along
        case "fixedNormalSlip" if "fixedValue" in given and cells.shape[-1] == 3:
            through = (given["fixedValue"] * normals).sum(axis=1, keepdims=True)
            return through * normals + _transformed(np.eye(3) - across, behind)
        case "surfaceNormalFixedValue" if "refValue" in given:
            return given["refValue"] * normals
    written = field.boundary.get(name)
    if written is not None:
        return np.broadcast_to(written, behind.shape)
    if condition in _AS_THE_CELL or condition in as_the_cell:
        return behind
    raise PatchValueError(
        f"its patch {name} has no value, and {condition or 'a condition without a type'} does not"
        " say what it is; an import takes that of the cells behind by --patch-value"
        f" {condition or 'NAME'}=cell, a template needs another condition there"
    )


def _transformed(matrices: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Apply matrices (B, 3, 3) to vectors or tensors (B, c); scalars stay as they are."""
    width = values.shape[-1]
    if width == 1:
        return values
    if width == 3:
        return np.einsum("bij,bj->bi", matrices, values)
    # xx xy xz yy yz zz as nine components
    whole = values if width == 9 else values[:, [0, 1, 2, 1, 3, 4, 2, 4, 5]]
    turned = matrices @ whole.reshape(-1, 3, 3) @ matrices.transpose(0, 2, 1)
    turned = turned.reshape(-1, 9)
    return turned if width == 9 else turned[:, [0, 1, 2, 4, 5, 8]]
