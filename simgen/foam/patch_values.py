"""Compute a field's values on a patch as OpenFOAM does when it reads the field.

Most conditions write their values. Those of `COMPUTED` do not: their values follow from those of
the cells behind the faces (v1912's fvPatchFields; `foamToVTK` has the same values). What any other
condition without a value has there is not known.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from simgen.errors import CaseError
from simgen.foam.field import FoamField
from simgen.foam.geometry import MeshGeometry

#: Conditions that have the cell's value where they write none: kin of zeroGradient.
_AS_THE_CELL = ("calculated", "kqRWallFunction")


def patch_values(
    field: FoamField,
    name: str,
    geometry: MeshGeometry,
    cells: np.ndarray,
    as_the_cell: Collection[str] = (),
) -> np.ndarray:
    """Return the values (B, c) on a patch of B faces; `cells` (C, c) are the field's in the cells.

    Conditions named in `as_the_cell` have the cell's value where they write none. CaseError for
    others whose value is not known.
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
    raise CaseError(
        f"its patch {name} has no value, and {condition or 'a condition without a type'} does not"
        f" say what it is; --patch-value {condition or 'NAME'}=cell takes that of the cells behind"
    )


def _transformed(matrices: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Apply matrices (B, 3, 3) to vectors or tensors (B, c); scalars stay as they are."""
    if values.shape[-1] == 1:
        return values
    if values.shape[-1] == 3:
        return np.einsum("bij,bj->bi", matrices, values)
    if values.shape[-1] == 9:
        turned = matrices @ values.reshape(-1, 3, 3) @ matrices.transpose(0, 2, 1)
        return turned.reshape(-1, 9)
    whole = values[:, [0, 1, 2, 1, 3, 4, 2, 4, 5]]  # xx xy xz yy yz zz as nine components
    return _transformed(matrices, whole)[:, [0, 1, 2, 4, 5, 8]]
