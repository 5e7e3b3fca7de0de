"""Turn a PointCloud into the arrays of a case's group, as `layout.py` lists them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import numpy as np
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec
from zarr.core.sync import sync

from simgen.point_cloud import BoundaryCloud, PointCloud
from simgen.store.format.digest import ArrayDigest, digest_array
from simgen.store.format.layout import DISTANCE_COLUMNS, FACE_COLUMNS, SCHEMA_VERSION, Schema

#: Bytes of a chunk before compression. Whole cases read 1.2 times (local disk) and 1.7 times (S3)
#: as fast as in chunks of 1 MiB; with 4 MiB they gain another tenth, and a window of 11 snapshots
#: takes 1.7 times as long. `python -m bench store`.
CHUNK_BYTES = 1 << 21
#: Size of solved velocities over raw: zstd 3 with byte shuffle 0.83 (decoded at 1.6 GB/s a core),
#: lz4 0.86 (3.5 GB/s), zstd 1 0.88, zstd 3 without shuffle 0.92, zstd 9 0.76 (encoded at 7 MB/s).
#: Stores outlive runs and networks are slower than decoders: size wins.
COMPRESSOR = BloscCodec(cname="zstd", clevel=3, shuffle="shuffle")


def array_names(schema: Schema) -> tuple[str, ...]:
    """Name the arrays that every accepted case has; some have a mesh besides."""
    time = ("time",) if schema.transient else ()
    fields = tuple(field.name for field in schema.fields)
    volumes = ("volumes",) if schema.volumes else ()
    distance = ("distance_field",) if schema.measured_kinds else ()
    on_faces = ("faces", *(field.name for field in schema.boundary_fields))
    boundary = tuple(f"boundary/{name}" for name in on_faces) if schema.boundary else ()
    return ("points", *volumes, *distance, *time, *fields, *boundary)


def write_cloud(group: zarr.Group, cloud: PointCloud, schema: Schema) -> list[ArrayDigest]:
    """Write an accepted case's arrays below its group, in parallel; return their digests."""
    arrays = _arrays(cloud, schema)
    sync(_write_all(group, arrays))
    return [digest_array(array.name, array.values, array.unit) for array in arrays]


def digest_cloud(cloud: PointCloud, schema: Schema) -> list[ArrayDigest]:
    """Return the digests that `write_cloud` would return, without writing."""
    return [digest_array(array.name, array.values, array.unit) for array in _arrays(cloud, schema)]


@dataclass(frozen=True)
class _CaseArray:
    """One array of a case: `velocity`, or `boundary/velocity`."""

    name: str
    values: np.ndarray
    dimensions: tuple[str, ...]
    unit: str = ""
    columns: tuple[str, ...] = ()

    @property
    def attributes(self) -> dict[str, Any]:
        unit = {"unit": self.unit} if self.unit else {}
        return {**unit, "columns": list(self.columns)} if self.columns else unit

    @property
    def chunks(self) -> tuple[int, ...]:
        """Shape of a chunk: as many whole snapshots as fit.

        An array without time is split along its points.
        """
        length = max(1, len(self.values))
        row_bytes = max(1, self.values.nbytes // length)
        return (min(length, max(1, CHUNK_BYTES // row_bytes)), *self.values.shape[1:])


def _arrays(cloud: PointCloud, schema: Schema) -> list[_CaseArray]:
    """List all arrays of a case, with names for their dimensions.

    xarray shows these names, and recognises shared axes by them.
    """
    arrays = [_CaseArray("points", cloud.points, ("point", "axis"))]
    if cloud.volumes is not None:
        arrays.append(_CaseArray("volumes", cloud.volumes, ("point",)))
    distance = pack_distance(cloud)
    if distance is not None:
        axes = ("point", "patch_kind", "distance_column")
        arrays.append(_CaseArray("distance_field", distance, axes, columns=DISTANCE_COLUMNS))
    if cloud.time is not None:
        arrays.append(_CaseArray("time", cloud.time, ("time",)))
    if cloud.mesh is not None and schema.version >= SCHEMA_VERSION:
        arrays.append(_CaseArray("mesh_points", cloud.mesh.points, ("mesh_point", "axis")))
        arrays.append(_CaseArray("mesh_cells", cloud.mesh.entries, ("mesh_entry",)))
    time = ("time",) if schema.transient else ()
    for field in schema.fields:
        along = (*time, "point", f"{field.name}_component")
        arrays.append(_CaseArray(field.name, cloud.fields[field.name], along, field.unit))
    if cloud.boundary is None:
        return arrays
    faces = pack_faces(cloud.boundary)
    on_faces = ("face", "face_column")
    arrays.append(_CaseArray("boundary/faces", faces, on_faces, columns=FACE_COLUMNS))
    for field in schema.boundary_fields:
        along = (*time, "face", f"{field.name}_component")
        values = cloud.boundary.fields[field.name]
        arrays.append(_CaseArray(f"boundary/{field.name}", values, along, field.unit))
    return arrays


async def _write_all(group: zarr.Group, arrays: list[_CaseArray]) -> None:
    of_case = group._async_group
    if any(array.name.startswith("boundary/") for array in arrays):
        await of_case.create_group("boundary")
    await asyncio.gather(*(_write(of_case, array) for array in arrays))


async def _write(group: zarr.AsyncGroup, array: _CaseArray) -> None:
    created = await group.create_array(
        array.name,
        shape=array.values.shape,
        dtype=array.values.dtype,
        chunks=array.chunks,
        # The checksum comes last, so that it covers the bytes as stored, and is checked at each
        # read.
        compressors=[COMPRESSOR, Crc32cCodec()],
        attributes=array.attributes,
        dimension_names=array.dimensions,
        # A chunk of zeros is written like any other, so that a missing chunk is a lost one.
        config={"write_empty_chunks": True},
    )
    await created.setitem(..., np.ascontiguousarray(array.values))


def pack_distance(cloud: PointCloud) -> np.ndarray | None:
    """Pack distance and direction to each patch kind into (N, K, 4); None where there are none."""
    if cloud.distance is None or cloud.direction is None:
        return None
    return np.concatenate([cloud.distance[..., None], cloud.direction], axis=-1)


def pack_faces(boundary: BoundaryCloud) -> np.ndarray:
    """Pack faces into (B, 8) in the order of FACE_COLUMNS, in the type of their points.

    A patch kind's index is exact in f4.
    """
    columns = [boundary.points, boundary.normals, boundary.areas[:, None], boundary.patch[:, None]]
    return np.concatenate(columns, axis=1, dtype=boundary.points.dtype)
