"""Tell whether a failure is that of a full disk, which OpenFOAM's own messages rarely say."""

from __future__ import annotations

import shutil
from pathlib import Path

#: With fewer free bytes than this, a failure is attributed to the full disk.
FULL = 5_000_000


def full_disk(directory: Path) -> str:
    """Return `full (1.2 MB free)`; empty where there is room."""
    free = shutil.disk_usage(directory).free
    return f"full ({free / 1e6:.1f} MB free)" if free < FULL else ""
