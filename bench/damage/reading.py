"""Everything that a reader sees of a dataset, by place: a digest of what was read, or the line of
the error.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import xarray

import simgen
from simgen.errors import SimgenError
from simgen.store.read import Dataset, StoredCase


@dataclass
class Observation:
    """By place, such as `v1 case b0159c13a91f read`."""

    read: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    def note(self, place: str, read: Callable[[], object]) -> None:
        try:
            self.read[place] = _digest(read())
        except SimgenError as error:
            self.errors[place] = str(error)


def observe(url: str) -> Observation:
    """Read all of the first and the newest version, in every way that there is."""
    seen = Observation()
    for name in ("v1", "newest"):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                dataset = simgen.open_dataset(url, None if name == "newest" else name)
        except SimgenError as error:
            seen.errors[f"{name} open"] = str(error)
            continue
        seen.note(f"{name} tables", lambda: _tables(dataset))  # noqa: B023
        for case in dataset.design.index:
            _observe_case(seen, f"{name} case {case}", dataset[case])
    return seen


def _observe_case(seen: Observation, place: str, case: StoredCase) -> None:
    seen.note(f"{place} record", lambda: [case.parameters, case.status, case.reason, case.split])
    seen.note(f"{place} details", lambda: [case.gates, case.log_tail, case.provenance])
    if case.status == "accepted":
        seen.note(f"{place} read", lambda: case.read())
        seen.note(
            f"{place} window",
            lambda: [case["velocity"][1:2], case.boundary["velocity"].oindex[[0, 2]]],
        )
        seen.note(
            f"{place} views",
            lambda: [case.points, case.direction, case.boundary.normals, case.time],
        )
        seen.note(f"{place} xarray", lambda: _as_plain(case.to_xarray()))


def _as_plain(opened: xarray.Dataset) -> dict[str, object]:
    return {str(name): [each.dims, each.attrs, each.values] for name, each in opened.items()}


def _tables(dataset: Dataset) -> list[object]:
    schema, statistics = str(dataset.schema), dataset.statistics
    return [
        dataset.version,
        schema,
        dataset.design.to_json(),
        dataset.info.message,
        dataset.info.author,
        statistics,
    ]


def _digest(value: object) -> str:
    """Of numbers, text, arrays, and lists and dictionaries of these."""
    return hashlib.blake2b(
        json.dumps(value, default=_plain, sort_keys=True).encode(), digest_size=16
    ).hexdigest()


def _plain(value: object) -> object:
    array = np.asarray(value)
    return [
        str(array.dtype),
        array.shape,
        hashlib.blake2b(np.ascontiguousarray(array).tobytes()).hexdigest(),
    ]
