"""Compute quantities of interest from predicted fields."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from courant.data.normalisation import Channel
from simgen.case import CaseFamily
from simgen.cases import FAMILIES
from simgen.quantities import CaseFields, Quantity, compute, states_from


def family_with_quantities(name: str) -> CaseFamily | None:
    """Return the family, if this release knows it and it declares quantities."""
    family = FAMILIES.get(name)
    return family if family is not None and family.quantities else None


def quantities_from(
    quantities: Sequence[Quantity], fields: CaseFields, since_s: float
) -> dict[str, float]:
    """Compute quantities by name, of a transient case from its states from `since_s` on.

    NaN where there is no such state.
    """
    cloud = states_from(fields.cloud, since_s)
    if cloud.time is not None and not len(cloud.time):
        return dict.fromkeys((each.name for each in quantities), float("nan"))
    return compute(quantities, CaseFields(fields.parameters, fields.settings, cloud))


def by_field(values: np.ndarray, channels: Sequence[Channel]) -> dict[str, np.ndarray]:
    """Split (..., C) into fields (..., components); components that are not modelled are zero."""
    fields: dict[str, np.ndarray] = {}
    for name in dict.fromkeys(channel.field for channel in channels):
        columns = {each.column: c for c, each in enumerate(channels) if each.field == name}
        field = fields[name] = np.zeros((*values.shape[:-1], 1 + max(columns)), values.dtype)
        for column, place in columns.items():
            field[..., column] = values[..., place]
    return fields
