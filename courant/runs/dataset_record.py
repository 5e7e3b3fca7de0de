"""dataset.json of a run directory: which dataset version the run was trained on, checked as data that others wrote."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, StringConstraints, ValidationError

from courant.runs.directory import RunDirectory
from simgen.errors import InputError

# Nothing that a terminal would take for a command: no control characters.
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
    version: _Name
    snapshot_id: _Text
    family: _Name
    parameters: list[_Parameter] = Field(max_length=1000)


def read_dataset_record(run: RunDirectory) -> dict[str, Any]:
    """url, version, snapshot_id, family and parameters; InputError where they are not what a run writes."""
    content = run.read_object("dataset.json")
    try:
        record = _DatasetRecord.model_validate(content)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:4])
        raise InputError(f"{run.url}/dataset.json: {wrong}; the run is damaged, train it again") from error
    if "://" in record.url and not record.url.startswith(("s3://", "file://")):
        raise InputError(f"{run.url}/dataset.json: url {record.url!r} is neither a local path nor s3://bucket/prefix")
    return record.model_dump()
