"""Print what is installed here as a CycloneDX list: Debian's packages and Python's.

    python sbom.py > sbom.cdx.json

It runs in an image as its last step, with the image's own Python, and needs nothing else. The
same content gives the same bytes: neither a time nor a random number is in it.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import uuid
from importlib.metadata import Distribution, distributions
from typing import Any
from urllib.parse import quote

Component = dict[str, Any]


def debian_packages() -> list[Component]:
    """List the installed packages of dpkg; none where there is no dpkg."""
    if shutil.which("dpkg-query") is None:
        return []
    form = "${db:Status-Abbrev}\t${Package}\t${Version}\t${Architecture}\n"
    done = subprocess.run(
        ["dpkg-query", "-W", f"-f={form}"], capture_output=True, text=True, check=True
    )
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    return [
        component(name, version, f"pkg:deb/debian/{quote(name)}@{quote(version)}?arch={machine}")
        for status, name, version, machine in rows
        if status.startswith("ii")
    ]


def python_packages() -> list[Component]:
    """List the distributions of this Python, each once."""
    found = {normalised(one): one for one in distributions() if one.metadata["Name"]}
    return [
        {
            **component(name, one.version, f"pkg:pypi/{quote(name)}@{quote(one.version)}"),
            **licences(one),
        }
        for name, one in found.items()
    ]


def normalised(one: Distribution) -> str:
    """Return the name by which indexes know it."""
    return re.sub(r"[-_.]+", "-", one.metadata["Name"]).lower()


def component(name: str, version: str, purl: str) -> Component:
    """Describe a package."""
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def licences(one: Distribution) -> Component:
    """Return its licence expression, where it states one."""
    stated = one.metadata.get("License-Expression")
    return {"licenses": [{"expression": stated}]} if stated else {}


def bill() -> dict[str, Any]:
    """Return the whole list."""
    components = sorted([*debian_packages(), *python_packages()], key=lambda one: one["purl"])
    content = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(components, sort_keys=True))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{content}",
        "version": 1,
        "metadata": {"component": {"type": "container", "name": "courant-surrogate"}},
        "components": components,
    }


if __name__ == "__main__":
    json.dump(bill(), sys.stdout, indent=1)
