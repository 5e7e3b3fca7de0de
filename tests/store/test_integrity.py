"""What a reader meets where a stored byte is not what was written."""

import numpy as np
import pytest
import zarr

import simgen
from bench.damage import DAMAGES, objects, restored
from simgen.errors import StoreError
from simgen.store.schema import digest_array, digest_case
from tests.store.conftest import add, make_cloud, make_result

pytestmark = pytest.mark.nightly


def read_all(dataset):
    """Every array of every case; the errors."""
    failed = []
    for case in dataset:
        for name in case.arrays():
            try:
                case[name][...]
            except StoreError as error:
                failed.append(str(error))
    return failed


@DAMAGES
def test_a_damaged_chunk_is_an_error_that_names_dataset_version_case_array_and_way_out(
    writer, url, damage
):
    add(writer, 0)
    writer.publish()
    chunks = objects(url, "chunks")
    assert chunks
    for chunk in chunks:
        with restored(chunk):
            damage(chunk)
            (message,) = read_all(simgen.open_dataset(url))
        assert message.startswith(f"{url} v1: case {make_result(0).id}, array ")
        assert "is damaged" in message
        assert message.endswith(
            f"restore the store from a copy, and list all damage with: courant dataset verify {url}"
            " --version v1"
        )
        assert "\n" not in message
    assert read_all(simgen.open_dataset(url)) == []


def test_a_wrong_index_is_the_callers_mistake_and_no_damage(writer, url):
    add(writer, 0)
    writer.publish()
    velocity = simgen.open_dataset(url)[0]["velocity"]
    with pytest.raises(IndexError):
        velocity[99]
    np.testing.assert_array_equal(velocity.oindex[[0, 2]], make_cloud(0).fields["velocity"][[0, 2]])
    np.testing.assert_array_equal(
        velocity.vindex[[0, 1], [3, 4], [0, 1]],
        make_cloud(0).fields["velocity"][[0, 1], [3, 4], [0, 1]],
    )
    assert isinstance(velocity, zarr.Array)


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
