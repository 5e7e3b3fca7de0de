"""The workgroup's server: a file that Compose reads, closed but for its door, and its secrets."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.infra.files import INFRA

COMPOSE = INFRA / "compose"
TEXT = (COMPOSE / "compose.yaml").read_text()
FILE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = FILE["services"]


def make_secrets(folder: Path, docker: str) -> subprocess.CompletedProcess[bytes]:
    """Call make-secrets in a folder with a `docker` that does as it is written here."""
    for name in ("make-secrets", "compose.yaml"):
        (folder / name).write_bytes((COMPOSE / name).read_bytes())
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin/docker").write_text(f"#!/bin/sh\n{docker}\n")
    (folder / "bin/docker").chmod(0o755)
    return subprocess.run(
        ["sh", str(folder / "make-secrets"), "courant-workgroup:1", "host.example.com"],
        env={"PATH": f"{folder}/bin:{os.environ['PATH']}"},
        capture_output=True,
    )


def test_make_secrets_writes_every_variable_once_for_its_user_alone(tmp_path: Path) -> None:
    failed = make_secrets(tmp_path, "exit 126")
    assert failed.returncode == 1 and b"nothing was written" in failed.stderr
    assert not (tmp_path / ".env").exists()
    # The password comes on the input: other users could see an argument.
    docker = "read -r password && [ ${#password} -eq 48 ] && echo '$2a$14$hash'"
    assert make_secrets(tmp_path, docker).returncode == 0
    assert (tmp_path / ".env").stat().st_mode & 0o077 == 0
    again = make_secrets(tmp_path, docker)
    assert again.returncode == 1 and b"is there already" in again.stderr
    lines = (tmp_path / ".env").read_text().splitlines()
    made = dict(line.split("=", 1) for line in lines)
    assert set(re.findall(r"\$\{(\w+)(?::\?[^}]*)?\}", TEXT)) == set(made)
    assert made["PEOPLE_HASH"] == "$$2a$$14$$hash", "Compose reads a dollar sign as a variable"
    drawn = [made[name] for name in ("PREFECT_AUTH", "RAY_TOKEN", "S3_SECRET", "POSTGRES_PASSWORD")]
    assert len(set(drawn)) == 4 and min(map(len, drawn)) >= 48


def test_networks_volumes_and_services_are_defined() -> None:
    known = {*SERVICES, *FILE["networks"], *FILE["volumes"]}
    for service in SERVICES.values():
        volumes = {volume.split(":")[0] for volume in service.get("volumes", [])}
        files = {volume for volume in volumes if volume.startswith(".")}
        assert all((COMPOSE / file).is_file() for file in files)
        assert {*service["networks"], *service.get("depends_on", {}), *volumes - files} <= known
    images = [one["image"] for one in SERVICES.values() if "COURANT_IMAGE" not in one["image"]]
    assert len(images) == 3
    assert all(re.search(r":[\w.-]+@sha256:[0-9a-f]{64}$", image) for image in images)


def test_only_the_proxy_is_reached_from_outside() -> None:
    assert [name for name, service in SERVICES.items() if "ports" in service] == ["proxy"]
    assert FILE["networks"]["behind"] == {"internal": True}
    settings = SERVICES["prefect"]["environment"]
    assert settings["PREFECT_SERVER_API_AUTH_STRING"] == "${PREFECT_AUTH}"
    assert settings["PREFECT_SERVER_CORS_ALLOWED_ORIGINS"] == settings["PREFECT_UI_URL"]
    for name, service in SERVICES.items():
        assert service["networks"] == (["door", "behind"] if name == "proxy" else ["behind"])


PROXIES = {
    "compose/Caddyfile": {"prefect:4200", "ray-head:8265", "tensorboard:6006", "metrics:9464"},
    "kubernetes/base/Caddyfile": {
        *("courant-prefect:4200", "courant-head-svc:8265", "courant-tensorboard:6006")
    },
}


@pytest.mark.parametrize("file", PROXIES)
def test_the_proxy_asks_for_a_password_wherever_the_server_behind_does_not(file: str) -> None:
    text = (INFRA / file).read_text()
    sites = re.findall(r"^\{\$COURANT_HOST\}.*?^\}", text, re.M | re.S)
    assert {re.search(r"reverse_proxy (\S+)", site)[1] for site in sites} == PROXIES[file]
    for site in sites:
        closed = "basicauth" in site and "{$PEOPLE_HASH}" in site
        assert closed or "prefect:4200" in site
        if ":8265" in site:
            assert re.search(r"@changes not method GET HEAD\n\s*respond @changes", site)
