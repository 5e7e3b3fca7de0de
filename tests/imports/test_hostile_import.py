"""Whatever a stranger's importer hands over: a version, or one line and nothing on disk."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import simgen
from simgen.errors import InputError
from simgen.imports import (
    Field,
    Parameter,
    Source,
    SourceBoundary,
    SourceCase,
    import_cases,
    imported_schema,
)
from simgen.store.verify import verify
from tests.trials import trials

pytestmark = pytest.mark.nightly

FUZZ = settings(
    max_examples=trials(30),
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
SOURCE = Source("Somewhere", "https://example.org", "CC0")
SCHEMA = imported_schema(
    "fuzzed", dimension=2, fields=(Field("u", "K", ("value",)),), source=SOURCE
)
CASE = SourceCase("a", [[0, 0], [1, 0]], {"u": [1.0, 2.0]}, split="train")


class Hostile:
    """An array that cannot be had."""

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise RuntimeError("no\nsuch\x1b[2J array")


text = st.text(max_size=8) | st.sampled_from(
    ["../../x", "/etc/passwd", "a\0b", "\x1b[2J", "..", ".", "", "a" * 300, "CON", "é", "a\nb"]
)
numbers = st.integers() | st.floats() | st.booleans() | st.complex_numbers()
arrays = st.sampled_from(
    [
        np.zeros((2, 3)),
        np.zeros((2, 2, 2)),
        np.zeros(0),
        np.zeros((0, 2)),
        np.array(["a", "b"]),
        np.array([1, None]),
        np.array([np.nan, 1.0]),
        np.array([1e300, 1.0]),
        np.array([2**70, 1], dtype=object),
        np.datetime64("2020-01-01"),
        Hostile(),
        [[1], [1, 2]],
    ]
)
anything = st.none() | numbers | text | arrays | st.lists(numbers, max_size=4)
mappings = st.dictionaries(text | st.integers() | st.just("u"), anything, max_size=3)
boundaries = st.builds(SourceBoundary, anything, anything, anything, anything, mappings)


def changes(names: list[str]) -> st.SearchStrategy[dict[str, Any]]:
    """One or two of these attributes, each with anything in it."""
    return st.dictionaries(
        st.sampled_from(names), anything | mappings | boundaries, min_size=1, max_size=2
    )


@FUZZ
@given(changes([*vars(CASE)]))
def test_a_case_is_taken_or_told_in_one_line(changed: dict[str, Any]) -> None:
    folder = Path(tempfile.mkdtemp())
    url = folder / "store" / "fuzzed"
    try:
        import_cases(str(url), SCHEMA, [replace(CASE, **changed)])
    except InputError as error:
        assert "\n" not in str(error) and "\x1b" not in str(error)
        # A single case that is no training case has nothing to make statistics from.
        assert not url.exists() or "no training case" in str(error)
    else:
        dataset = simgen.open_dataset(url)
        assert verify(dataset).findings == []
        assert len(dataset) == 1
    finally:
        inside = {path.name for path in folder.iterdir()}
        shutil.rmtree(folder)
        assert inside <= {"store"}


GOOD = {
    "name": "fuzzed",
    "dimension": 2,
    "fields": (Field("u", "K", ("value",)),),
    "source": SOURCE,
    "transient": False,
    "parameters": (),
    "splits": "published",
    "grid_shape": None,
    "boundary": False,
    "volumes": False,
    "patch_kinds": (),
    "distance_kinds": (),
}
parts = st.one_of(
    st.builds(Field, text | st.just("u"), text, st.lists(text, max_size=2).map(tuple), text, text),
    st.builds(Parameter, text | st.just("p"), text, numbers, numbers, text),
    st.builds(Source, text, text, text),
)


@FUZZ
@given(
    st.dictionaries(
        st.sampled_from(sorted(GOOD)),
        anything | parts | st.lists(parts | text, max_size=3),
        min_size=1,
        max_size=2,
    )
)
def test_a_schema_is_taken_or_told_in_one_line(changed: dict[str, Any]) -> None:
    asked = {**GOOD, **changed}
    try:
        schema = imported_schema(asked.pop("name"), **asked)
    except InputError as error:
        assert "\n" not in str(error) and "\x1b" not in str(error)
    else:
        assert schema.family == Path(schema.family).name
        assert schema.of_role("solved")
