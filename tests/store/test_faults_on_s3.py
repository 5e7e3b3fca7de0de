"""A real S3 server that fails in every way that one can: each ends in a clear error or a completed
retry, and no version is hurt.
"""

from concurrent.futures import ThreadPoolExecutor

import numcodecs
import pytest
import s3fs

import simgen
from simgen.errors import StoreError
from simgen.publish.export import export
from simgen.store.verify import verify
from simgen.store.write import DatasetWriter
from tests.conftest import KEYS
from tests.store.conftest import SCHEMA, add, make_cloud, make_result, publish
from tests.store.proxy import Proxy

pytestmark = pytest.mark.end_to_end


@pytest.fixture
def proxy(s3, monkeypatch):
    proxy = Proxy(s3.endpoint)
    with proxy.running() as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        yield proxy


def one_line(error):
    assert "\n" not in str(error.value)
    assert KEYS["AWS_SECRET_ACCESS_KEY"] not in str(error.value)


def intact(url, cases):
    dataset = simgen.open_dataset(url)
    assert set(dataset.cases()) == {make_result(number).id for number in cases}
    assert verify(dataset).findings == []


def test_a_store_that_refuses_connections_is_a_clear_error_and_the_next_run_completes(proxy, s3):
    url = f"{s3.url}/refusing/cylinder-flow"
    writer = DatasetWriter.open(url, SCHEMA)
    publish(writer, 0)
    dataset, fork = simgen.open_dataset(url), writer.fork()
    fork.write(make_result(1), make_cloud(1))
    proxy.refuse()
    attempts = (
        lambda: writer.commit([fork]),
        lambda: simgen.open_dataset(url),
        lambda: dataset[0]["velocity"][:],
        lambda: DatasetWriter.open(f"{s3.url}/refusing/other", SCHEMA),
    )
    with ThreadPoolExecutor(len(attempts)) as threads:  # each is tried again for a while
        for failed in [threads.submit(attempt) for attempt in attempts]:
            with pytest.raises(StoreError, match=r"cannot be reached at http://127") as error:
                failed.result()
            one_line(error)
    proxy.heal()
    writer.commit([fork])  # the same fork: what it has written is still there
    writer.publish()
    intact(url, [0, 1])


def test_wrong_keys_are_named_by_every_reader_and_writer(s3, monkeypatch, tmp_path):
    url = f"{s3.url}/keys/cylinder-flow"
    writer = DatasetWriter.open(url, SCHEMA)
    publish(writer, 0)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-the-secret")
    for attempt in (lambda: simgen.open_dataset(url), lambda: DatasetWriter.open(url, SCHEMA)):
        with pytest.raises(StoreError, match="refused the credentials: check") as error:
            attempt()
        assert "not-the-secret" not in str(error.value)
        one_line(error)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEYS["AWS_SECRET_ACCESS_KEY"])
    intact(url, [0])


def test_no_secret_is_in_any_object_of_a_store(s3, monkeypatch):
    """Objects are searched as they are, and their zstd frames decompressed."""
    url = f"{s3.url}/secrets/cylinder-flow"
    writer = DatasetWriter.open(url, SCHEMA)
    add(writer, 0, 1, 2)
    writer.publish("a message", {"store": s3.url})
    export(simgen.open_dataset(url), f"{s3.url}/secrets/plain")
    files = s3fs.S3FileSystem(endpoint_url=s3.endpoint, skip_instance_cache=True)
    objects = files.find(f"{s3.url}/secrets")
    assert len(objects) > 30
    decompressed = 0
    for name in objects:
        content = files.cat_file(name)
        text = _decompressed(content)
        decompressed += text is not None
        content += text or b""
        for secret in KEYS.values():
            assert secret.encode() not in content, name
    assert decompressed > 5


def _decompressed(content):
    """The zstd frame in an object; a chunk of a table has a checksum of four bytes after it."""
    begin = content.find(b"\x28\xb5\x2f\xfd")
    for end in (len(content), len(content) - 4):
        try:
            return numcodecs.Zstd().decode(content[begin:end]) if begin >= 0 else None
        except RuntimeError:
            continue
    return None
