"""The faults that need no job to be seen: they do what they are said to."""

import contextlib
import http.client
import http.server
import os
import threading
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from bench.chaos.attempt import strike
from bench.chaos.schedule import KINDS, Fault, Moment, Schedule, unavailable
from bench.chaos.site import Site, small_file_system
from tests.store.proxy import Proxy

pytestmark = pytest.mark.nightly

BODY = b"x" * 20_000


class Server(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(BODY)

    def log_message(self, *_):
        pass


def fault(kind, strength=0.0):
    return Fault(kind, Moment("solving", 1, 0.0), lasts_s=0.0, strength=strength)


def needed(kind):
    missing = unavailable(KINDS[kind])
    return pytest.mark.skipif(missing is not None, reason=f"{kind} {missing}")


@pytest.fixture
def site(tmp_path):
    """A schedule's surroundings before anything is started in them."""
    return Site(Schedule(0, "local", "shared", False, ()), SimpleNamespace(), tmp_path)


@pytest.fixture
def proxied(site):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        site.proxy = Proxy(f"http://127.0.0.1:{server.server_address[1]}")
        with site.proxy.running() as endpoint:
            yield site, urlsplit(endpoint).netloc
        server.shutdown()


def get(netloc):
    connection = http.client.HTTPConnection(netloc, timeout=30)
    with contextlib.closing(connection):
        connection.request("GET", "/")
        answer = connection.getresponse()
        return answer.status, answer.read()


@pytest.mark.parametrize(("kind", "status"), [("S3 answers 500", 500), ("S3 answers 503", 503)])
def test_every_request_gets_the_error_until_it_heals(proxied, kind, status):
    site, netloc = proxied
    strike(SimpleNamespace(site=site), fault(kind))
    code, body = get(netloc)
    assert code == status and b"<Error>" in body
    site.heal()
    assert get(netloc) == (200, BODY)
    strike(SimpleNamespace(site=site), fault("S3 cuts bodies", strength=1.0))
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        get(netloc)


@needed("scratch full")
def test_a_full_disk_takes_no_byte_until_it_heals(site):
    with small_file_system(site.scratch, 4):
        strike(SimpleNamespace(site=site), fault("scratch full"))
        with pytest.raises(OSError, match="No space left"):
            (site.scratch / "file").write_bytes(b"x" * 8192)
        site.heal()
        (site.scratch / "file").write_bytes(b"x" * 8192)
    assert not os.path.ismount(site.scratch)
