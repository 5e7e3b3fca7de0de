"""Export a version: as plain Zarr v3, which `zarr` and `s3fs` alone can read, or for ParaView.

Notable properties:
- What is copied is checked: chunks by their checksums, each case by its digest.
- The root's metadata, which include those of all nodes, are written last: until then there is no
  Zarr group at the target, so that an interrupted export cannot be taken for a complete one. The
  same command continues with the cases that are missing.
- Tables over cases are kept in the attributes of `design`, `splits` and `statistics`, a case's
  parameters and status in those of its group. Its gates, log and provenance are JSON text in an
  array of bytes, `provenance`: as attributes they would all be part of the root's metadata, which
  each opening reads.

For ParaView, the fluid's points and the boundary's faces are written with all fields:

    <folder>/<id>.vtu, <id>_boundary.vtu                        a steady case
    <folder>/<id>.pvd, <id>_boundary.pvd and <id>/*.vtu         a transient case: open the .pvd,
                                                                which knows the times

A case without a mesh on record has points in place of cells: show them as Point Gaussian, or
through ParaView's Delaunay and Point Volume Interpolator filters. A collection (.pvd) is written
after its files, and a file under another name until it is complete.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np
import zarr
from botocore.exceptions import BotoCoreError
from zarr.abc.store import Store
from zarr.codecs import ZstdCodec
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.errors import NodeNotFoundError
from zarr.storage import FsspecStore, LocalStore

from simgen.cell_shapes import Shape, cells_of, faces_of
from simgen.errors import InputError, StoreError
from simgen.store.local_files import local_path
from simgen.store.read import Dataset, StoredCase
from simgen.store.repository import explain
from simgen.store.schema import ArrayDigest
from simgen.whole_file import whole_file

THREADS = 8
#: Marks a target as an unfinished export, and says of what.
MARKER = "export.json"
METADATA = "zarr.json"
DETAILS = ("gates", "log_tail", "provenance")
Json = dict[str, Any]


@dataclass(frozen=True)
class Exported:
    """The result of an export.

    `num_copied` cases were copied by this call, the others by an earlier one.
    """

    target: str
    num_cases: int
    num_copied: int
    num_bytes: int
    """Decoded bytes"""


def export(
    dataset: Dataset,
    target: str | Path,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Exported:
    """Write the dataset's version to `target`, a local path or s3://bucket/prefix.

    The target is empty or holds an unfinished export of the same version. `on_progress` gets the
    cases done and in total. Raises InputError for a target that holds anything else, StoreError
    where the target cannot be written or the dataset cannot be read or is damaged.
    """
    if str(target).rstrip("/") == "s3:":
        raise InputError(f"export target {target} names no bucket; write s3://bucket/prefix")
    url = str(target).rstrip("/")
    try:
        return _export(dataset, url, _open_target(url), on_progress)
    except (OSError, BotoCoreError) as error:
        raise StoreError(_unwritable(url, error)) from error


def _export(
    dataset: Dataset, url: str, store: Store, on_progress: Callable[[int, int], None]
) -> Exported:
    origin = {
        "dataset": dataset.url,
        "version": dataset.version,
        "snapshot_id": dataset.snapshot_id,
    }
    cases = [dataset[case] for case in dataset.cases()]
    num_bytes = int(dataset.design["num_bytes"].sum())
    if _claim(store, url, origin):
        return Exported(url, len(cases), 0, num_bytes)
    nodes: dict[str, Json] = {}
    copied = 0
    with ThreadPoolExecutor(THREADS, thread_name_prefix="export") as threads:
        pending = [threads.submit(_export_case, case, store) for case in cases]
        try:
            for done, future in enumerate(as_completed(pending), start=1):
                of_case, is_new = future.result()
                nodes |= of_case
                copied += is_new
                on_progress(done, len(cases))
        except BaseException:
            threads.shutdown(cancel_futures=True)
            raise
    _write_root(store, dataset, origin, nodes)
    return Exported(url, len(cases), copied, num_bytes)


def _open_target(url: str) -> Store:
    if url.startswith("s3://"):
        return FsspecStore.from_url(url)
    if "://" in url:
        raise InputError(
            f"export target {url} is of no known kind; use a local path or s3://bucket/prefix"
        )
    return LocalStore(local_path(url))


def _claim(store: Store, url: str, origin: Json) -> bool:
    """Claim the target; return True if it already is a complete export of this version."""
    root = _read_json(store, METADATA)
    if root is not None and root.get("attributes", {}).get("export") == origin:
        return True
    marker = _read_json(store, MARKER)
    if marker == origin:
        return False
    if marker is not None and root is None:
        raise InputError(
            f"{url} holds an unfinished export of {marker.get('dataset')} {marker.get('version')}: "
            "choose another target, or delete it first"
        )
    if root is not None or not sync(store.is_empty("")):
        raise InputError(
            f"{url} is not empty: choose another target, or delete what is there first"
        )
    _write_json(store, MARKER, origin)
    return False


def _export_case(case: StoredCase, store: Store) -> tuple[dict[str, Json], bool]:
    """Return the metadata of a case's nodes by path, and whether it had to be copied."""
    path = f"cases/{case.id}"
    written = _read_json(
        store, f"{path}/{METADATA}"
    )  # its group comes last, so a case that has one is complete
    arrays = {name: case[name] for name in case.arrays()}
    nodes = {f"{path}/{name}": _array_metadata(array) for name, array in arrays.items()}
    if case.dataset.schema.boundary:
        nodes[f"{path}/boundary"] = _group({})
    attributes = case.attributes
    details = {name: attributes[name] for name in DETAILS}
    short = {name: value for name, value in attributes.items() if name not in DETAILS}
    nodes[path] = _group({**short, "split": case.split, "digest": case.digest})
    nodes[f"{path}/provenance"] = _text_metadata(details)
    if written == nodes[path]:
        return nodes, False
    digests = {
        name: _copy(array, name, store, f"{path}/{name}", nodes[f"{path}/{name}"])
        for name, array in arrays.items()
    }
    if digests != case.array_digests:
        raise StoreError(
            f"{case.dataset.url} {case.dataset.version}: case {case.id} is not what was written"
            " (its digest differs); restore the store from a copy"
        )
    if f"{path}/boundary" in nodes:
        _write_json(store, f"{path}/boundary/{METADATA}", nodes[f"{path}/boundary"])
    _write_json(store, f"{path}/provenance/{METADATA}", nodes[f"{path}/provenance"])
    zarr.open_array(store, path=f"{path}/provenance", mode="r+")[...] = _text(details)
    _write_json(store, f"{path}/{METADATA}", nodes[path])
    return nodes, True


