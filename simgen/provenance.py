"""Record where a result came from: the generator's source revision, the machine and the user."""

import functools
import getpass
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

REVISION_FILE = "source_revision"
"""Stands beside the packages in a copy of the code that is sent elsewhere"""


@functools.cache
def source_revision() -> str:
    """Return this source tree's git revision (-dirty if changed), else the installed version."""
    root = Path(__file__).resolve().parent.parent
    if (root / REVISION_FILE).is_file():
        return (root / REVISION_FILE).read_text()
    if (root / ".git").exists() and shutil.which("git"):
        described = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"],
            capture_output=True,
            text=True,
        )
        if described.returncode == 0:
            return described.stdout.strip()
    return generator_version()


#: The distribution's name on PyPI, where `courant` alone belongs to another project.
DISTRIBUTION = "courant-surrogate"


@functools.cache
def generator_version() -> str:
    """Return the installed package's version."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"


def command_line() -> str:
    """Return the command that runs, as it was typed where it started."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])


def host_class() -> str:
    """Describe the machine that ran a case without naming it: architecture, processor and cores."""
    cpuinfo = Path("/proc/cpuinfo")
    named = re.search(r"model name\s*: (.*)", cpuinfo.read_text() if cpuinfo.is_file() else "")
    model = named[1].strip() if named else platform.processor() or platform.machine()
    return f"{platform.machine()}, {model}, {os.cpu_count()} cores"


def commit_metadata() -> dict[str, Any]:
    """Return who commits to a dataset, with which release and revision."""
    return {
        "author": author(),
        "generator_version": generator_version(),
        "source_revision": source_revision(),
    }


def author() -> str:
    """Return the user's name on this machine."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"  # a container's user without an entry in the password database


def core_seconds(provenance: Mapping[str, Any], stages: Sequence[str]) -> float | None:
    """Return what some stages of a case took of its cores; None where no time is on record.

    Processor time where the solver printed it, else wall time times cores: on a machine that other
    work shares, wall time is longer.
    """
    walls, processor = provenance.get("wall_time_s", {}), provenance.get("cpu_time_s", {})
    cores = float(provenance.get("cores", 1))
    known = [
        float(processor[stage]) if stage in processor else float(walls[stage]) * cores
        for stage in stages
        if stage in walls or stage in processor
    ]
    return sum(known) if known else None
