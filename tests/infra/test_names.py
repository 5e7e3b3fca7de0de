"""Variables that files of infra/ set are ones that somebody reads."""

import re

from tests.infra.files import INFRA, ROOT

#: Of the files alone: their own questions to whoever installs, and what scripts hand to each other.
OWN = {"COURANT_ENV", "COURANT_IMAGE", "COURANT_HOST", "COURANT_SHM", "COURANT_ALERT_WEBHOOK"}


def test_variables_of_the_project_are_read_by_its_code() -> None:
    packages = ("flows", "courant", "simgen")
    files = [file for package in packages for file in (ROOT / package).rglob("*.py")]
    read = "\n".join(file.read_text() for file in files)
    paths = [path for path in (*INFRA.rglob("*"), ROOT / "prefect.yaml") if path.is_file()]
    texts = [path.read_text() for path in paths if path.suffix not in (".txt", ".pyc")]
    found = set(re.findall(r"\b(COURANT_[A-Z_]+[A-Z])\b", "\n".join(texts)))
    assert len(found) > 8
    assert {name for name in found if name not in read} <= OWN <= set(found) | {"COURANT_SHM"}
