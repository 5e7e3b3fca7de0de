"""Mesh a design that nobody has solved, for a model that predicts it.

Known geometry is kept in a folder, a file for each mesh: a design is not meshed twice, nor one that
differs in the flow alone. Any number of processes may share the folder.
"""

import contextlib
import os
import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from simgen.case import CaseFamily
from simgen.cases import get_family
from simgen.cell_mesh import CellMesh
from simgen.design_space import DesignPoint
from simgen.errors import CaseError, InputError
from simgen.foam.mesh import read_geometry
from simgen.foam.run import find_openfoam
from simgen.point_cloud import BoundaryCloud, PointCloud
from simgen.solving.case_lock import check_path
from simgen.solving.convert import geometry_cloud
from simgen.solving.gates import check_patches
from simgen.solving.preparation import write_case
from simgen.solving.solve_case import full_disk
from simgen.whole_file import npz_bytes, whole_file

#: Meshing takes seconds; a design for which gmsh finds no end is an error.
TIME_LIMIT_S = 120.0
#: A folder holds no more geometries, of some hundreds of kB each.
MOST_KEPT = 1000
#: Raise this when the arrays of a kept geometry change.
REVISION = 2
_ARRAYS = ("points", "volumes", "distance", "direction")
_ON_FACES = ("points", "normals", "areas", "patch")


class UnmeshableError(InputError):
    """A design of which no mesh could be made."""


def mesh_design(point: DesignPoint, folder: Path) -> tuple[PointCloud, bool]:
    """Return the cloud of a design without solved fields, and whether it was kept in `folder`.

    Its boundary has what the family prescribes there. InputError without OpenFOAM's mesh tools or a
    usable folder, UnmeshableError where no mesh could be made.
    """
    family = get_family(point.family)
    kept = folder / f"{geometry_id(point)}-{REVISION}.npz"
    known = _read(kept, family)
    if known is not None:
        return _with_conditions(family, point, known), True
    applications = ("gmshToFoam", *family.preparation)
    find_openfoam(applications)
    check_path("temporary directory (TMPDIR)", Path(tempfile.gettempdir()))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="courant-mesh-") as scratch:
            directory = Path(scratch) / point.id
            directory.mkdir()
            write_case(point, directory, TIME_LIMIT_S)
            check_patches(family, directory)
            cloud = geometry_cloud(family, read_geometry(directory))
    except CaseError as error:
        if full := full_disk(Path(tempfile.gettempdir())):
            raise InputError(
                f"the disk of {tempfile.gettempdir()} is {full}: choose another with TMPDIR"
            ) from error
        raise UnmeshableError(f"this design cannot be meshed: {error}") from error
    except OSError as error:
        raise InputError(f"{folder} cannot be used: {error.strerror or error}") from error
    with contextlib.suppress(OSError):  # a full disk: it is only meshed again
        boundary, mesh = cloud.boundary, cloud.mesh
        assert boundary is not None
        arrays = {name: getattr(cloud, name) for name in _ARRAYS}
        arrays |= {f"face_{name}": getattr(boundary, name) for name in _ON_FACES}
        if mesh is not None:
            arrays |= {"mesh_points": mesh.points, "mesh_cells": mesh.entries}
        with whole_file(kept) as part:
            part.write_bytes(npz_bytes(arrays))
        used = sorted(folder.glob("[!.]*.npz"), key=lambda file: file.stat().st_mtime)
        for file in used[:-MOST_KEPT]:
            file.unlink(missing_ok=True)
    return _with_conditions(family, point, cloud), False


def geometry_id(point: DesignPoint) -> str:
    """Return the id of a design's mesh, which all designs of the same geometry share."""
    family, given = get_family(point.family), point.parameters.items()
    shape = {name: value for name, value in given if name not in family.flow_parameters}
    return replace(point, family=point.family + family.content, parameters=shape).id


def _with_conditions(family: CaseFamily, point: DesignPoint, cloud: PointCloud) -> PointCloud:
    """Return the cloud with what the family prescribes on its boundary."""
    faces = cloud.boundary
    assert faces is not None
    return replace(cloud, boundary=replace(faces, fields=family.prescribed(point, faces)))


def _read(file: Path, family: CaseFamily) -> PointCloud | None:
    """Read a kept geometry; None where there is none, or none that can be read."""
    try:
        with np.load(file, allow_pickle=False) as kept:
            arrays = dict(kept)
        with contextlib.suppress(OSError):  # one that others share, or that was just forgotten
            os.utime(file)
        on_faces = {name: arrays[f"face_{name}"] for name in _ON_FACES}
        mesh = None
        if "mesh_cells" in arrays:
            mesh = CellMesh(arrays["mesh_points"], arrays["mesh_cells"])
        return PointCloud(
            **{name: arrays[name] for name in _ARRAYS},
            patch_kinds=family.patch_kinds,
            time=None,
            fields={},
            boundary=BoundaryCloud(**on_faces),
            mesh=mesh,
        )
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, InputError):
        return None
