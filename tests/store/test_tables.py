"""The tables over cases: appended JSON lines; and the design table as a committer follows it."""

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from simgen.store import schema
from simgen.store.schema import DamagedError, Table, create_tables, read_design
from simgen.store.write import _DesignRows

lines = st.lists(
    st.dictionaries(
        st.text(max_size=5), st.text(max_size=40) | st.integers() | st.none(), max_size=4
    )
)
NAMES = st.sampled_from(["a", "b", "c", "é"])
BATCHES = st.lists(st.lists(st.fixed_dictionaries({"case": NAMES, "n": st.integers()})), max_size=6)


def make_root():
    root = zarr.create_group(zarr.storage.MemoryStore())
    create_tables(root)
    return root


def append(root, *records):
    return Table(root, "design").append(records)


@given(st.lists(lines, max_size=5))
@settings(deadline=None, max_examples=25)
def test_what_is_appended_comes_back_in_order_and_by_place(appended):
    root = make_root()
    places = [place for batch in appended for place in append(root, *batch)]
    expected = [record for batch in appended for record in batch]
    table = Table(root, "design")
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
    with pytest.raises(DamagedError, match="a record of design cannot be decoded"):
        list(Table(root, "design").rows())


def test_brackets_in_brackets_are_damage_and_no_traceback():
    root = make_root()
    deep = b"[" * 100_000
    array = root["design/records"]
    array.resize((len(deep),))
    array[:] = list(deep)
    with pytest.raises(DamagedError, match="cannot be decoded"):
        list(Table(root, "design").rows())


@given(BATCHES, st.booleans())
@settings(deadline=None, max_examples=40)
def test_rows_are_those_of_a_full_reading_after_every_append(batches, replaced):
    root, rows = make_root(), _DesignRows()
    assert rows.seen_in(root) == {}
    for number, batch in enumerate(batches):
        if replaced and number == 3:
            Table(root, "design").clear()
        append(root, *batch)
        expected = read_design(root)
        assert rows.seen_in(root) == expected
        assert list(rows.seen_in(root)) == list(expected) or replaced


def test_only_new_lines_are_read(monkeypatch):
    root, rows, read, content_of = make_root(), _DesignRows(), [], Table.content

    def counted(table, begin=0):
        read.append(len(content := content_of(table, begin)))
        return content

    monkeypatch.setattr(Table, "content", counted)
    for number in range(200):
        append(root, {"case": f"case {number}", "status": "accepted"})
        assert len(rows.seen_in(root)) == number + 1
    assert max(read) < 3 * 50
    assert sum(read) < 200 * 3 * 50


def test_a_longer_table_of_other_lines_is_read_anew():
    root, rows = make_root(), _DesignRows()
    append(root, {"case": "a", "n": 1})
    rows.seen_in(root)
    Table(root, "design").clear()
    append(root, *({"case": each, "n": 2} for each in "xyz"))
    assert rows.seen_in(root) == {each: {"n": 2} for each in "xyz"}


def test_a_damaged_line_is_told_and_nothing_of_its_reading_is_kept():
    root, rows = make_root(), _DesignRows()
    append(root, {"case": "a", "n": 1})
    rows.seen_in(root)
    append(root, {"case": "b", "n": 2}, {"case": "c", "n": 3})
    array = root["design/records"]
    whole = np.array(array[:])
    array[-5:] = 0
    for _ in range(2):
        with pytest.raises(DamagedError):
            rows.seen_in(root)
    array[:] = whole
    assert rows.seen_in(root) == {"a": {"n": 1}, "b": {"n": 2}, "c": {"n": 3}}
