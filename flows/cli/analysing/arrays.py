"""Choose the cases of an analysis, and write the arrays that it found."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from simgen.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from courant.runs.directory import RunDirectory
    from simgen.store.access.reader import Dataset


def chosen_cases(dataset: Dataset, named: Sequence[str] | None) -> list[str]:
    """Return the named cases, or those of the test split; InputError where there is none."""
    chosen = list(named or ()) or dataset.cases("test")
    if not chosen:
        raise InputError(f"{dataset.url} {dataset.version} has no test case; name one by --case")
    return chosen


def write_arrays(folder: RunDirectory, name: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays as a compressed .npz file of this name."""
    import numpy as np

    buffer, content = io.BytesIO(), dict[str, Any](arrays)
    np.savez_compressed(buffer, **content)
    folder.write_bytes(name, buffer.getvalue())
