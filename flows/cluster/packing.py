"""Pack the code for a job: a copy of the project's packages and nothing else."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

from simgen.provenance import REVISION_FILE, source_revision

PACKAGES = ("simgen", "courant", "flows")


def pack_code(target: Path) -> None:
    """Copy the packages under `target`, with the source revision for later records."""
    for name in PACKAGES:
        found = find_spec(name)
        assert found is not None and found.origin is not None
        shutil.copytree(
            Path(found.origin).parent,
            target / name,
            ignore=shutil.ignore_patterns("__pycache__", "*.pyc"),
        )
    (target / REVISION_FILE).write_text(source_revision())
