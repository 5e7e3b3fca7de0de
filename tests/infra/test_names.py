"""Variables that files of infra/ set are ones that somebody reads."""

import re
from pathlib import Path

from tests.infra.files import INFRA, ROOT

#: Read by botocore, SeaweedFS and Ray.
OTHERS = {
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_REGION"),
    *("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_ADDRESS"),
    "RAY_USAGE_STATS_ENABLED",
}
#: Of the files alone: their own questions to whoever installs, and what scripts hand to each other.
OWN = {"COURANT_ENV", "COURANT_IMAGE", "COURANT_HOST", "COURANT_SHM", "COURANT_ALERT_WEBHOOK"}


def named(prefix: str) -> dict[str, Path]:
    """Variables with that prefix in files of infra/, and where each is."""
    found: dict[str, Path] = {}
    for path in [*INFRA.rglob("*"), ROOT / "prefect.yaml"]:
        if path.is_file() and path.suffix not in (".txt", ".pyc"):
            found |= dict.fromkeys(
                re.findall(rf"\b({prefix}_[A-Z_]+[A-Z])\b", path.read_text()), path
            )
    return found


def test_variables_of_the_project_are_read_by_its_code() -> None:
    packages = ("flows", "courant", "simgen")
    files = [file for package in packages for file in (ROOT / package).rglob("*.py")]
    read, found = "\n".join(file.read_text() for file in files), named("COURANT")
    assert len(found) > 8
    assert {name for name in found if name not in read} <= OWN <= set(found) | {"COURANT_SHM"}


def test_other_variables_are_known_ones() -> None:
    assert set(named("RAY") | named("AWS")) - OTHERS == {"RAY_TOKEN"}
