"""Where a result came from: the generator's source revision and the machine."""

from __future__ import annotations

import functools
import os
import platform
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

REVISION_FILE = "source_revision"
"""Beside the packages in a copy of the code that is sent elsewhere."""


@functools.cache
def source_revision() -> str:
    """The git revision of this source tree (with -dirty where it has changes), else the installed version."""
    root = Path(__file__).resolve().parent.parent
    if (root / REVISION_FILE).is_file():
        return (root / REVISION_FILE).read_text()
    if (root / ".git").exists() and shutil.which("git"):
        described = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"], capture_output=True, text=True
        )
        if described.returncode == 0:
            return described.stdout.strip()
    return generator_version()


@functools.cache
def generator_version() -> str:
    """The installed package's version."""
    try:
        return version("courant")
    except PackageNotFoundError:
        return "unknown"


def host_class() -> str:
    """What kind of machine ran a case, without naming it: architecture, processor and cores."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        names = [
            line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")
        ]
        model = names[0] if names else model
    return f"{platform.machine()}, {model}, {os.cpu_count()} cores"
