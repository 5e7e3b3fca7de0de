"""Read OpenFOAM's fields into numpy, binary or ascii, packed or not.

What OpenFOAM itself has written is understood whole: uniform and nonuniform values, plain and
compact lists, and any other entry of a patch. Values that a file does not hold itself, but takes by
a directive or a macro, are refused. Reading a case's mesh, fields and geometry is 8 times as fast
as with foamToVTK and meshio, which give no geometry; reading its fields alone is 7 times as fast as
with foamlib (`python -m bench extraction`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from simgen.errors import CaseError
from simgen.foam.mesh_files import read_boundary, time_directories
from simgen.foam.reader import COMPONENTS, FoamReader, numbers

_UNIFORM = re.compile(rb"uniform\s+(\([^()]*\)|[^\s();]+)\s*;")
_TENSOR = ("xx", "xy", "xz", "yx", "yy", "yz", "zx", "zy", "zz")
#: The components of OpenFOAM's fields in the order of their files, by how many there are.
COMPONENT_NAMES: Mapping[int, tuple[str, ...]] = {
    3: ("x", "y", "z"),
    6: ("xx", "xy", "xz", "yy", "yz", "zz"),
    9: _TENSOR,
}


@dataclass
class FoamField:
    """One volume or surface field.

    `internal` is (cells, c), or (c,) where uniform; `boundary` holds the patches with a value,
    `patches` the names of all patches in the file with the types of their conditions.
    """

    internal: np.ndarray
    boundary: dict[str, np.ndarray] = field(default_factory=dict)
    patches: Mapping[str, str] = field(default_factory=dict)

    def spread(self, num_faces: Mapping[str, int]) -> FoamField:
        """Repeat the one value of a uniform patch for each of its faces."""
        boundary = {
            patch: np.broadcast_to(values, (num_faces.get(patch, len(values)), values.shape[-1]))
            if values.ndim == 1
            else values
            for patch, values in self.boundary.items()
        }
        return replace(self, boundary=boundary)


def component_columns(components: Sequence[str], num_columns: int) -> list[int] | None:
    """Return where the components lie in a file with so many columns; None if it lacks one."""
    if num_columns == 1:
        return [0] if len(components) == 1 else None
    known = COMPONENT_NAMES.get(num_columns, ())
    return [known.index(name) for name in components] if set(components) <= set(known) else None


def read_field(path: Path, *, boundary: bool = True) -> FoamField:
    """Read a vol*Field or surface*Field file; with boundary=False only its internal field.

    Raises CaseError where the file is damaged.
    """
    reader = FoamReader(path)
    internal: np.ndarray | None = None
    values: dict[str, tuple[str, np.ndarray | None]] = {}
    for key in reader.names():
        if key == "internalField":
            internal = _value(reader, key)
            if not boundary:
                break
        elif key == "boundaryField":
            values = _boundary_field(reader)
        else:
            reader.skip_entry()
    if internal is None:
        raise CaseError(f"{path} has no internalField")
    written = {
        # An empty patch may be written without saying of what: nonuniform 0()
        patch: value if len(value) else np.empty((0, internal.shape[-1]))
        for patch, (_, value) in values.items()
        if value is not None
    }
    return FoamField(internal, written, {patch: type_ for patch, (type_, _) in values.items()})


def read_flux(case: Path) -> FoamField:
    """Read phi of the case's last time, with a value for each face of each patch."""
    times = time_directories(case)
    sizes = read_boundary(case / "constant/polyMesh/boundary")
    flux = read_field((times[-1][1] if times else case / "0") / "phi")
    return flux.spread({patch: size for patch, (_, _, size) in sizes.items()})


def _boundary_field(reader: FoamReader) -> dict[str, tuple[str, np.ndarray | None]]:
    """Return each patch's type and value; None for a patch without a value."""
    patches: dict[str, tuple[str, np.ndarray | None]] = {}
    reader.expect(b"{")
    for patch in reader.names(b"}"):
        value, type_, reader.unread = None, "", ""
        reader.expect(b"{")
        for key in reader.names(b"}"):
            if key == "value":
                value = _value(reader, f"value on the patch {patch}")
                continue
            entry = reader.skip_entry()
            if key == "type":
                type_ = entry.decode(errors="replace").strip().rstrip(";").strip()
        patches[patch] = type_, value
        if value is None and reader.unread:
            raise CaseError(
                f"{reader.path}: the patch {patch} refers to another place ({reader.unread});"
                " only fields that OpenFOAM has written out are read"
            )
    return patches


def _value(reader: FoamReader, name: str) -> np.ndarray:
    """Read a value: `uniform v` gives (c,), `nonuniform List<type> N(...)` gives (N, c)."""
    reader.skip_space()
    uniform = _UNIFORM.match(reader.data, reader.position)
    if uniform:
        reader.position = uniform.end()
        try:
            return numbers(uniform[1])
        except ValueError:
            raise _not_written_out(reader, name, uniform[0]) from None
    if not reader.data.startswith(b"nonuniform", reader.position):
        raise _not_written_out(reader, name, reader.skip_entry())
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


def _not_written_out(reader: FoamReader, name: str, found: bytes) -> CaseError:
    shown = " ".join(found.decode(errors="replace").split())[:60]
    return CaseError(
        f"{reader.path}: the {name} is '{shown}', no numbers; only fields that OpenFOAM has"
        " written out are read"
    )
