"""The same on a real S3 server, and what wrong keys, a missing bucket and a dead endpoint say."""

import time

import numpy as np
import pytest

import simgen
from simgen.errors import InputError, StoreError
from simgen.store.write import DatasetWriter
from tests.store.conftest import SCHEMA, add, make_cloud

pytestmark = pytest.mark.end_to_end


def test_a_dataset_on_s3_is_written_published_and_read(s3):
    url = f"{s3.url}/store/cylinder-flow"
    writer = DatasetWriter.open(url, SCHEMA)
    add(writer, 0, 1, 2)
    assert writer.publish() == "v1"
    dataset = simgen.open_dataset(url)
    assert len(dataset.cases("test")) == 1
    np.testing.assert_array_equal(dataset[0]["velocity"][:], make_cloud(0).fields["velocity"])


def test_a_missing_dataset_on_s3_is_named(s3):
    with pytest.raises(InputError, match="there is no dataset at s3://courant-tests/nothing-here"):
        simgen.open_dataset(f"{s3.url}/nothing-here")


def test_a_missing_bucket_is_one_clear_line(s3):
    with pytest.raises((StoreError, InputError), match="s3://no-such-bucket"):
        DatasetWriter.open("s3://no-such-bucket/store", SCHEMA)


def test_an_endpoint_that_does_not_answer_is_named_within_seconds(s3, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    started = time.monotonic()
    with pytest.raises(StoreError, match=r"cannot be reached at http://127\.0\.0\.1:9"):
        simgen.open_dataset(f"{s3.url}/store/cylinder-flow")
    assert time.monotonic() - started < 30
