"""Turn a CaseResult into what is written of a case besides its arrays, JSON-ready."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from simgen.case import CaseResult
from simgen.moments import moments
from simgen.point_cloud import PointCloud
from simgen.provenance import core_seconds
from simgen.store.format.digest import ArrayDigest, digest_case
from simgen.store.format.split import PUBLISHED
from simgen.store.format.statistics import settled

#: Key of an imported case's provenance, and column of the design table: what tells whether the
#: files it was read from have changed since, and the digest of its arrays.
IMPORTED = "imported"
#: Column of the design table: core-seconds of the case's solver.
CORE_S = "core_s"


@dataclass(frozen=True)
class CaseRecord:
    """A case's lines in the tables of the dataset."""

    design: dict[str, Any]
    """Its row of the design table"""
    details: dict[str, Any]
    """gates, log_tail, provenance"""
    moments: dict[str, Any]
    """By field, and of the points; empty where the case was not accepted"""
    objects: dict[str, str]
    """The case's seal for its objects"""


def case_attrs(result: CaseResult) -> dict[str, Any]:
    """Return the attributes of the case's group."""
    return json_ready(
        {
            "parameters": dict(result.point.parameters),
            "settings": dict(result.point.settings),
            "family_revision": result.point.family_revision,
            "status": result.status,
            "reason": result.reason,
        }
    )


def case_record(
    result: CaseResult,
    cloud: PointCloud | None,
    arrays: Iterable[ArrayDigest],
    num_bytes_stored: int,
    objects: dict[str, str],
    startup_s: float = 0.0,
    quantities: Sequence[str] = (),
) -> CaseRecord:
    """Build the case's lines; its digest covers its attributes, details and arrays.

    `num_bytes_stored` is the size of its arrays as stored, compressed. `quantities` names those of
    its figures that go into the design table.
    """
    details, digest = _details(result), case_digest(result, arrays)
    moments_of = _moments(cloud, startup_s) if cloud is not None else {}
    design = _design_record(result, cloud, digest, num_bytes_stored)
    if cloud is not None and quantities:
        figures = result.provenance.get("figures", {})
        measured = {name: figures[name] for name in quantities if name in figures}
        design["quantities"] = json_ready(measured)
    return CaseRecord(design, details, moments_of, objects)


def case_digest(result: CaseResult, arrays: Iterable[ArrayDigest]) -> str:
    """Compute the digest of a case from its attributes, details and arrays."""
    return digest_case({**case_attrs(result), **_details(result)}, arrays)


def _details(result: CaseResult) -> dict[str, Any]:
    return json_ready(
        {
            "gates": [asdict(gate) for gate in result.gates],
            "log_tail": result.log_tail,
            "provenance": dict(result.provenance),
        }
    )


def _design_record(
    result: CaseResult, cloud: PointCloud | None, digest: str, num_bytes_stored: int
) -> dict[str, Any]:
    seconds = result.provenance.get("wall_time_s", {})
    record: dict[str, Any] = {
        "parameters": dict(result.point.parameters),
        "settings": dict(result.point.settings),
        "status": result.status,
        "reason": result.reason,
        "wall_time_s": float(sum(seconds.values())),
        CORE_S: core_seconds(result.provenance, ("solve",)) or 0.0,
        "solver_version": result.provenance.get("solver_version", "unknown"),
        "digest": digest,
    }
    if result.split is not None:
        record[PUBLISHED] = result.split
    if IMPORTED in result.provenance:
        record[IMPORTED] = result.provenance[IMPORTED]
    if cloud is not None:
        if cloud.grid_shape is not None:
            record["grid_shape"] = list(cloud.grid_shape)
        record["num_points"] = cloud.num_points
        record["num_snapshots"] = cloud.num_snapshots
        record["num_bytes"] = int(
            sum(np.asarray(values).nbytes for values in cloud.fields.values())
        )
        record["num_bytes_stored"] = num_bytes_stored
    return json_ready(record)


def _moments(cloud: PointCloud, startup_s: float) -> dict[str, Any]:
    of_fields = {
        name: settled(values, cloud.time, startup_s) for name, values in cloud.fields.items()
    }
    return json_ready({"points": moments(cloud.points).to_record(), **of_fields})


def json_ready(record: dict[str, Any]) -> dict[str, Any]:
    """Convert to plain JSON, which has no numbers for NaN and infinities: they become words."""

    def clean(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {str(key): clean(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [clean(item) for item in value]
        if isinstance(value, float | np.floating):
            return float(value) if np.isfinite(value) else str(float(value))
        return value.item() if isinstance(value, np.generic) else value

    cleaned: dict[str, Any] = json.loads(json.dumps(clean(record)))
    return cleaned
