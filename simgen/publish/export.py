"""Export a version: as plain Zarr v3, which `zarr` and `s3fs` alone can read, or for ParaView.

The root's metadata, which include those of all nodes, are written last: until then there is no Zarr
group at the target, so that an interrupted export cannot be taken for a complete one. The same
command continues with the cases that are missing. Tables over cases are attributes of `design`,
`splits` and `statistics`. Gates, log and provenance of a case are JSON text in an array of bytes,
`provenance`: as attributes they would all be part of the root's metadata.

For ParaView, the fluid's points and the boundary's faces are written with all fields:

    <folder>/<id>.vtu, <id>_boundary.vtu                        a steady case
    <folder>/<id>.pvd, <id>_boundary.pvd and <id>/*.vtu         a transient case: open the .pvd,
                                                                which knows the times
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
from zarr.storage import FsspecStore, LocalStore

from simgen.cell_mesh import Shape, cells_of, faces_of
from simgen.errors import InputError, StoreError
from simgen.store.read import DETAILS, Dataset, StoredCase
from simgen.store.versions import explain
from simgen.whole_file import local_path, whole_file

THREADS = 8
#: Marks a target as an unfinished export, with what it is of.
MARKER = "export.json"
METADATA = "zarr.json"
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
    if "://" in url and not url.startswith("s3://"):
        raise InputError(
            f"export target {url} is of no known kind; use a local path or s3://bucket/prefix"
        )
    origin = {
        "dataset": dataset.url,
        "version": dataset.version,
        "snapshot_id": dataset.snapshot_id,
    }
    cases = [dataset[case] for case in dataset.cases()]
    num_bytes = int(dataset.design["num_bytes"].sum())
    nodes: dict[str, Json] = {}
    copied = 0
    try:
        store = FsspecStore.from_url(url) if "://" in url else LocalStore(local_path(url))
        if _claim(store, url, origin):
            return Exported(url, len(cases), 0, num_bytes)
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
    except (OSError, BotoCoreError) as error:
        if "://" in url:
            raise StoreError(explain(url, str(error))) from error
        raise StoreError(
            f"export target {url} cannot be written: {getattr(error, 'strerror', None) or error};"
            " make room or choose another, and export again"
        ) from error
    return Exported(url, len(cases), copied, num_bytes)


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
    """Return the metadata of a case's nodes by path, and whether it was copied now."""
    path = f"cases/{case.id}"
    arrays = {name: case[name] for name in case.arrays()}
    nodes = {f"{path}/{name}": _array_metadata(array) for name, array in arrays.items()}
    if case.dataset.schema.boundary:
        nodes[f"{path}/boundary"] = _group({})
    attributes = case.attributes
    details = json.dumps({name: attributes.pop(name) for name in DETAILS}).encode()
    nodes[path] = _group({**attributes, "split": case.split, "digest": case.digest})
    text = zarr.create_array(
        {},
        shape=(len(details),),
        dtype="u1",
        chunks=(len(details),),
        compressors=[ZstdCodec(level=3)],
        attributes={"content": "JSON in UTF-8: gates, log_tail, provenance"},
        dimension_names=["byte"],
    )
    nodes[f"{path}/provenance"] = _array_metadata(text)
    # The case's group comes last, so a case that has one is complete.
    if _read_json(store, f"{path}/{METADATA}") == nodes[path]:
        return nodes, False
    for node, metadata in nodes.items():
        if node != path:
            _write_json(store, f"{node}/{METADATA}", metadata)
    for name, array in arrays.items():
        target = zarr.open_array(store, path=f"{path}/{name}", mode="r+")
        for begin in range(0, array.shape[0], array.chunks[0]):
            rows = slice(begin, begin + array.chunks[0])
            target[rows] = np.asarray(array[rows])
    written = zarr.open_array(store, path=f"{path}/provenance", mode="r+")
    written[...] = np.frombuffer(details, np.uint8)
    _write_json(store, f"{path}/{METADATA}", nodes[path])
    return nodes, True


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
    for case in chosen:
        if case.status != "accepted":
            raise InputError(f"case {case.id} was {case.status} and has no fields: {case.reason}")
        # The boundary of one case would overwrite another case.
        if dataset.schema.boundary and any(f"{case.id}_boundary" == other.id for other in chosen):
            raise InputError(
                f"cases {case.id} and {case.id}_boundary would both write {case.id}_boundary:"
                " export one at a time, each into a folder of its own"
            )
    schema, written, place = dataset.schema, [], local_path(str(folder))
    try:
        place.mkdir(parents=True, exist_ok=True)
        for done, case in enumerate(chosen, start=1):
            constants, fields = case.constants(), {f.name: case[f.name] for f in schema.fields}
            clouds = [(case.id, cells_of(case), constants, fields)]
            if schema.boundary:
                boundary = case.boundary
                constants = {
                    "normal": boundary.normals,
                    "area": boundary.areas,
                    "patch": boundary.patch,
                }
                fields = {field.name: boundary[field.name] for field in schema.boundary_fields}
                shape = faces_of(case, boundary.points)
                clouds.append((f"{case.id}_boundary", shape, constants, fields))
            for name, shape, constants, arrays in clouds:
                whole = {key: np.asarray(array[:]) for key, array in arrays.items()}
                if case.time is None:
                    _write(place / f"{name}.vtu", shape, {**constants, **whole})
                    written.append(place / f"{name}.vtu")
                    continue
                (place / case.id).mkdir(exist_ok=True)
                times = {}
                for step in range(0, len(case.time), every):
                    file = f"{case.id}/{name}_{step:05d}.vtu"
                    at_step = {key: values[step] for key, values in whole.items()}
                    _write(place / file, shape, {**constants, **at_step})
                    times[file] = float(case.time[step])
                with whole_file(place / f"{name}.pvd") as part:
                    write_collection(part, times)
                written.append(place / f"{name}.pvd")
            on_progress(done, len(chosen))
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror or error}") from error
    return written


def _write(path: Path, shape: Shape, data: Mapping[str, np.ndarray]) -> None:
    with whole_file(path) as part:
        shape.filled(data).write(str(part), file_format="vtu")


def write_collection(path: Path, files: Mapping[str, float]) -> None:
    """Write a .pvd file, which names files relative to itself and the time of each, in seconds."""
    entries = "\n".join(
        f'  <DataSet timestep="{time!r}" file={quoteattr(file)}/>' for file, time in files.items()
    )
    path.write_text(
        '<?xml version="1.0"?>\n<VTKFile type="Collection" version="0.1">\n'
        f" <Collection>\n{entries}\n </Collection>\n</VTKFile>\n"
    )
