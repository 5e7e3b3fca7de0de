"""Keep raw case directories as compressed archives beside the datasets.

    <store>/failed/<family>/<id>.tar.gz     rejected and failed cases: dictionaries, mesh, logs,
                                            monitors, the last time
    <store>/raw/<family>/<id>.tar.gz        accepted cases, complete, if the run was asked to keep
                                            them

An archive is the directory as it was when the case ended; `tar xzf` and OpenFOAM's own tools open
it.
"""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Literal

import fsspec

from simgen.errors import StoreError
from simgen.foam.mesh import time_directories
from simgen.whole_file import whole_file

Area = Literal["failed", "raw"]
COMPRESSION_LEVEL = 3


def archive_url(dataset: str, area: Area, case: str) -> str:
    """Return where a case of the dataset at <store>/<family> is archived."""
    store, _, family = dataset.rstrip("/").rpartition("/")
    return f"{store}/{area}/{family}/{case}.tar.gz"


def archive_case(directory: Path, dataset: str, area: Area) -> str:
    """Pack `directory` (named after its case) into the store; return the archive's URL.

    Raises StoreError where that fails.
    """
    url = archive_url(dataset, area, directory.name)
    left_out = (
        {path.name for _, path in time_directories(directory)[:-1]} if area == "failed" else set()
    )

    def keep(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        parts = Path(member.name).parts
        return None if len(parts) > 1 and parts[1] in left_out else member

    try:
        # Packed into a local file first: an archive at the URL is complete or absent.
        with tempfile.TemporaryFile() as packed:
            with tarfile.open(
                fileobj=packed, mode="w:gz", compresslevel=COMPRESSION_LEVEL
            ) as archive:
                archive.add(directory, directory.name, filter=keep)
            packed.seek(0)
            if "://" in url:
                with fsspec.open(url, "wb") as target:
                    shutil.copyfileobj(packed, target, 1 << 20)
            else:
                Path(url).parent.mkdir(parents=True, exist_ok=True)
                with whole_file(Path(url)) as part, part.open("wb") as target:
                    shutil.copyfileobj(packed, target, 1 << 20)
    except OSError as error:
        raise StoreError(
            f"case {directory.name} cannot be archived at {url}: {error.strerror or error}"
        ) from error
    return url
