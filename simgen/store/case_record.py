"""CaseResult -> what is written of a case beside its arrays, JSON-ready."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from simgen.case import CaseResult
from simgen.point_cloud import PointCloud
from simgen.store.digest import ArrayDigest, digest_case
from simgen.store.statistics import moments


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
    """What the case's seal says of its objects"""


def case_attrs(result: CaseResult) -> dict[str, Any]:
    """The attributes of the case's group."""
    return _json_ready(
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
) -> CaseRecord:
    """The case's lines; its digest is over its attributes, details and arrays.

    `num_bytes_stored` is what its arrays take as they are stored, compressed.
    """
    details = _json_ready(
        {
            "gates": [asdict(gate) for gate in result.gates],
            "log_tail": result.log_tail,
            "provenance": dict(result.provenance),
        }
    )
    digest = digest_case({**case_attrs(result), **details}, arrays)
    moments_of = _moments(cloud) if cloud is not None else {}
    return CaseRecord(_design_record(result, cloud, digest, num_bytes_stored), details, moments_of, objects)


def _design_record(result: CaseResult, cloud: PointCloud | None, digest: str, num_bytes_stored: int) -> dict[str, Any]:
    record: dict[str, Any] = {
        "parameters": dict(result.point.parameters),
        "settings": dict(result.point.settings),
        "status": result.status,
        "reason": result.reason,
        "wall_time_s": float(sum(result.provenance.get("wall_time_s", {}).values())),
        "solver_version": result.provenance.get("solver_version", "unknown"),
        "digest": digest,
    }
    if cloud is not None:
        record["num_points"] = cloud.num_points
        record["num_snapshots"] = cloud.num_snapshots
        record["num_bytes"] = int(sum(np.asarray(values).nbytes for values in cloud.fields.values()))
        record["num_bytes_stored"] = num_bytes_stored
    return _json_ready(record)


def _moments(cloud: PointCloud) -> dict[str, Any]:
    of = {"points": cloud.points, **cloud.fields}
    return _json_ready({name: moments(values).to_record() for name, values in of.items()})


def _json_ready(record: dict[str, Any]) -> dict[str, Any]:
    """Plain JSON: NaN and infinite figures as words, which JSON has no numbers for."""

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
