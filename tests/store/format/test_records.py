"""The tables over cases: appended JSON lines."""

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from simgen.store.format import records
from simgen.store.format.records import append_records, create_table, read_record, read_records

lines = st.lists(
    st.dictionaries(
        st.text(max_size=5), st.text(max_size=40) | st.integers() | st.none(), max_size=4
    )
)


def make_table():
    group = zarr.create_group(zarr.storage.MemoryStore())
    create_table(group)
    return group


@given(st.lists(lines, max_size=5))
@settings(deadline=None, max_examples=25)
def test_what_is_appended_comes_back_in_order_and_by_place(appended):
    group = make_table()
    places = [place for batch in appended for place in append_records(group, batch)]
    expected = [record for batch in appended for record in batch]
    assert list(read_records(group)) == expected
    assert [read_record(group, place) for place in places] == expected


def test_an_append_writes_the_last_chunk_and_those_after_it_only(monkeypatch):
    monkeypatch.setattr(records, "CHUNK_BYTES", 100)
    group = make_table()
    append_records(group, [{"number": number} for number in range(30)])
    store = group.store
    before = {key: value.to_bytes() for key, value in store._store_dict.items()}
    append_records(group, [{"number": 99}])
    changed = {
        key for key, value in store._store_dict.items() if before.get(key) != value.to_bytes()
    }
    last = int(np.prod(group["records"].cdata_shape)) - 1
    assert changed <= {"records/zarr.json", f"records/c/{last - 1}", f"records/c/{last}"}


def test_a_missing_chunk_is_no_empty_table():
    group = make_table()
    append_records(group, [{"case": "a"}])
    del group.store._store_dict["records/c/0"]
    with pytest.raises(ValueError, match="a record of / cannot be decoded"):
        list(read_records(group))
