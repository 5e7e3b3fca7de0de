"""One case of a dataset version: its record, and its arrays, read lazily and checked."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr

from simgen.cell_mesh import CellMesh
from simgen.errors import InputError
from simgen.store.access.checked_array import CheckedArray, Place, opening
from simgen.store.access.open_version import OpenVersion
from simgen.store.access.read_arrays import read_arrays
from simgen.store.format import schema_1
from simgen.store.format.case_arrays import array_names
from simgen.store.format.case_seal import CaseSeal, SealedStore
from simgen.store.format.split import PUBLISHED
from simgen.store.format.tables import read_details
from simgen.store.format.unsealed_case import check_unsealed

if TYPE_CHECKING:
    import xarray


class Boundary:
    """A case's boundary cloud, with its fields by name.

    points (B, 3), normals (B, 3), areas (B,), patch (B,).
    """

    def __init__(self, case: StoredCase, group: zarr.Group) -> None:
        self._case, self._group = case, group

    def __getitem__(self, field: str) -> zarr.Array:
        return self._case._array(self._group, field)

    @functools.cached_property
    def _faces(self) -> np.ndarray:
        def read(name: str) -> np.ndarray:
            return np.asarray(self[name][:])

        return schema_1.read_faces(read) if self._case.is_schema_1 else read("faces")

    @property
    def points(self) -> np.ndarray:
        return self._faces[:, :3]

    @property
    def normals(self) -> np.ndarray:
        """Unit vectors out of the domain."""
        return self._faces[:, 3:6]

    @property
    def areas(self) -> np.ndarray:
        return self._faces[:, 6]

    @property
    def patch(self) -> np.ndarray:
        """(B,) u1, an index into the case's patch kinds."""
        return self._faces[:, 7].astype(np.uint8)


