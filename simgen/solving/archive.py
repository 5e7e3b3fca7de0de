"""Keep raw case directories as compressed archives beside the datasets.

<store>/failed/<family>/<id>.tar.gz     rejected and failed cases: dictionaries, mesh, logs,
                                        monitors, the last time
<store>/raw/<family>/<id>.tar.gz        accepted cases, complete, if the run was asked to keep
                                        them
"""

import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Literal

import fsspec

from simgen.errors import StoreError
from simgen.foam.mesh import time_directories
from simgen.whole_file import whole_file


def archive_case(directory: Path, dataset: str, area: Literal["failed", "raw"]) -> str:
    """Pack a case's directory into the store of the dataset; return the URL; or StoreError."""
    store, _, family = dataset.rstrip("/").rpartition("/")
    url = f"{store}/{area}/{family}/{directory.name}.tar.gz"
    times = time_directories(directory)[:-1] if area == "failed" else []
    left_out = {f"{directory.name}/{path.name}" for _, path in times}
    try:
        # Packed into a local file first: an archive at the URL is complete or absent.
        with tempfile.TemporaryFile() as packed:
            with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=3) as archive:
                archive.add(
                    directory,
                    directory.name,
                    filter=lambda member: None if member.name in left_out else member,
                )
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