def _copy(array: zarr.Array, name: str, store: Store, path: str, metadata: Json) -> str:
    """Copy an array in rows of chunks, keeping its codecs and chunks; return its digest."""
    _write_json(store, f"{path}/{METADATA}", metadata)
    target = zarr.open_array(store, path=path, mode="r+")
    digest = ArrayDigest(name, array.shape, array.dtype, str(array.attrs.get("unit", "")))
    rows = (array.shards or array.chunks)[0]
    for begin in range(0, array.shape[0], rows):
        block = np.asarray(array[begin : begin + rows])
        target[begin : begin + rows] = block
        digest.update(block)
    return digest.hexdigest()


def _write_root(store: Store, dataset: Dataset, origin: Json, nodes: dict[str, Json]) -> None:
    """Write the groups above the cases, then the root with all metadata in it."""
    above: dict[str, Json] = {
        "cases": {},
        "design": {"cases": dataset.records},
        "splits": {"members": dataset.members},
        "statistics": {"fields": dataset.statistics_record},
    }
    for name, attributes in above.items():
        nodes[name] = _group(attributes)
        _write_json(store, f"{name}/{METADATA}", nodes[name])
    root = _group({**dataset.schema.to_attrs(), "export": origin})
    root["consolidated_metadata"] = {
        "kind": "inline",
        "must_understand": False,
        "metadata": dict(sorted(nodes.items())),
    }
    _write_json(store, METADATA, root)


def _group(attributes: Json) -> Json:
    return {"zarr_format": 3, "node_type": "group", "attributes": attributes}


def _array_metadata(array: zarr.Array) -> Json:
    document: Json = json.loads(
        array.metadata.to_buffer_dict(default_buffer_prototype())[METADATA].to_bytes()
    )
    return document


def _text(content: Json) -> np.ndarray:
    return np.frombuffer(json.dumps(content).encode(), np.uint8)


def _text_metadata(content: Json) -> Json:
    """Return the metadata of an array of bytes in one chunk."""
    array = zarr.create_array(
        {},
        shape=(len(_text(content)),),
        dtype="u1",
        chunks=(len(_text(content)),),
        compressors=[ZstdCodec(level=3)],
        attributes={"content": "JSON in UTF-8: gates, log_tail, provenance"},
        dimension_names=["byte"],
    )
    return _array_metadata(array)


def _read_json(store: Store, key: str) -> Json | None:
    content = sync(store.get(key, default_buffer_prototype()))
    if content is None:
        return None
    try:
        document: Json = json.loads(content.to_bytes())
    except ValueError:
        return {}  # something is there, and it is none of ours
    return document


