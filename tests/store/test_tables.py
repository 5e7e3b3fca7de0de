"""The tables over cases: appended JSON lines; the digest of a case."""

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from simgen.store import schema
from simgen.store.schema import CaseTable, create_tables, digest_array, digest_case

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
    with pytest.raises(ValueError):
        list(CaseTable(root, "design").rows())


def test_the_digest_of_a_case_depends_on_its_content_alone():
    values = np.arange(12.0, dtype="f4").reshape(4, 3)

    def digest(**arrays):
        return digest_case({}, {name: digest_array(name, *of) for name, of in arrays.items()})

    one = digest(a=(values, "m"), b=(values,))
    assert one == digest(b=(values,), a=(np.asfortranarray(values), "m"))
    changed = values.copy()
    changed[3, 2] = np.nextafter(changed[3, 2], 99, dtype="f4")
    for other in (
        {"a": (changed, "m"), "b": (values,)},
        {"a": (values.reshape(3, 4), "m"), "b": (values,)},
        {"a": (values, "km"), "b": (values,)},
        {"a": (values.astype("f8"), "m"), "b": (values,)},
        {"a": (values, "m")},
    ):
        assert digest(**other) != one
