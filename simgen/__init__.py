"""simgen: design point -> solved OpenFOAM case -> dataset version.

import simgen
ds = simgen.open_dataset("demo-run/store/cylinder-flow")
"""

from typing import TYPE_CHECKING, Any

from simgen.errors import CaseError, InputError, SimgenError, StoreError

if TYPE_CHECKING:
    from simgen.store.read import Dataset, StoredCase, open_dataset

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
        from simgen.store import read

        return getattr(read, name)
    raise AttributeError(f"module 'simgen' has no attribute '{name}'")