class StoredCase:
    """One case of a version.

    Properties read whole arrays; `case[field]` is a lazy Zarr array (T, N, C) or (N, C).
    """

    def __init__(self, dataset: OpenVersion, case: str) -> None:
        self.dataset, self.id = dataset, case
        self._record = dataset._records[case]
        self._opened: dict[str, CheckedArray] = {}

    def __repr__(self) -> str:
        values = ", ".join(f"{name} {value:g}" for name, value in self.parameters.items())
        return f"<case {self.id}: {self.status}, {values}>"

    @functools.cached_property
    def _group(self) -> zarr.Group:
        with opening(self._place("metadata")):
            store = self.dataset._root.store
            if self._seal is not None:
                store = SealedStore(store, self.id, self._seal)
            group = zarr.open_group(store, path=f"cases/{self.id}", mode="r", zarr_format=3)
            if self._seal is None:
                details, schema_1 = self._read_details(), self.is_schema_1
                check_unsealed(group, self.dataset.schema, self._record, details, schema_1=schema_1)
            return group

    @functools.cached_property
    def _seal(self) -> CaseSeal | None:
        with opening(self._place("seal")):
            return self.dataset._seals.read(self.id, self._record)

    def _place(self, array: str) -> Place:
        return Place(self.dataset.url, self.dataset.version, self.id, array)

    @property
    def parameters(self) -> dict[str, float]:
        return dict(self._record["parameters"])

    @property
    def stated_split(self) -> str | None:
        """The split that the case's source or the request for it gave it; None where drawn."""
        stated = self._record.get(PUBLISHED)
        return None if stated is None else str(stated)

    @property
    def settings(self) -> dict[str, float]:
        return dict(self._record["settings"])

    @property
    def status(self) -> str:
        return str(self._record["status"])

    @property
    def reason(self) -> str:
        return str(self._record["reason"])

    @property
    def split(self) -> str | None:
        return self.dataset._members.get(self.id)

    @property
    def is_schema_1(self) -> bool:
        """Whether the case has the arrays of schema version 1.

        An upgraded dataset may hold both kinds.
        """
        return "provenance_at" not in self._record

    @functools.cached_property
    def _details(self) -> dict[str, Any]:
        with opening(self._place("provenance")):
            return self._read_details()

    def _read_details(self) -> dict[str, Any]:
        digest = None if self._seal is None else self._seal.details
        return read_details(self.dataset._root, self.id, self._record, digest)

    @property
    def provenance(self) -> dict[str, Any]:
        """Solver, versions, revision, mesh figures, residual history, wall times, host class."""
        return dict(self._details["provenance"])

    @property
    def gates(self) -> list[dict[str, Any]]:
        return list(self._details["gates"])

    @property
    def log_tail(self) -> str:
        return str(self._details["log_tail"])

    @property
    def patch_kinds(self) -> tuple[str, ...]:
        return self.dataset.schema.patch_kinds

    @property
    def grid_shape(self) -> tuple[int, ...] | None:
        """The shape of the points' regular grid, last axis fastest; None without one."""
        own = self._record.get("grid_shape")
        return self.dataset.schema.grid_shape if own is None else tuple(own)

    @property
    def num_points(self) -> int:
        return int(self["points"].shape[0])

    def __getitem__(self, field: str) -> zarr.Array:
        self._check_accepted()
        return self._array(self._group, field)

    def read(self, *names: str) -> dict[str, np.ndarray]:
        """Read several whole arrays at once by name, such as velocity and boundary/faces.

        Reads all of them if none is named. Faster than one after the other, especially from S3.
        """
        self._check_accepted()
        known = schema_1.array_names if self.is_schema_1 else array_names
        wanted = names or known(self.dataset.schema)
        return read_arrays(self._group, {name: self._place(name) for name in wanted})

    def _check_accepted(self) -> None:
        if self.status != "accepted":
            raise InputError(f"case {self.id} was {self.status} and has no arrays: {self.reason}")

    def _array(self, group: zarr.Group, name: str) -> CheckedArray:
        path = f"{group.name}/{name}".removeprefix(f"/{self._group.path}/")
        if path in self._opened:  # a version does not change, and looking it up takes a millisecond
            return self._opened[path]
        place = self._place(path)
        with opening(place):
            try:
                array = group[name]
            except KeyError:
                raise InputError(
                    f"{group.name} has no array {name}; there are"
                    f" {', '.join(sorted(group.array_keys()))}"
                ) from None
            if not isinstance(array, zarr.Array):
                raise InputError(f"{group.name}/{name} is no array but a group")
            return self._opened.setdefault(path, CheckedArray(array, place))

    @property
    def points(self) -> np.ndarray:
        return np.asarray(self["points"])

    @property
    def volumes(self) -> np.ndarray:
        return np.asarray(self["volumes"])

    @functools.cached_property
    def _distance_field(self) -> np.ndarray:
        def read(name: str) -> np.ndarray:
            return np.asarray(self[name][:])

        return schema_1.read_distance_field(read) if self.is_schema_1 else read("distance_field")

    @property
    def distance(self) -> np.ndarray:
        """(N, K) m, the distance to the nearest face of each of the schema's `measured_kinds`."""
        return self._distance_field[..., 0]

    @property
    def direction(self) -> np.ndarray:
        """(N, K, 3), the unit vectors to these faces."""
        return self._distance_field[..., 1:]

    @functools.cached_property
    def time(self) -> np.ndarray | None:
        """(T,) s, read once and not writeable; None in a steady dataset."""
        if not self.dataset.schema.transient:
            return None
        time = np.asarray(self["time"])
        time.flags.writeable = False
        return time

    @functools.cached_property
    def mesh(self) -> CellMesh | None:
        """The cells and boundary faces by their corners; None where they are not on record."""
        self._check_accepted()
        if "mesh_cells" not in set(self._group.array_keys()):
            return None
        mesh = CellMesh(np.asarray(self["mesh_points"]), np.asarray(self["mesh_cells"]))
        mesh.check(
            self.num_points, len(self.boundary.points) if self.dataset.schema.boundary else 0
        )
        return mesh

    @property
    def boundary(self) -> Boundary:
        """The boundary cloud; InputError in a dataset whose schema has none."""
        if not self.dataset.schema.boundary:
            raise InputError(f"{self.dataset.url}: cases have no boundary cloud")
        self._check_accepted()
        with opening(self._place("boundary")):
            group = self._group["boundary"]
            assert isinstance(group, zarr.Group)
            return Boundary(self, group)

    def constants(self) -> dict[str, np.ndarray]:
        """Return `volume` and `distance_<patch kind>`, (N,) each, as far as the schema has them."""
        schema = self.dataset.schema
        arrays = {"volume": self.volumes} if schema.volumes else {}
        if schema.measured_kinds:
            columns = zip(schema.measured_kinds, self.distance.T, strict=True)
            arrays |= {f"distance_{kind}": column for kind, column in columns}
        return arrays

    def to_xarray(self) -> xarray.Dataset:
        """Return the case as a lazy xarray.Dataset with units and named dimensions."""
        from simgen.store.access.xarray_view import dataset_of

        self._check_accepted()
        arrays = {name: self[name] for name in self._group.array_keys()}
        return dataset_of(arrays, self.dataset.schema)

    def write(self, path: str | Path, step: int = -1) -> None:
        """Write cells, volumes, distances and one snapshot to a file, in the format of its suffix.

        The cells are points where the case has no mesh. Any format of meshio works, such as .vtu
        for ParaView.
        """
        import meshio

        from simgen.cell_shapes import cells_of

        transient = self.dataset.schema.transient
        fields = {
            field.name: np.asarray(self[field.name][step] if transient else self[field.name])
            for field in self.dataset.schema.fields
        }
        try:
            cells_of(self).filled({**self.constants(), **fields}).write(str(path))
        except (meshio.WriteError, meshio.ReadError, OSError) as error:
            raise InputError(f"{path} cannot be written: {error}") from error