def _write_json(store: Store, key: str, document: Json) -> None:
    sync(
        store.set(key, default_buffer_prototype().buffer.from_bytes(json.dumps(document).encode()))
    )


def _unwritable(url: str, error: OSError | BotoCoreError) -> str:
    if isinstance(error, NodeNotFoundError):
        return f"export target {url} changed while it was written: export again"
    if url.startswith("s3://"):
        return explain(url, str(error))
    return (
        f"export target {url} cannot be written: {getattr(error, 'strerror', None) or error}; make"
        " room or choose another, and export again"
    )


def export_vtu(
    dataset: Dataset,
    folder: str | Path,
    cases: list[str] | None = None,
    every: int = 1,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Path]:
    """Write `cases` (default: all accepted), every n-th snapshot of each; return the files to open.

    Raises InputError for a case that does not exist or was not accepted, for two whose files would
    have the same name, and for a folder that cannot be written.
    """
    chosen = [dataset[case] for case in (dataset.cases() if cases is None else cases)]
    refused = [case for case in chosen if case.status != "accepted"]
    if refused:
        raise InputError(
            f"case {refused[0].id} was {refused[0].status} and has no fields: {refused[0].reason}"
        )
    _check_names(dataset, [case.id for case in chosen])
    written, place = [], local_path(str(folder))
    try:
        place.mkdir(parents=True, exist_ok=True)
        for done, case in enumerate(chosen, start=1):
            written += _write_case(case, place, every)
            on_progress(done, len(chosen))
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror or error}") from error
    return written


def _check_names(dataset: Dataset, cases: list[str]) -> None:
    """InputError where the boundary of one case would overwrite another case."""
    if not dataset.schema.boundary:
        return
    for case in cases:
        if (other := f"{case}_boundary") in cases:
            raise InputError(
                f"cases {case} and {other} would both write {other}: export one at a time, each"
                " into a folder of its own"
            )


@dataclass(frozen=True)
class _Cloud:
    """Cells or faces with everything that does not change with time, and the fields."""

    shape: Shape
    fixed: Mapping[str, np.ndarray]
    fields: Mapping[str, zarr.Array]


def _clouds(case: StoredCase) -> dict[str, _Cloud]:
    """Yield a case's points, and its boundary's if there is one, by the name of their files."""
    schema = case.dataset.schema
    fields = {field.name: case[field.name] for field in schema.fields}
    clouds = {case.id: _Cloud(cells_of(case), case.constants(), fields)}
    if schema.boundary:
        boundary = case.boundary
        clouds[f"{case.id}_boundary"] = _Cloud(
            faces_of(case, boundary.points),
            {"normal": boundary.normals, "area": boundary.areas, "patch": boundary.patch},
            {field.name: boundary[field.name] for field in schema.boundary_fields},
        )
    return clouds


def _write_case(case: StoredCase, folder: Path, every: int) -> list[Path]:
    clouds = _clouds(case)
    if case.time is None:
        for name, cloud in clouds.items():
            fields = {key: np.asarray(of[:]) for key, of in cloud.fields.items()}
            _write(folder / f"{name}.vtu", cloud.shape, {**cloud.fixed, **fields})
        return [folder / f"{name}.vtu" for name in clouds]
    (folder / case.id).mkdir(exist_ok=True)
    steps = range(0, len(case.time), every)
    for name, cloud in clouds.items():
        whole = {key: np.asarray(of[:]) for key, of in cloud.fields.items()}
        files = [f"{case.id}/{name}_{step:05d}.vtu" for step in steps]
        for step, file in zip(steps, files, strict=True):
            at_step = {key: values[step] for key, values in whole.items()}
            _write(folder / file, cloud.shape, {**cloud.fixed, **at_step})
        times = case.time[steps.start :: every].tolist()
        _write_collection(folder / f"{name}.pvd", dict(zip(files, times, strict=True)))
    return [folder / f"{name}.pvd" for name in clouds]


def _write(path: Path, shape: Shape, data: Mapping[str, np.ndarray]) -> None:
    with whole_file(path) as part:
        shape.filled(data).write(str(part), file_format="vtu")


def _write_collection(path: Path, files: Mapping[str, float]) -> None:
    with whole_file(path) as part:
        write_collection(part, files)


def write_collection(path: Path, files: Mapping[str, float]) -> None:
    """Write a .pvd file, which names files relative to itself and the time of each, in seconds."""
    entries = "\n".join(
        f'  <DataSet timestep="{time!r}" file={quoteattr(file)}/>' for file, time in files.items()
    )
    path.write_text(
        '<?xml version="1.0"?>\n<VTKFile type="Collection" version="0.1">\n'
        f" <Collection>\n{entries}\n </Collection>\n</VTKFile>\n"
    )
