"""Wrap `case[field]`: a lazy Zarr array with clear one-line errors.

Damaged and unreachable chunks raise StoreError.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import icechunk
import zarr

from simgen.errors import SimgenError, StoreError
from simgen.store.access.repository import check_process, explain
from simgen.store.format.damage import (
    DamageError,
    describe_damage,
    describe_metadata_damage,
    panics_as_errors,
)


@dataclass(frozen=True)
class Place:
    """The place of an array, for messages."""

    url: str
    version: str
    case: str
    array: str


class CheckedArray(zarr.Array):
    """A zarr.Array that raises StoreError where data cannot be read as written.

    The error names dataset, version, case and array. Everything else is zarr's: shape, dtype,
    chunks, attrs, slicing, `oindex`, `vindex`, `blocks`.
    """

    def __init__(self, array: zarr.Array, place: Place) -> None:
        super().__init__(array.async_array)
        self.place = place

    def get_basic_selection(self, *args: Any, **kwargs: Any) -> Any:
        with reading(self.place):
            return super().get_basic_selection(*args, **kwargs)

    def get_orthogonal_selection(self, *args: Any, **kwargs: Any) -> Any:
        with reading(self.place):
            return super().get_orthogonal_selection(*args, **kwargs)

    def get_mask_selection(self, *args: Any, **kwargs: Any) -> Any:
        with reading(self.place):
            return super().get_mask_selection(*args, **kwargs)

    def get_coordinate_selection(self, *args: Any, **kwargs: Any) -> Any:
        with reading(self.place):
            return super().get_coordinate_selection(*args, **kwargs)

    def get_block_selection(self, *args: Any, **kwargs: Any) -> Any:
        with reading(self.place):
            return super().get_block_selection(*args, **kwargs)


@contextlib.contextmanager
def reading(place: Place) -> Iterator[None]:
    """Turn a failed read of an array into one line that names it."""
    with reading_as(place, describe_damage):
        yield


@contextlib.contextmanager
def opening(place: Place) -> Iterator[None]:
    """Do the same for metadata, all of which was valid when written."""
    with reading_as(place, describe_metadata_damage):
        yield


@contextlib.contextmanager
def reading_as(place: Place, describe: Callable[[Exception], str | None]) -> Iterator[None]:
    """Raise StoreError for what `describe` recognises as damage, and for an unreachable store."""
    check_process(place.url)
    try:
        with panics_as_errors():
            yield
    except SimgenError:
        raise
    except Exception as error:
        what = describe(error)
        if what is not None:
            where = f"case {place.case}, array {place.array},"
            raise DamageError(what, place.url, place.version, where) from error
        if isinstance(error, icechunk.IcechunkError | OSError):
            raise StoreError(explain(place.url, str(error))) from error
        raise
