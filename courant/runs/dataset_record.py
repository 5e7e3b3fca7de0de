"""Write and read dataset.json of a run: the dataset version of the training, and where it lies.

It is read as foreign data. The dataset is found by its URL, or by its place relative to the run,
where the folder that holds both was moved or copied; its snapshot id tells whether it is the one.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, StringConstraints, ValidationError

from courant.runs.directory import RunDirectory, absolute_url
from simgen.errors import InputError, SimgenError

if TYPE_CHECKING:
    from simgen.store.read import Dataset

DATASET = "dataset.json"

# No control characters, which a terminal would take for commands.
_Text = Annotated[str, StringConstraints(max_length=1000, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]
_Name = Annotated[str, StringConstraints(max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]


class _Parameter(BaseModel):
    model_config = ConfigDict(extra="ignore")
    name: _Name
    unit: _Text
    low: FiniteFloat
    high: FiniteFloat
    description: _Text = ""


class _DatasetRecord(BaseModel):
    model_config = ConfigDict(extra="ignore")
    url: _Text = Field(min_length=1)
    relative: _Text | None = None
    """The place as seen from the run; None where they share no folder, and in older runs"""
    version: _Name
    snapshot_id: _Text
    family: _Name
    parameters: list[_Parameter] = Field(max_length=1000)
    settings: Annotated[dict[_Name, FiniteFloat], Field(max_length=1000)] | None = None
    """Solver settings of its first case, by which further designs are meshed; None in older runs"""
    family_revision: int | None = None
    """Of the family's mesher and solver; None in older runs"""


def write_dataset_record(run: RunDirectory, dataset: Dataset) -> None:
    """Write dataset.json."""
    schema, url = dataset.schema, absolute_url(dataset.url)
    relative = _relative(url, run.url)
    description = {
        "url": url,
        **({"relative": relative} if relative else {}),
        "version": dataset.version,
        "snapshot_id": dataset.snapshot_id,
        "family": schema.family,
        "parameters": [asdict(parameter) for parameter in schema.parameters],
        "settings": dataset[0].settings,
        "family_revision": schema.family_revision,
    }
    run.write_json(DATASET, description)


def read_dataset_record(run: RunDirectory) -> dict[str, Any]:
    """Read dataset.json; InputError where it is invalid.

    The keys are url, relative, version, snapshot_id, family, family_revision, parameters and
    settings.
    """
    content = run.read_object(DATASET)
    try:
        record = _DatasetRecord.model_validate(content)
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:4]
        )
        raise InputError(f"{run.url}/{DATASET}: {wrong}; the run is damaged, train it again") from (
            error
        )
    if "://" in record.url and not record.url.startswith(("s3://", "file://")):
        raise InputError(
            f"{run.url}/{DATASET}: url {record.url!r} is neither a local path nor"
            " s3://bucket/prefix"
        )
    return record.model_dump()


def open_recorded(run_url: str, record: Mapping[str, Any], place: str | None = None) -> Dataset:
    """Open the dataset version of a run's record, at `place` or else where the record says.

    InputError where another version lies there, and where it is found nowhere; StoreError where a
    store cannot be read.
    """
    if place is not None:
        return _open_version(absolute_url(place), run_url, record)
    failures: list[SimgenError] = []
    for url in _places(run_url, record):
        try:
            return _open_version(url, run_url, record)
        except SimgenError as error:
            failures.append(error)
    # A store that cannot be read tells more than one that is gone, and has a way out of its own.
    for failure in failures:
        if not isinstance(failure, InputError):
            raise failure
    raise InputError(
        f"{failures[-1]}; {run_url} was trained on {record['family']} {record['version']}: if that"
        " lies elsewhere now, name its place with --dataset URL (in Python: open_dataset(URL))"
    ) from failures[-1]


def _open_version(url: str, run_url: str, record: Mapping[str, Any]) -> Dataset:
    from simgen import open_dataset  # takes a while, which a prediction from a mesh need not wait

    dataset = open_dataset(url, record["version"])
    if dataset.snapshot_id != record["snapshot_id"]:
        raise InputError(
            f"{url}: its {record['version']} is not the one that {run_url} was trained on (snapshot"
            f" {dataset.snapshot_id} in place of {record['snapshot_id']})"
        )
    return dataset


def _places(run_url: str, record: Mapping[str, Any]) -> list[str]:
    """List where the dataset may be: beside the run as then, and at its URL."""
    beside = []
    if record["relative"] is not None:
        root, path = _split(run_url)
        beside = [root + posixpath.normpath(posixpath.join(path, record["relative"]))]
    return list(dict.fromkeys([*beside, record["url"]]))


def _relative(url: str, run_url: str) -> str | None:
    """Return the path from the run to the dataset, if one folder or bucket holds both."""
    (root, path), (run_root, run_path) = _split(url), _split(run_url)
    if root != run_root or (not root and posixpath.commonpath([path, run_path]) == "/"):
        return None
    return posixpath.relpath(path, run_path)


def _split(url: str) -> tuple[str, str]:
    """Split s3://bucket/prefix into s3://bucket and /prefix; a local path has no root."""
    if "://" not in url:
        return "", url
    scheme, _, rest = url.partition("://")
    bucket, _, path = rest.partition("/")
    return f"{scheme}://{bucket}", f"/{path}"
