"""Export a version: as plain Zarr v3, which `zarr` and `s3fs` alone can read, or for ParaView.

The root's attributes and consolidated metadata come last: an interrupted export has neither, and
the same command continues it. Tables over cases are attributes of `design`, `splits`, `statistics`.
Gates, log and provenance of a case are JSON text in an array of bytes, `provenance`: as attributes
they would all be part of the root's metadata. docs/dataset-operations.md lists the files.
"""

import json
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import fsspec
import numpy as np
import zarr
from botocore.exceptions import BotoCoreError
from zarr.abc.store import Store
from zarr.codecs import ZstdCodec
from zarr.errors import ZarrUserWarning
from zarr.storage import FsspecStore, LocalStore

from simgen.cell_mesh import Shape, shape_of
from simgen.design_space import Parameter, with_unit
from simgen.errors import InputError, StoreError
from simgen.store.read import DETAILS, Dataset, StoredCase
from simgen.store.verify import for_each_case
from simgen.store.versions import explain
from simgen.whole_file import local_path, whole_file

CF = {
    "points": {"units": "m", "long_name": "centre of the cell"},
    "mesh_points": {"units": "m"},
    "volumes": {"units": "m3", "long_name": "volume of the cell"},
    "time": {"units": "s", "long_name": "time since the start of the simulation", "axis": "T"},
}
"""Attributes of arrays as the CF conventions name them, besides the fields' units"""


@dataclass(frozen=True)
class Exported:
    target: str
    num_cases: int
    num_bytes: int  # Decoded bytes


def export(
    dataset: Dataset,
    target: str | Path,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Exported:
    """Write the dataset's version to `target`, a local path or s3://bucket/prefix.

    `on_progress` gets the cases done and in total. Raises InputError for a target that is neither
    empty nor an unfinished export of this version, StoreError where the target cannot be written or
    the dataset cannot be read or is damaged.
    """
    url = str(target).rstrip("/")
    if url == "s3:" or ("://" in url and not url.startswith("s3://")):
        raise InputError(
            f"export target {target} is of no known kind; use a local path or s3://bucket/prefix"
        )
    mark = {"dataset": dataset.url, "version": dataset.version, "snapshot_id": dataset.snapshot_id}
    cases = [dataset[case] for case in dataset.cases()]
    num_bytes = int(dataset.design["num_bytes"].sum())
    try:
        store = FsspecStore.from_url(url) if "://" in url else LocalStore(local_path(url))
        if _claim(store, url, mark):
            return Exported(url, len(cases), num_bytes)
        for_each_case(cases, lambda case: _export_case(case, store), on_progress)
        for name, attributes in (
            ("design", {"cases": dataset.records}),
            ("splits", {"members": dataset.members}),
            ("statistics", {"fields": dataset.statistics_record}),
        ):
            zarr.open_group(store, path=name, mode="a").attrs.put(attributes)
        root = zarr.open_group(store, mode="a")
        root.attrs.put({"Conventions": "CF-1.11", **dataset.schema.to_attrs(), "export": mark})
        with warnings.catch_warnings(category=ZarrUserWarning, action="ignore"):
            zarr.consolidate_metadata(store)  # which the specification of Zarr v3 lacks so far
    except (OSError, BotoCoreError) as error:
        raise StoreError(explain(url, str(error))) from error
    return Exported(url, len(cases), num_bytes)


def _claim(store: Store, url: str, origin: Mapping[str, Any]) -> bool:
    """Claim the target; return True if it already is a complete export of this version."""
    root, begun = (_attributes(store, path).get("export") for path in ("", "cases"))
    if root == origin:
        return True
    if begun == origin and root is None:
        return False
    files, path = fsspec.core.url_to_fs(url)
    if files.exists(path) and files.ls(path):
        raise InputError(f"{url} is not empty: choose another target, or delete what is there")
    zarr.create_group(store, path="cases", attributes={"export": origin})
    return False


def _attributes(store: Store, path: str) -> dict[str, Any]:
    """Return the attributes of a group; empty where there is none."""
    try:
        return dict(zarr.open_group(store, path=path, mode="r", use_consolidated=False).attrs)
    except (FileNotFoundError, ValueError):
        return {}


def _export_case(case: StoredCase, store: Store) -> None:
    """Copy a case, unless an earlier call has."""
    path, attributes = f"cases/{case.id}", case.attributes
    details = json.dumps({name: attributes.pop(name) for name in DETAILS}).encode()
    attributes |= {"split": case.split, "digest": case.digest}
    # The attributes come last, so a case that has them is complete.
    if _attributes(store, path) == attributes:
        return
    for name in case.arrays():
        array, attrs = case[name], case[name].attrs.asdict()
        attrs |= {"long_name": name.rpartition("/")[2].replace("_", " "), **CF.get(name, {})}
        if "unit" in attrs:
            attrs["units"] = attrs["unit"]
        zarr.from_array(store, data=array, name=f"{path}/{name}", attributes=attrs, overwrite=True)
    schema = case.dataset.schema
    named = {f"{field.name}_component": field.components for field in schema.fields}
    named |= {"axis": ("x", "y", "z")}
    if schema.measured_kinds:
        named["patch_kind"] = schema.measured_kinds
    for name, values in named.items():
        text = np.array(values, dtype=np.dtypes.StringDType())
        place, names = f"{path}/{name}", [name]
        zarr.create_array(store, name=place, data=text, dimension_names=names, overwrite=True)
    zarr.create_array(
        store,
        name=f"{path}/provenance",
        data=np.frombuffer(details, np.uint8),
        chunks=(len(details),),
        compressors=[ZstdCodec(level=3)],
        attributes={"content": "JSON in UTF-8: gates, log_tail, provenance"},
        dimension_names=["byte"],
        overwrite=True,
    )
    zarr.open_group(store, path=path, mode="a").attrs.put(attributes)


def export_vtu(
    dataset: Dataset,
    folder: str | Path,
    cases: list[str] | None = None,
    every: int = 1,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Path]:
    """Write `cases` (default: all accepted), every n-th snapshot of each; return the files to open.

    Raises InputError for cases that cannot be exported, or a folder that cannot be written.
    """
    chosen = [dataset[case] for case in (dataset.cases() if cases is None else cases)]
    for case in chosen:
        if case.status != "accepted":
            raise InputError(f"case {case.id} was {case.status} and has no fields: {case.reason}")
    schema, written, place = dataset.schema, [], local_path(str(folder))
    try:
        place.mkdir(parents=True, exist_ok=True)
        for done, case in enumerate(chosen, start=1):
            fields = {field.name: case[field.name] for field in schema.fields}
            shape, design = shape_of(case.mesh, case.points), (schema.parameters, case.parameters)
            clouds = [(case.id, shape, case.constants(), fields)]
            if schema.boundary:
                faces = case.boundary
                constants = {"normal": faces.normals, "area": faces.areas, "patch": faces.patch}
                fields = {field.name: faces[field.name] for field in schema.boundary_fields}
                shape = shape_of(case.mesh, faces.points, len(case.points))
                clouds.append((f"{case.id}_boundary", shape, constants, fields))
            for name, shape, constants, arrays in clouds:
                whole = {key: np.asarray(array) for key, array in arrays.items()}
                if case.time is None:
                    written.append(place / f"{name}.vtu")
                    write_vtu(written[-1], shape, {**constants, **whole}, *design)
                    continue
                (place / case.id).mkdir(exist_ok=True)
                times = {}
                for step in range(0, len(case.time), every):
                    file = f"{case.id}/{name}_{step:05d}.vtu"
                    at_step = {key: values[step] for key, values in whole.items()}
                    times[file] = float(case.time[step])
                    found = {**constants, **at_step}
                    write_vtu(place / file, shape, found, *design, times[file])
                written.append(place / f"{name}.pvd")
                with whole_file(written[-1]) as part:
                    write_collection(part, times)
            on_progress(done, len(chosen))
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror or error}") from error
    return written


