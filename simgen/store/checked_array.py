"""`case[field]`: a lazy Zarr array whose reads end in one clear line where a chunk is damaged or out of reach."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import icechunk
import zarr

from simgen.errors import SimgenError, StoreError
from simgen.store.damage import (
    DamageError,
    describe_damage,
    describe_metadata_damage,
    panics_as_errors,
)
from simgen.store.repository import explain


@dataclass(frozen=True)
class Place:
    """Where an array stands, for messages."""

    url: str
    version: str
    case: str
    array: str


class CheckedArray(zarr.Array):
    """A zarr.Array that raises StoreError, naming dataset, version, case and array, for what cannot be read as it was written.

    Everything else is zarr's: shape, dtype, chunks, attrs, slicing, `oindex`, `vindex`, `blocks`.
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
    """What a failed read of an array means, in one line that names it."""
    with reading_as(place, describe_damage):
        yield


@contextlib.contextmanager
def opening(place: Place) -> Iterator[None]:
    """The same for metadata, of which everything was valid when it was written."""
    with reading_as(place, describe_metadata_damage):
        yield


@contextlib.contextmanager
def reading_as(place: Place, describe: Callable[[Exception], str | None]) -> Iterator[None]:
    """StoreError for what `describe` takes for damage, and for a store that cannot be reached."""
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
