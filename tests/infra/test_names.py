"""Variables that files of infra/ set are ones that somebody reads."""

import re
from importlib.util import find_spec
from pathlib import Path

from prefect.settings import get_current_settings
from prefect.settings.models.root import Settings

from tests.infra.files import INFRA, ROOT

#: Read by programs that are no package of this environment.
OTHERS = {
    "AWS_ACCESS_KEY_ID": "botocore, SeaweedFS",
    "AWS_SECRET_ACCESS_KEY": "botocore, SeaweedFS",
    "AWS_ENDPOINT_URL": "botocore",
    "AWS_REGION": "botocore",
    "RAY_AUTH_MODE": "Ray's C++ part",
    "RAY_AUTH_TOKEN": "Ray's C++ part",
    "RAY_AUTH_TOKEN_PATH": "Ray's C++ part",
    "RAY_ADDRESS": "Ray",
    "RAY_USAGE_STATS_ENABLED": "Ray",
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


def code() -> str:
    files = [
        path
        for package in ("flows", "courant", "simgen")
        for path in (ROOT / package).rglob("*.py")
    ]
    return "\n".join(path.read_text() for path in files)


def test_variables_of_the_project_are_read_by_its_code() -> None:
    read, found = code(), named("COURANT")
    assert len(found) > 8
    assert {
        name: path for name, path in found.items() if name not in read and name not in OWN
    } == {}
    for name in OWN - {"COURANT_SHM"}:
        assert found[name]


def test_variables_of_prefect_are_settings_of_it() -> None:
    known = {name.upper() for name in aliases(Settings)}
    found = named("PREFECT")
    assert len(found) > 6
    own = {"PREFECT_AUTH"}
    unknown = {name for name in found if name not in known} - WORKER - own
    assert unknown == set()
    assert get_current_settings()


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
    found = named("RAY") | named("AWS")
    own = {"RAY_TOKEN"}
    assert set(found) - set(OTHERS) - own == set()
    assert find_spec("botocore") and find_spec("ray")
