"""Pack a run into one file with all that predicting needs; `courant.load` takes it as a run.

    <run>.zip    <run>/experiment.json dataset.json normaliser.json model.safetensors
                 and the records of its training and evaluation, where there are any

The same run gives the same bytes. `unzip` makes it a run directory again.
"""

from __future__ import annotations

import io
import zipfile

from courant.runs.dataset_record import DATASET, read_dataset_record
from courant.runs.directory import SUFFIX, RunDirectory
from courant.runs.record import METRICS, STATUS
from courant.runs.standing import check_trained
from courant.runs.weights import WEIGHTS, count_weights
from simgen.errors import InputError

NEEDED = ("experiment.json", DATASET, "normaliser.json", WEIGHTS)
RECORDS = (
    "environment.json",
    METRICS,
    "timings.json",
    STATUS,
    "evaluation.json",
    "bands.json",
    "monitor.json",
)
_DATE = (1980, 1, 1, 0, 0, 0)
"""The first date that archives know; without one the bytes would differ each time"""


def pack_run(run: RunDirectory, out: str) -> str:
    """Write the run into the file `out` (a path or s3:// URL), replacing it; return its URL.

    InputError where the run has no weights yet, or is damaged, and for another suffix than .zip.
    """
    folder, _, name = out.rpartition("/")
    if not name.endswith(SUFFIX) or name == SUFFIX:
        raise InputError(f"{out}: a packed run is a zip archive; name the file {name or 'run'}.zip")
    check_trained(run)
    count_weights(run)
    read_dataset_record(run)
    names = [*NEEDED, *(record for record in RECORDS if run.exists(record))]
    inside = run.url.rsplit("/", 1)[-1].removesuffix(SUFFIX)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for each in names:
            content = (
                run.read_bytes(each, limit=run.size(each))
                if each == WEIGHTS
                else run.read_bytes(each)
            )
            # Weights are noise to a compressor, and the records are small.
            archive.writestr(zipfile.ZipInfo(f"{inside}/{each}", _DATE), content)
    RunDirectory(folder or ".").write_bytes(name, packed.getvalue())
    return out
