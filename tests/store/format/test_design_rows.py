"""The design table as a committer follows it: rows as of a full reading, from new lines only."""

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from simgen.store.format import design_rows
from simgen.store.format.damage import DamagedError
from simgen.store.format.design_rows import DesignRows
from simgen.store.format.records import append_records, create_table, drop_table, read_content
from simgen.store.format.tables import create_tables, read_design

NAMES = st.sampled_from(["a", "b", "c", "é"])
BATCHES = st.lists(st.lists(st.fixed_dictionaries({"case": NAMES, "n": st.integers()})), max_size=6)


def make_root():
    root = zarr.create_group(zarr.storage.MemoryStore(), attributes={"schema_version": 5})
    create_tables(root)
    return root


@given(BATCHES, st.booleans())
@settings(deadline=None, max_examples=40)
def test_rows_are_those_of_a_full_reading_after_every_append(batches, replaced):
    root, rows = make_root(), DesignRows()
    assert rows.seen_in(root) == {}
    for number, batch in enumerate(batches):
        if replaced and number == 3:
            drop_table(root["design"])
            create_table(root["design"])
        append_records(root["design"], batch)
        expected = read_design(root)
        assert rows.seen_in(root) == expected
        assert list(rows.seen_in(root)) == list(expected) or replaced


def test_only_new_lines_are_read(monkeypatch):
    root, rows, read = make_root(), DesignRows(), []

    def counted(group, begin=0):
        read.append(len(content := read_content(group, begin)))
        return content

    monkeypatch.setattr(design_rows, "read_content", counted)
    for number in range(200):
        append_records(root["design"], [{"case": f"case {number}", "status": "accepted"}])
        assert len(rows.seen_in(root)) == number + 1
    assert max(read) < 3 * 50
    assert sum(read) < 200 * 3 * 50


def test_a_longer_table_of_other_lines_is_read_anew():
    root, rows = make_root(), DesignRows()
    append_records(root["design"], [{"case": "a", "n": 1}])
    rows.seen_in(root)
    drop_table(root["design"])
    create_table(root["design"])
    append_records(root["design"], [{"case": each, "n": 2} for each in "xyz"])
    assert rows.seen_in(root) == {each: {"n": 2} for each in "xyz"}


def test_a_damaged_line_is_told_and_nothing_of_its_reading_is_kept():
    root, rows = make_root(), DesignRows()
    append_records(root["design"], [{"case": "a", "n": 1}])
    rows.seen_in(root)
    append_records(root["design"], [{"case": "b", "n": 2}, {"case": "c", "n": 3}])
    array = root["design"]["records"]
    whole = np.array(array[:])
    array[-5:] = 0
    for _ in range(2):
        with pytest.raises(DamagedError):
            rows.seen_in(root)
    array[:] = whole
    assert rows.seen_in(root) == {"a": {"n": 1}, "b": {"n": 2}, "c": {"n": 3}}
