"""Reading a dataset version: lazy, picklable, safe to share between threads.

ds = simgen.open_dataset("demo-run/store/cylinder-flow")            # the newest version; version="v2" for another
case = ds[0]                                                         # by position, or by id
case.points, case["velocity"][100:110], case.parameters              # slices in time read only their chunks
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr

from simgen.errors import InputError, SimgenError, StoreError
from simgen.store import schema_1
from simgen.store.case_seal import CaseSeal, SealedStore
from simgen.store.checked_array import CheckedArray, Place, opening
from simgen.store.damage import DamageError, describe_metadata_damage, panics_as_errors
from simgen.store.layout import Schema, array_names
from simgen.store.read_arrays import read_arrays
from simgen.store.repository import explain, open_repository
from simgen.store.split import SPLITS
from simgen.store.tables import SealReader, parse_design, parse_splits, read_details
from simgen.store.unsealed_case import check_unsealed
from simgen.store.version_seal import check_version, read_sealed_tables
from simgen.store.versions import (
    VersionInfo,
    choose_version,
    list_versions,
    read_references,
    read_version,
    version_problems,
)

if TYPE_CHECKING:
    import pandas
    import xarray


def open_dataset(url: str | Path, version: str | None = None) -> Dataset:
    """A published version of the dataset at `url` (a local path or s3://bucket/prefix); the newest where none is named.

    Raises InputError for a dataset or version that does not exist, StoreError for a store that cannot be read or
    a version whose tables are not what was published.
    """
    return _opened(str(url), version)


def open_unchecked(url: str | Path, version: str | None = None) -> Dataset:
    """The same, whatever its tables say: for `verify`, which names what is wrong with them."""
    return Dataset(str(url), version)


def _opened(url: str, version: str | None, *, snapshot_id: str | None = None) -> Dataset:
    dataset = Dataset(url, version, snapshot_id=snapshot_id)
    dataset.check()
    for problem in dataset._references.lost_tags(url) if version is None else ():
        warnings.warn(problem, stacklevel=3)
    return dataset


class Dataset:
    """One immutable version of a dataset. Pickles as its URL and snapshot: each process opens its own connection."""

    def __init__(self, url: str, version: str | None = None, *, snapshot_id: str | None = None) -> None:
        self.url = url
        repository = self._repository = open_repository(url)
        self._references = read_references(repository, url)
        self.version = choose_version(self._references, url, version)
        self.info = read_version(repository, url, self.version)
        self.snapshot_id = self.info.snapshot_id
        if snapshot_id not in (None, self.snapshot_id):
            raise StoreError(
                f"{url}: {self.version} is not the version that was opened before; was the store replaced?"
            )
        try:
            with panics_as_errors():
                session = repository.readonly_session(snapshot_id=self.snapshot_id)
                self._root = zarr.open_group(session.store, mode="r")
                self.schema = Schema.from_attrs(self._root.attrs, url)
                self._tables = {} if schema_1.is_schema_1(self._root) else read_sealed_tables(self._root)
                self._records, self._members = self._read_tables()
        except SimgenError:
            raise
        except Exception as error:
            # Whatever Icechunk, Zarr and the schema make of bytes that are no longer those written.
            raise self._unreadable(error) from error

    @functools.cached_property
    def _seals(self) -> SealReader:
        return SealReader(self._root)

    def _read_tables(self) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
        if not self._tables:
            return schema_1.read_design(self._root), schema_1.read_splits(self._root)
        design, splits = self._tables["design"], self._tables["splits"]
        return parse_design(design, self._root), parse_splits(splits, self._root)

    def check(self) -> None:
        """Hold the version's tables against its seal, as every opening does; StoreError where they differ."""
        commit = {**self.info.metadata, "message": self.info.message}
        try:
            check_version(self._root, self._tables, self._records, self._members, commit)
        except Exception as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> StoreError:
        what = describe_metadata_damage(error)
        if what is None:
            return StoreError(explain(self.url, str(error)))
        return DamageError(what, self.url, self.version, f"snapshot {self.snapshot_id}")

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(_opened, snapshot_id=self.snapshot_id), (self.url, self.version)

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(self.cases(split))} {split}" for split in SPLITS)
        return f"<{self.schema.family} {self.version}: {len(self)} cases ({counts}) at {self.url}>"

    def problems(self) -> list[str]:
        """What is wrong with the references to the dataset's versions, a line each."""
        return version_problems(self._repository, self.url)

    def versions(self) -> list[VersionInfo]:
        """All published versions, oldest first."""
        return list_versions(self._repository, self.url)

    def cases(self, split: str | None = None) -> list[str]:
        """Ids of the accepted cases, in the order of their publication; of one split where it is named."""
        if split is None:
            return list(self._members)
        if split not in SPLITS:
            raise InputError(f"split '{split}' is unknown; choose one of {', '.join(SPLITS)}")
        return [case for case, member in self._members.items() if member == split]

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[StoredCase]:
        return (self[case] for case in self.cases())

    def __getitem__(self, case: str | int) -> StoredCase:
        """A case by its id, or an accepted one by its position."""
        if isinstance(case, int):
            ids = self.cases()
            if not -len(ids) <= case < len(ids):
                raise IndexError(f"{self.url} {self.version} has {len(ids)} cases, there is no case {case}")
            case = ids[case]
        if case not in self._records:
            raise InputError(f"{self.url} {self.version} has no case {case}; `courant dataset show` lists them")
        return StoredCase(self, case)

    @functools.cached_property
    def design(self) -> pandas.DataFrame:
        """A table of all cases, rejected and failed ones included: parameters, status, reason, split, sizes, wall time."""
        import pandas

        rows = {
            case: {
                **record["parameters"],
                "status": record["status"],
                "reason": record["reason"],
                "split": self._members.get(case),
                "num_points": record.get("num_points"),
                "num_snapshots": record.get("num_snapshots"),
                "num_bytes": record.get("num_bytes"),
                "wall_time_s": record["wall_time_s"],
            }
            for case, record in self._records.items()
        }
        return pandas.DataFrame.from_dict(rows, orient="index").rename_axis("case")

    @functools.cached_property
    def statistics(self) -> dict[str, dict[str, np.ndarray]]:
        """Of the training split, per component: mean, std, min, max of every field, and of the points."""
        stored: Mapping[str, Any] = self._root["statistics"].attrs["fields"]  # type: ignore[assignment]
        return {
            field: {name: np.asarray(record[name]) for name in ("mean", "std", "min", "max")}
            for field, record in stored.items()
        }