def write_vtu(
    path: Path,
    shape: Shape,
    arrays: Mapping[str, np.ndarray],
    space: Iterable[Parameter],
    design: Mapping[str, float],
    time: float | None = None,
    about: str = "",
) -> None:
    """Write a mesh with arrays (N,) or (N, C), the design and the time (s) as field data."""
    numbers = {} if time is None else {"TimeValue": time}
    for of in space:
        if of.name in design:
            numbers[with_unit(of.name.replace("_", " "), of.unit)] = design[of.name]
    element = '<DataArray type="Float64" Name={} NumberOfTuples="1" format="ascii">{!r}</DataArray>'
    data = "".join(element.format(quoteattr(name), float(of)) for name, of in numbers.items())
    comment = f"<!-- {re.sub('--+', '-', about)} -->" * bool(about)
    grid = f"{comment}<UnstructuredGrid><FieldData>{data}</FieldData>".encode()
    with whole_file(path) as part:
        # meshio reads field data, but does not write any.
        shape.filled(arrays).write(str(part), file_format="vtu")
        part.write_bytes(part.read_bytes().replace(b"<UnstructuredGrid>", grid, 1))


def write_collection(path: Path, files: Mapping[str, float]) -> None:
    """Write a .pvd file, which names files relative to itself and the time of each, in seconds."""
    entries = "\n".join(
        f'  <DataSet timestep="{time!r}" file={quoteattr(file)}/>' for file, time in files.items()
    )
    path.write_text(
        '<?xml version="1.0"?>\n<VTKFile type="Collection" version="0.1">\n'
        f" <Collection>\n{entries}\n </Collection>\n</VTKFile>\n"
    )
