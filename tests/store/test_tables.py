"""The tables over cases: appended JSON lines; the digest of a case."""

import numpy as np
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

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
