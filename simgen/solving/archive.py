"""Keep raw case directories as compressed archives beside the datasets.

<store>/failed/<family>/<id>.tar.gz     rejected and failed cases: dictionaries, mesh, logs,
                                        monitors, the last time
<store>/raw/<family>/<id>.tar.gz        accepted cases, complete, if the run was asked to keep
                                        them
"""

from pathlib import Path
from typing import Literal

from simgen.errors import StoreError
from simgen.foam.mesh import time_directories
from simgen.whole_file import pack_folder


def archive_case(directory: Path, dataset: str, area: Literal["failed", "raw"]) -> str:
    """Pack a case's directory into the store of the dataset; return the URL; or StoreError."""
    store, _, family = dataset.rstrip("/").rpartition("/")
    url = f"{store}/{area}/{family}/{directory.name}.tar.gz"
    times = time_directories(directory)[:-1] if area == "failed" else []
    left_out = {f"{directory.name}/{path.name}" for _, path in times}
    try:
        pack_folder(directory, url, left_out)
    except OSError as error:
        raise StoreError(
            f"case {directory.name} cannot be archived at {url}: {error.strerror or error}"
        ) from error
    return url
