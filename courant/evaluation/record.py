"""evaluation.json and its neighbours as the report reads them back: checked, since they may be somebody else's."""

from __future__ import annotations

from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from courant.evaluation.metrics import ALL
from courant.evaluation.references import MODEL, NEAREST_DESIGN, PERSISTENCE, TRAINING_MEAN
from courant.run_directory import RunDirectory
from simgen.errors import StoreError

# Further entries are no harm: they are not looked at.
_CONFIG = ConfigDict(extra="allow")


class _Total(BaseModel):
    model_config = _CONFIG
    nmae: float
    relative_l2: float


class _Timing(BaseModel):
    model_config = _CONFIG
    prediction_s: float
    prediction_total_s: float
    solver_s: float | None
    speed_up: float | None


class _Channel(BaseModel):
    model_config = _CONFIG
    field: str
    component: str


class _Evaluation(BaseModel):
    model_config = _CONFIG
    fingerprint: str
    split: Literal["train", "validation", "test"]
    task: Literal["transient", "steady"]
    num_windows: int
    channels: list[_Channel] = Field(min_length=1)
    cases: dict[str, dict[str, Any]] = Field(min_length=1)
    overall: dict[str, _Total]
    by_component: dict[str, dict[str, _Total]]
    timing: _Timing


class _RolloutTiming(_Timing):
    window_s: float


class _Rollouts(_Evaluation):
    step_s: float
    nmae: dict[str, dict[str, list[float]]]
    beats: dict[str, list[bool]]
    timing: _RolloutTiming


class _Timings(BaseModel):
    model_config = _CONFIG
    load: float
    train: float
    validation: float
    checkpoint: float


class _Status(BaseModel):
    model_config = _CONFIG
    best_epoch: int


class _Environment(BaseModel):
    model_config = _CONFIG
    device: str
    workers: int


M = TypeVar("M", bound=BaseModel)


def check_record(run: RunDirectory, content: dict[str, Any]) -> dict[str, Any]:
    """The content of evaluation.json as it is; StoreError where a report cannot be made of it."""
    kind = _Evaluation if content.get("task") == "steady" else _Rollouts
    found = _checked(kind, content, f"{run.url}/evaluation.json")
    predictors = (MODEL, TRAINING_MEAN, NEAREST_DESIGN if found.task == "steady" else PERSISTENCE)
    names = [f"{channel.field}.{channel.component}" for channel in found.channels]
    complete = all(
        predictor in found.overall
        and set(names) <= set(found.by_component.get(predictor, ()))
        and all(_is_total(case.get(predictor)) for case in found.cases.values())
        for predictor in predictors
    )
    if isinstance(found, _Rollouts):
        complete = complete and _has_every_step(found, names)
    if not complete or set(found.overall) != set(predictors):
        raise StoreError(_unusable(f"{run.url}/evaluation.json", "it does not hold every predictor, channel and step"))
    return content


def read_course(run: RunDirectory) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """status.json, timings.json and environment.json of a finished run; StoreError where they are not what a run writes."""
    kinds: dict[str, type[BaseModel]] = {
        "status.json": _Status,
        "timings.json": _Timings,
        "environment.json": _Environment,
    }
    status, timings, environment = ((name, run.read_object(name)) for name in kinds)
    for name, content in (status, timings, environment):
        _checked(kinds[name], content, f"{run.url}/{name}")
    return status[1], timings[1], environment[1]


def _has_every_step(found: _Rollouts, names: list[str]) -> bool:
    by_name = [found.nmae.get(name, {}) for name in (MODEL, PERSISTENCE, TRAINING_MEAN)]
    series = [values.get(name, []) for values in by_name for name in (ALL, *names)]
    series += [found.beats.get(name, []) for name in (PERSISTENCE, TRAINING_MEAN)]  # type: ignore[misc]
    return len({len(values) for values in series}) == 1 and bool(series[0])


def _is_total(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("nmae"), int | float)


def _checked(kind: type[M], content: dict[str, Any], shown: str) -> M:
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))[:100]
        raise StoreError(_unusable(shown, f"{where}: {first['msg']}")) from error


def _unusable(shown: str, why: str) -> str:
    return f"{shown} is not what this project writes ({why}); remove evaluation.json and evaluate again, or train again"
