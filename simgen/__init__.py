"""simgen: design point -> solved OpenFOAM case -> dataset version.

import simgen
ds = simgen.open_dataset("demo-run/store/cylinder-flow")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simgen.errors import CaseError, InputError, SimgenError, StoreError

if TYPE_CHECKING:
    from simgen.store.access.reader import Dataset, open_dataset
    from simgen.store.access.stored_case import StoredCase

__all__ = [
    "CaseError",
    "Dataset",
    "InputError",
    "SimgenError",
    "StoreError",
    "StoredCase",
    "open_dataset",
]


def __getattr__(name: str) -> Any:
    # Zarr and Icechunk take a second to import, which a solver process or `courant --help` need not
    # pay.
    if name in ("Dataset", "StoredCase", "open_dataset"):
        from simgen.store.access import reader, stored_case

        return getattr(stored_case if name == "StoredCase" else reader, name)
    raise AttributeError(f"module 'simgen' has no attribute '{name}'")
