"""Define the domain of a free key of a search space: a list, or a number between two bounds."""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    field_validator,
    model_validator,
)

from courant.sweeps.setting import Value, as_number

CONFIG = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
_LARGEST = 1e15


class Values(BaseModel):
    """A list to choose from."""

    model_config = CONFIG
    values: tuple[Value, ...] = Field(min_length=1)
    when: dict[str, tuple[Value, ...]] = {}
    """The key counts only where these other keys have one of these values"""

    @field_validator("values", mode="before")
    @classmethod
    def _numbers(cls, values: Any) -> Any:
        return _numbers_of(values)

    @field_validator("when", mode="before")
    @classmethod
    def _numbers_of_others(cls, when: Any) -> Any:
        return _numbers_by_key(when)

    def draw(self, generator: np.random.Generator) -> Value:
        return self.values[int(generator.integers(len(self.values)))]


class Range(BaseModel):
    """Numbers between two bounds, integers if both bounds are."""

    model_config = CONFIG
    min: int | float
    max: int | float
    log: bool = False
    when: dict[str, tuple[Value, ...]] = {}

    @field_validator("when", mode="before")
    @classmethod
    def _numbers_of_others(cls, when: Any) -> Any:
        return _numbers_by_key(when)

    @model_validator(mode="after")
    def _ordered(self) -> Range:
        if max(abs(self.min), abs(self.max)) > _LARGEST:
            raise ValueError(f"min and max lie within {-_LARGEST:g} and {_LARGEST:g}")
        if not self.min < self.max or (self.log and self.min <= 0):
            raise ValueError(
                f"min {self.min:g} and max {self.max:g} make no range; min < max, and 0 < min"
                " where log"
            )
        return self

    def draw(self, generator: np.random.Generator) -> Value:
        low, high = (math.log(self.min), math.log(self.max)) if self.log else (self.min, self.max)
        drawn = float(generator.uniform(low, high))
        number = math.exp(drawn) if self.log else drawn
        return (
            round(number)
            if isinstance(self.min, int) and isinstance(self.max, int)
            else float(f"{number:.4g}")
        )


def _numbers_of(values: Any) -> Any:
    return [as_number(value) for value in values] if isinstance(values, list) else values


def _numbers_by_key(when: Any) -> Any:
    if not isinstance(when, dict):
        return when
    return {key: _numbers_of(values) for key, values in when.items()}


_KIND = Discriminator(
    lambda item: (
        "range"
        if isinstance(item, Range) or (isinstance(item, dict) and {"min", "max"} & set(item))
        else "values"
    )
)
Domain = Annotated[Annotated[Values, Tag("values")] | Annotated[Range, Tag("range")], _KIND]
