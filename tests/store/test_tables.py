"""The tables over cases: appended JSON lines."""

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from simgen.store import schema
from simgen.store.schema import CaseTable, MismatchError, create_tables

lines = st.lists(
    st.dictionaries(
        st.text(max_size=5), st.text(max_size=40) | st.integers() | st.none(), max_size=4
    )
)


def make_root():
    root = zarr.create_group(zarr.storage.MemoryStore())
    create_tables(root)
    return root


def append(root, *records):
    return CaseTable(root, "design").append(records)


@given(st.lists(lines, max_size=5))
@settings(deadline=None, max_examples=25)
def test_what_is_appended_comes_back_in_order_and_by_place(appended):
    root = make_root()
    places = [place for batch in appended for place in append(root, *batch)]
    expected = [record for batch in appended for record in batch]
    table = CaseTable(root, "design")
    assert list(table.rows()) == expected
    assert [table.row(place) for place in places] == expected


def test_an_append_writes_the_last_chunk_and_those_after_it_only(monkeypatch):
    monkeypatch.setattr(schema, "TABLE_CHUNK_BYTES", 100)
    root = make_root()
    append(root, *({"number": number} for number in range(30)))
    store = root.store
    before = {key: value.to_bytes() for key, value in store._store_dict.items()}
    append(root, {"number": 99})
    changed = {
        key for key, value in store._store_dict.items() if before.get(key) != value.to_bytes()
    }
    last = int(np.prod(root["design/records"].cdata_shape)) - 1
    assert changed <= {
        "design/records/zarr.json",
        *(f"design/records/c/{each}" for each in (last - 1, last)),
    }


def test_a_missing_chunk_is_no_empty_table():
    root = make_root()
    append(root, {"case": "a"})
    del root.store._store_dict["design/records/c/0"]
    with pytest.raises(MismatchError, match="a record of design cannot be decoded"):
        list(CaseTable(root, "design").rows())


def test_brackets_in_brackets_are_damage_and_no_traceback():
    root = make_root()
    deep = b"[" * 100_000
    array = root["design/records"]
    array.resize((len(deep),))
    array[:] = list(deep)
    with pytest.raises(MismatchError, match="cannot be decoded"):
        list(CaseTable(root, "design").rows())
