"""What the flows take from their environment and their options."""

import http.server
import os
import threading
from pathlib import Path

import httpx
import pytest

from flows.settings import absolute, keep_loopback_direct, load_settings
from simgen.errors import InputError


@pytest.mark.parametrize("url", ["s3:", "s3://", "s3:///store", "s3:/bucket/store"])
def test_a_bucket_that_is_missing_does_not_become_a_local_folder(url: str) -> None:
    with pytest.raises(InputError, match=f"{url} names no bucket; write s3://bucket/prefix"):
        absolute(url)
    assert absolute("store") == str(Path.cwd() / "store")
    assert absolute("s3://bucket/prefix") == "s3://bucket/prefix"


def test_cases_run_in_the_users_cache_and_not_where_others_may_plant_some(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("COURANT_SCRATCH", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load_settings().scratch == str(tmp_path / ".cache/courant/scratch")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert load_settings().scratch == str(tmp_path / "cache/courant/scratch")


def test_this_machines_own_servers_are_reached_without_a_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "example.com")
    monkeypatch.delenv("no_proxy", raising=False)
    keep_loopback_direct()
    assert os.environ["NO_PROXY"].startswith("example.com,")
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    threading.Thread(target=server.handle_request, daemon=True).start()
    with httpx.Client() as client:
        assert client.head(f"http://127.0.0.1:{server.server_port}/").status_code == 200
    server.server_close()
