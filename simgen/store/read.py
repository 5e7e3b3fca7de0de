"""Read a dataset version: lazy, picklable, safe to share between threads.

ds = simgen.open_dataset("demo-run/store/cylinder-flow")     # the newest version, or version="v2"
case = ds[0]  # by position, or by id
case.points, case["velocity"][100:110], case.parameters  # reads only the chunks of a slice

A read returns the values that were written, or raises StoreError. Opening a version checks the
digest of its tables, opening a case its own, and every object of a case is checked against the
checksum on the case's record as it is read (`_CheckedStore`).
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
import zarr
from filelock import FileLock
from zarr.abc.buffer import Buffer, BufferPrototype
from zarr.abc.store import ByteRequest, Store
from zarr.storage import WrapperStore

import simgen.store.schema as layout
from simgen.case import CaseFamily
from simgen.cases import find_family
from simgen.cell_mesh import CellMesh, shape_of
from simgen.design_space import scaled
from simgen.errors import InputError, SimgenError, StoreError, did_you_mean
from simgen.moments import is_significant
from simgen.point_cloud import BoundaryCloud, PointCloud
from simgen.quantities import Quantity
from simgen.store.schema import CaseTable, MismatchError, Record, Schema
from simgen.store.split import LEFT_OUT, PUBLISHED, SPLITS, LeftOut, counts_of
from simgen.store.versions import (
    IsStoreError,
    VersionInfo,
    Versions,
    check_process,
    open_repository,
    translated,
)
from simgen.whole_file import whole_file

if TYPE_CHECKING:
    import pandas
    import xarray

logger = logging.getLogger(__name__)

#: Arrays of a case that are read at once: first reads of a case one after another took 1.7 times
#: as long from local disk.
THREADS = 16
#: What the details table has of a case besides its arrays.
DETAILS = ("gates", "log_tail", "provenance")
USUAL_CASES, USUAL_VALUES = 8, 400_000  # of the training, that stand for all; at most so many


def open_dataset(url: str | Path, version: str | None = None) -> Dataset:
    """Open a published version of the dataset at `url`, by default the newest.

    `url` is a local path or s3://bucket/prefix, of a dataset or of a store with one in it. Raises
    InputError for a dataset or version that does not exist, StoreError for a store that cannot be
    read or is damaged.
    """
    try:
        return Dataset(str(url), version)
    except IsStoreError as error:
        if len(error.datasets) > 1:
            raise
        return Dataset(error.datasets[0], version)


class Dataset:
    """One immutable version of a dataset.

    Pickles as its URL and version: each process opens its own connection.
    """

    def __init__(self, url: str, version: str | None = None) -> None:
        self.url = url
        self._repository = open_repository(url)
        found = Versions(self._repository, url)
        self.version = found.choose(version)
        self.info = found.read(self.version)
        self.snapshot_id = self.info.snapshot_id
        with translated(url, f"snapshot {self.snapshot_id}", self.version):
            self._root = found.root(self.version)
            self.schema = Schema.from_attrs(self._root.attrs, url)
            self.family: CaseFamily | None = None
            """Of the cases; None for imported ones, and where it is unknown here"""
            if self.schema.source is None:
                with contextlib.suppress(SimgenError):  # cases are readable without their family
                    self.family = find_family(self.schema.family, url)
            tables = {name: CaseTable(self._root, name).content() for name in ("design", "splits")}
            commit = {**self.info.metadata, "message": self.info.message}
            if layout.version_digest(self._root, tables, commit) != commit.get(layout.DIGEST):
                raise MismatchError("its tables or its record are not what was published")
            self.records = layout.read_design(self._root, tables["design"])
            """The row of every case in the design table: parameters, status, sizes, digest"""
            self._places = {case: row.pop("at") for case, row in self.records.items()}
            self.members = layout.read_splits(self._root, tables["splits"])
            """The split of every accepted case, in the order of publication"""
            self._details = CaseTable(self._root, "details")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.url, self.version)

    def __repr__(self) -> str:
        cases = f"{len(self)} case{'s' * (len(self) != 1)}"
        return f"<{self.schema.family} {self.version}: {cases} ({self.splits}) at {self.url}>"

    @functools.cached_property
    def computed(self) -> tuple[Quantity, ...]:
        """The quantities as they are computed of fields: the family's, or expressions."""
        if self.schema.source is not None:
            return tuple(each.quantity for each in self.schema.expressions())
        return self.family.quantities if self.family else ()

    @property
    def splits(self) -> str:
        """The numbers of cases of the splits: `5 train, 2 validation, 1 test`."""
        counts = counts_of(self.cases)
        if missing := len(self) - sum(counts.values()):
            counts["left out"] = missing
        return ", ".join(f"{count} {split}" for split, count in counts.items())

    def versions(self) -> list[VersionInfo]:
        """List all published versions, oldest first."""
        found = Versions(self._repository, self.url)
        return [found.read(name) for name in found.names]

    def check_moments(self) -> None:
        """Raise StoreError where the moments of cases are damaged, which the next version needs."""
        with translated(self.url, "statistics", self.version):
            list(CaseTable(self._root, "statistics").rows())

    def cases(self, split: str | None = None) -> list[str]:
        """List the ids of the accepted cases, or of one split, in the order of publication.

        A split is without `left_out_cases`, but for the test, which judges what there is.
        """
        if split is None:
            return list(self.members)
        if split not in SPLITS:
            raise InputError(f"split '{split}' is unknown; choose one of {', '.join(SPLITS)}")
        without = () if split == "test" else self.left_out_cases
        members = (case for case, member in self.members.items() if member == split)
        return [case for case in members if case not in without]

    def required(self, split: str, otherwise: str = "") -> list[str]:
        """List the ids of a split; InputError where it has no case, with `otherwise` a way out."""
        if not (cases := self.cases(split)):
            way_out = f"generate more cases, with --split {split} if need be"
            if self.schema.source is not None:
                way_out = f"import more cases, with the split {split} in the table --parameters"
            way_out += otherwise and f", or {otherwise}"
            raise InputError(f"{self.url} {self.version} has no {split} case; {way_out}")
        return cases

    @functools.cached_property
    def left_out_cases(self) -> tuple[str, ...]:
        """Cases that have nearly all variance of a field, such as diverged ones.

        They are in no statistics, and no split but the test has them.
        """
        return tuple(self.left_out(self.schema.fields[0].name).cases)

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[StoredCase]:
        return (self[case] for case in self.cases())

    def __getitem__(self, case: str | SupportsIndex) -> StoredCase:
        """Return a case by its id, or an accepted one by its position."""
        if not isinstance(case, str):
            case = self.cases()[case]
        if case not in self.records:
            how = did_you_mean(case, self.records) + f"`courant dataset show {self.url}` lists all"
            raise InputError(f"{self.url} {self.version} has no case {case}; {how}")
        return StoredCase(self, case)

    @functools.cached_property
    def design(self) -> pandas.DataFrame:
        """Parameters, status, split, sizes, wall time and quantities of all cases, by id."""
        import pandas

        rows = {}
        for case, record in self.records.items():
            row = {name: record.get(name) for name in layout.COLUMNS}
            rows[case] = {**record["parameters"], **row, "split": self.members.get(case)}
            # Not those of a case that is not accepted, or not any more.
            stored = record.get("quantities", {}) if record["status"] == "accepted" else {}
            for each in self.schema.quantities:
                rows[case][each.name] = float(stored.get(each.name, "nan"))
        return pandas.DataFrame.from_dict(rows, orient="index").rename_axis("case")

    def distances(self, parameters: Mapping[str, float]) -> dict[str, float]:
        """Return how far each accepted case is from a design, by id, the nearest first.

        It is the root mean square over the parameters, as a share of their ranges.
        """
        known = self.schema.parameters
        asked, scale = scaled(known, parameters), 2 * max(1, len(known)) ** 0.5
        away = {
            case: float(np.linalg.norm(scaled(known, self.records[case]["parameters"]) - asked))
            for case in self.members
        }
        return {case: away[case] / scale for case in sorted(away, key=away.__getitem__)}

    @functools.cached_property
    def quantity_statistics(self) -> dict[str, dict[str, float]]:
        """The training split's mean, std, min and max of each quantity."""
        names = [each.name for each in self.schema.quantities]
        of = self.design.loc[self.cases("train"), names]
        figures = {"mean": of.mean(), "std": of.std(ddof=0), "min": of.min(), "max": of.max()}
        return {name: {key: float(each[name]) for key, each in figures.items()} for name in names}

    @functools.cached_property
    def statistics(self) -> dict[str, dict[str, np.ndarray]]:
        """The training split's mean, std, min and max per component of each field."""
        return {
            field: {name: np.asarray(record[name]) for name in ("mean", "std", "min", "max")}
            for field, record in self.statistics_record.items()
        }

    @functools.cached_property
    def usual_values(self) -> dict[str, np.ndarray]:
        """Values (K, c) of each field at the end of some training cases."""
        cases = [self[case] for case in (self.cases("train") or self.cases())[:USUAL_CASES]]
        at = -1 if self.schema.transient else slice(None)
        found = {}
        for of in self.schema.fields:
            values = np.concatenate([np.asarray(case[of.name][at]) for case in cases])
            found[of.name] = values[:: 1 + len(values) // USUAL_VALUES]
        return found

    @functools.cached_property
    def usual_ends(self) -> dict[str, np.ndarray]:
        """The 5 and 95 % quantiles (2, c) of each field's usual values."""
        return {n: np.quantile(of, (0.05, 0.95), axis=0) for n, of in self.usual_values.items()}

    @functools.cached_property
    def statistics_record(self) -> dict[str, Any]:
        """Count, mean, std, min and max by field, and what they leave out, as stored."""
        return dict(self._root["statistics"].attrs["fields"])  # type: ignore[arg-type]

    def varying(self, field: str) -> tuple[str, ...]:
        """Return the components of a field that vary by more than noise over the training split."""
        measured = self.statistics[field]
        size = np.maximum(np.abs(measured["min"]), np.abs(measured["max"]))
        varies = is_significant(measured["std"], size)
        (components,) = (each.components for each in self.schema.fields if each.name == field)
        return tuple(components[number] for number in np.flatnonzero(varies))

    def left_out(self, field: str) -> LeftOut:
        """Return what the field's statistics leave out, because it has nearly all variance."""
        return LeftOut(**self.statistics_record[field].get(LEFT_OUT, {}))


class _CheckedStore(WrapperStore[Store]):
    """Check every object of one case against its record as it is read.

    Without it this damage stays silent: another chunk's content, valid in itself; a chunk that
    Icechunk's manifest does not name any more, which Zarr fills with zeros; other metadata.
    """

    def __init__(self, store: Store, dataset: Dataset, case: str, objects: Mapping[str, str]):
        super().__init__(store)
        self._case, self._objects, self._prefix = case, objects, f"cases/{case}/"
        self._url, self._version = dataset.url, dataset.version

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        name = key.removeprefix(self._prefix)
        array, _, chunk = name.removesuffix("/zarr.json").partition("/c/")
        part = "metadata" if name == "zarr.json" else f"array {array}"
        what = f"chunk {chunk}" if chunk else "its metadata"
        check_process(self._url)
        with translated(self._url, f"case {self._case}, {part},", self._version):
            content: Buffer | None = await self._store.get(key, prototype)
            expected = self._objects.get(name)
            if content is None:
                if expected is not None:
                    raise MismatchError(f"{what} is missing")
                return None
            if expected is None or layout.object_checksum(name, content) != expected:
                raise MismatchError(f"{what} is not what was written")
        return content if byte_range is None else await self._store.get(key, prototype, byte_range)


class Boundary:
    """A case's boundary cloud, with its fields by name; `patch` is an index of patch kinds.

    points (B, 3), normals (B, 3) out of the domain, areas (B,), patch (B,) u1.
    """

    def __init__(self, case: StoredCase) -> None:
        self._case = case
        faces = np.asarray(case["boundary/faces"])
        self.points, self.normals, self.areas = faces[:, :3], faces[:, 3:6], faces[:, 6]
        self.patch = faces[:, 7].astype(np.uint8)

    def __getitem__(self, field: str) -> zarr.Array:
        return self._case[f"boundary/{field}"]


class StoredCase:
    """One case of a version.

    Properties read whole arrays; `case[field]` is a lazy Zarr array (T, N, C) or (N, C).
    """

    def __init__(self, dataset: Dataset, case: str) -> None:
        self.dataset, self.id = dataset, case
        row = dataset.records[case]
        self.parameters: dict[str, float] = dict(row["parameters"])
        self.settings: dict[str, float] = dict(row["settings"])
        self.status: str = row["status"]
        self.reason: str = row["reason"]
        self.split: str | None = dataset.members.get(case)
        self.stated_split: str | None = row.get(PUBLISHED)
        """The split that the case's source or the request for it gave it; None where drawn"""
        self.patch_kinds = dataset.schema.patch_kinds
        own_grid = row.get("grid_shape")
        self.grid_shape = dataset.schema.grid_shape if own_grid is None else tuple(own_grid)
        """The shape of the points' regular grid, last axis fastest; None without one"""
        self.digest: str = row["digest"]
        """The digest of all that is stored of the case, however it is stored"""
        self._place = dataset._places[case]
        self._opened: dict[str, zarr.Array] = {}

    def __repr__(self) -> str:
        values = ", ".join(f"{name} {value:g}" for name, value in self.parameters.items())
        return f"<case {self.id}: {self.status}, {values}>"

    @functools.cached_property
    def _stored(self) -> tuple[Record, list[str], zarr.Group]:
        """The case's attributes, the names of its arrays, and its group, checked by its digest."""
        dataset = self.dataset
        check_process(dataset.url)
        with translated(dataset.url, f"case {self.id}", dataset.version):
            line = dataset._details.row(self._place)
            if line["case"] != self.id:
                raise MismatchError("its record is not what was written")
            store = _CheckedStore(dataset._root.store, dataset, self.id, line["objects"])
            group = zarr.open_group(store, path=f"cases/{self.id}", mode="r", zarr_format=3)
            attributes = {**dict(group.attrs), **{name: line[name] for name in DETAILS}}
            if layout.digest_case(attributes, line["arrays"]) != self.digest:
                raise MismatchError("its record is not what was written")
            return attributes, sorted(line["arrays"]), group

    @property
    def attributes(self) -> Record:
        """All that is stored besides arrays, from parameters and status to provenance."""
        return dict(self._stored[0])

    @property
    def provenance(self) -> dict[str, Any]:
        """Solver, versions, revision, mesh figures, residual history, wall times, host class."""
        return dict(self.attributes["provenance"])

    @property
    def gates(self) -> list[dict[str, Any]]:
        return list(self.attributes["gates"])

    @property
    def log_tail(self) -> str:
        return str(self.attributes["log_tail"])

    @property
    def num_points(self) -> int:
        return int(self["points"].shape[0])

    def __getitem__(self, name: str) -> zarr.Array:
        """Return an array, such as velocity or boundary/velocity; nothing is read."""
        if name in self._opened:  # a version does not change, and looking it up takes a millisecond
            return self._opened[name]
        self._check_accepted()
        _, names, group = self._stored
        if name not in names:
            raise InputError(f"case {self.id} has no array {name}; there are {', '.join(names)}")
        array = zarr.open_array(group.store, path=f"{group.path}/{name}", mode="r", zarr_format=3)
        return self._opened.setdefault(name, array)

    def arrays(self) -> list[str]:
        """List the names of the case's arrays; of a case that was not accepted, none."""
        return list(self._stored[1])

    def read(self, *names: str) -> dict[str, np.ndarray]:
        """Read several whole arrays at once by name, such as velocity and boundary/faces.

        Reads all of them if none is named, but for the mesh. Much faster from S3.
        """
        wanted = names or layout.array_names(self.dataset.schema)
        _ = self._stored  # once, before all threads look for it
        with ThreadPoolExecutor(min(THREADS, len(wanted))) as threads:
            arrays = threads.map(lambda name: np.asarray(self[name]), wanted)
            return dict(zip(wanted, arrays, strict=True))

    def _check_accepted(self) -> None:
        if self.status != "accepted":
            raise InputError(f"case {self.id} was {self.status} and has no arrays: {self.reason}")

    @property
    def points(self) -> np.ndarray:
        return np.asarray(self["points"])

    @property
    def volumes(self) -> np.ndarray:
        return np.asarray(self["volumes"])

    @functools.cached_property
    def _distance_field(self) -> np.ndarray:
        return np.asarray(self["distance_field"][:])

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
        if "mesh_cells" not in self.arrays():
            return None
        return CellMesh(np.asarray(self["mesh_points"]), np.asarray(self["mesh_cells"]))

    @functools.cached_property
    def boundary(self) -> Boundary:
        """The boundary cloud; InputError in a dataset whose schema has none."""
        if not self.dataset.schema.boundary:
            raise InputError(f"{self.dataset.url}: cases have no boundary cloud")
        self._check_accepted()
        return Boundary(self)

    def cloud(
        self, fields: Mapping[str, np.ndarray], times: np.ndarray | None = None
    ) -> PointCloud:
        """Return fields, solved or predicted, on the cells and the boundary, without distances."""
        kinds, boundary = self.patch_kinds, None
        if self.dataset.schema.boundary:
            faces = self.boundary
            boundary = BoundaryCloud(faces.points, faces.normals, faces.areas, faces.patch)
        volumes = self.volumes if self.dataset.schema.volumes else None
        return PointCloud(self.points, volumes, None, None, kinds, times, fields, boundary)

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
        import xarray

        self._check_accepted()
        schema, group = self.dataset.schema, self._stored[2]
        opened = xarray.open_zarr(
            group.store, group=group.path, consolidated=False, chunks=None, decode_cf=False
        ).drop_attrs(deep=False)
        named = {f"{field.name}_component": list(field.components) for field in schema.fields}
        if schema.measured_kinds:
            named["patch_kind"] = list(schema.measured_kinds)
            field = opened["distance_field"]
            opened = opened.assign(
                distance=field[..., 0], direction=field[..., 1:].rename(distance_column="axis")
            ).drop_vars("distance_field")
        return opened.assign_coords(named)

    def write(self, path: str | Path, step: int = -1) -> None:
        """Write cells, volumes, distances and one snapshot to a file of any format of meshio.

        The cells are points where the case has no mesh.
        """
        import meshio

        transient = self.dataset.schema.transient
        fields = {
            field.name: np.asarray(self[field.name][step] if transient else self[field.name])
            for field in self.dataset.schema.fields
        }
        try:
            shape = shape_of(self.mesh, self.points)
            shape.filled({**self.constants(), **fields}).write(str(path))
        except (meshio.WriteError, meshio.ReadError, OSError) as error:
            raise InputError(f"{path} cannot be written: {error}") from error


# The local cache.

#: Maps that a process keeps open; opening one takes as long as reading a window.
MOST_OPEN = 256


class LocalCache:
    """Decoded arrays of cases under `folder`, at most `max_bytes` of them.

    Arrays are read and decoded once, and memory-mapped from then on. A file is one array of one
    case, named by the case's id and digest: versions of a dataset share it. It appears complete or
    not at all, so that any number of processes may share a folder. Whoever adds a file removes the
    least recently used ones, under a lock. What another process has mapped stays readable to it.
    """

    def __init__(self, folder: str | Path, max_bytes: int) -> None:
        self.folder, self.max_bytes = Path(folder).expanduser(), max_bytes
        self._open = functools.lru_cache(MOST_OPEN)(_mapped)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.folder, self.max_bytes)

    def arrays(self, case: StoredCase, *names: str) -> dict[str, np.ndarray]:
        """Return arrays of a case by name, read-only; read missing ones together.

        An array larger than the whole cache is returned without being kept. StoreError where the
        folder cannot be used.
        """
        start = f"{case.id}-{case.digest}"
        paths = {name: self.folder / f"{start}-{name.replace('/', '.')}.npy" for name in names}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            found = {name: self._find(path) for name, path in paths.items()}
            missing = [name for name, values in found.items() if values is None]
            for name, values in (case.read(*missing) if missing else {}).items():
                self._add(paths[name], values)
                kept = self._find(paths[name])
                found[name] = values if kept is None else kept
        except OSError as error:
            raise StoreError(
                f"cache {self.folder} cannot be used ({error.strerror or error}): choose another"
                " folder or make room on its disk"
            ) from error
        return {name: values for name, values in found.items() if values is not None}

    def _find(self, path: Path) -> np.ndarray | None:
        """Return a file's array and mark it as used; None where there is no such file."""
        try:
            _mark_used(path)
            return self._open(path, path.stat().st_ino)
        except FileNotFoundError:  # or removed by another process since
            return None
        except (ValueError, EOFError) as error:
            logger.warning("%s is damaged and removed: %s", path, error)
            path.unlink(missing_ok=True)
            return None

    def _add(self, path: Path, values: np.ndarray) -> None:
        if not values.size or values.nbytes > self.max_bytes:
            return
        with contextlib.ExitStack() as until_there, whole_file(path) as part:
            np.save(part, values)
            _mark_used(part)
            lock = FileLock(self.folder / ".lock", mode=0o666, poll_interval=0.005)
            until_there.enter_context(lock)
            files, held = [], part.stat().st_size
            for each in self.folder.glob("[!.]*.npy"):
                with contextlib.suppress(FileNotFoundError):
                    status = each.stat()
                    files.append((status.st_mtime_ns, status.st_size, each))
                    held += status.st_size
            for _, num_bytes, each in sorted(files):
                if held > self.max_bytes:
                    each.unlink(missing_ok=True)
                    held -= num_bytes


def _mapped(path: Path, inode: int) -> np.ndarray:
    return np.asarray(np.load(path, mmap_mode="r"))


def _mark_used(path: Path) -> None:
    now = time.time_ns()  # the kernel's own are coarse: uses would look alike
    os.utime(path, ns=(now, now))