class Boundary:
    """A case's boundary cloud: points (B, 3), normals (B, 3), areas (B,), patch (B,), and fields by name."""

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
    """One case of a version. Properties read whole arrays; `case[field]` is a lazy Zarr array (T, N, C) or (N, C)."""

    def __init__(self, dataset: Dataset, case: str) -> None:
        self.dataset, self.id = dataset, case
        self._record = dataset._records[case]

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
        """Whether the case was written in the arrays of schema version 1; an upgraded dataset holds both kinds."""
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
        """Solver, versions, source revision, mesh figures, residual history, wall times, host class."""
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
    def num_points(self) -> int:
        return int(self["points"].shape[0])

    def __getitem__(self, field: str) -> zarr.Array:
        if self.status != "accepted":
            raise InputError(f"case {self.id} was {self.status} and has no arrays: {self.reason}")
        return self._array(self._group, field)

    def read(self, *names: str) -> dict[str, np.ndarray]:
        """Several arrays at once, whole, by name, such as velocity and boundary/faces; all of them where none is named.

        Faster than one after the other, from S3 above all.
        """
        if self.status != "accepted":
            raise InputError(f"case {self.id} was {self.status} and has no arrays: {self.reason}")
        known = schema_1.array_names if self.is_schema_1 else array_names
        wanted = names or known(self.dataset.schema)
        return read_arrays(self._group, {name: self._place(name) for name in wanted})

    def _array(self, group: zarr.Group, name: str) -> CheckedArray:
        place = self._place(f"{group.name}/{name}".removeprefix(f"/{self._group.path}/"))
        with opening(place):
            try:
                array = group[name]
            except KeyError:
                raise InputError(
                    f"{group.name} has no array {name}; there are {', '.join(sorted(group.array_keys()))}"
                ) from None
            if not isinstance(array, zarr.Array):
                raise InputError(f"{group.name}/{name} is no array but a group")
            return CheckedArray(array, place)

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
        """(N, K) m to the nearest face of each patch kind."""
        return self._distance_field[..., 0]

    @property
    def direction(self) -> np.ndarray:
        """(N, K, 3) unit vectors to these faces."""
        return self._distance_field[..., 1:]

    @property
    def time(self) -> np.ndarray | None:
        return np.asarray(self["time"]) if self.dataset.schema.transient else None

    @property
    def boundary(self) -> Boundary:
        with opening(self._place("boundary")):
            group = self._group["boundary"]
            assert isinstance(group, zarr.Group)
            return Boundary(self, group)

    def to_xarray(self) -> xarray.Dataset:
        """The case as an xarray.Dataset, lazy, with units and named dimensions."""
        from simgen.store.xarray_view import lazy_dataset

        opened = lazy_dataset({name: self[name] for name in self._group.array_keys()})
        named = {f"{field.name}_component": list(field.components) for field in self.dataset.schema.fields}
        if not self.is_schema_1:
            field = opened["distance_field"]
            opened = opened.assign(distance=field[..., 0], direction=field[..., 1:].rename(distance_column="axis"))
            opened = opened.drop_vars("distance_field")
        return opened.assign_coords({**named, "patch_kind": list(self.patch_kinds)})

    def write(self, path: str | Path, step: int = -1) -> None:
        """Write points, volumes, distances and one snapshot to a file that meshio knows by its suffix (.vtu for ParaView)."""
        import meshio

        from simgen.store.vtk_points import constant_arrays, point_mesh

        transient = self.dataset.schema.transient
        fields = {
            field.name: np.asarray(self[field.name][step] if transient else self[field.name])
            for field in self.dataset.schema.fields
        }
        try:
            constant = constant_arrays(self.volumes, self.distance, self.patch_kinds)
            point_mesh(self.points, {**constant, **fields}).write(str(path))
        except (meshio.WriteError, meshio.ReadError, OSError) as error:
            raise InputError(f"{path} cannot be written: {error}") from error
