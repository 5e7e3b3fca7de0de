"""Variables that files of infra/ set are ones that somebody reads."""

import re
from pathlib import Path

from prefect.settings.models.root import Settings

from tests.infra.files import INFRA, ROOT

#: Read by botocore, SeaweedFS and Ray.
OTHERS = {
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_REGION"),
    *("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_ADDRESS"),
    "RAY_USAGE_STATS_ENABLED",
}
#: Settings of prefect-kubernetes 0.8, which the worker's image has.
WORKER = {
    "PREFECT_INTEGRATIONS_KUBERNETES_WORKER_API_AUTH_STRING_SECRET_NAME",
    "PREFECT_INTEGRATIONS_KUBERNETES_WORKER_API_AUTH_STRING_SECRET_KEY",
    "PREFECT_INTEGRATIONS_KUBERNETES_OBSERVER_NAMESPACES",
    "PREFECT_INTEGRATIONS_KUBERNETES_CLUSTER_UID",
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


def test_variables_of_prefect_are_settings_of_it() -> None:
    known = {name.upper() for name in aliases(Settings)}
    found = named("PREFECT")
    assert len(found) > 6
    assert set(found) - known - WORKER == {"PREFECT_AUTH"}


def aliases(model: type) -> set[str]:
    """Every name by which an environment variable sets a setting."""
    found: set[str] = set()
    prefix = model.model_config.get("env_prefix", "")
    for name, field in model.model_fields.items():
        found.add(prefix + name)
        choices = getattr(field.validation_alias, "choices", [])
        found |= {choice for choice in choices if isinstance(choice, str)}
        for inner in (field.annotation, *getattr(field.annotation, "__args__", ())):
            if isinstance(inner, type) and hasattr(inner, "model_fields"):
                found |= aliases(inner)
    return found


def test_other_variables_are_known_ones() -> None:
    assert set(named("RAY") | named("AWS")) - OTHERS == {"RAY_TOKEN"}
