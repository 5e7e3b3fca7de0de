#!/usr/bin/env python3
"""Write constraints/: a version of every package for each platform and Python that can have all.

    infra/constraints.py                  # needs uv: pip install uv

Users install with the file of theirs, `pip install -c constraints/macos-arm64-py3.12.txt ...`; it
covers the optional parts as well. Versions are those of constraints.txt, which the tests ran with
on Linux x86_64 and Python 3.11, so that file decides; here are only the packages that the platform
needs, all of which have wheels for it (PyFoam, which is plain Python, has none anywhere). Run it
after a change of pyproject.toml or constraints.txt; a test compares them.

A platform whose packages cannot all be had is named, and gets no file.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "constraints"
PYTHONS = ("3.11", "3.12", "3.13")
#: By the name of the file: uv's name of the platform.
PLATFORMS = {
    "linux-x86_64": "x86_64-manylinux_2_28",
    "linux-aarch64": "aarch64-manylinux_2_28",
    "macos-arm64": "aarch64-apple-darwin",
    "windows-x86_64": "x86_64-pc-windows-msvc",
}
#: The oldest macOS that torch has wheels for.
MACOS = "14.0"
#: Without wheels on the package index.
PLAIN_PYTHON = "PyFoam"


def requirements() -> list[str]:
    """Read what a user can ask for: the project, and every extra but that of the developers."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    return [
        *project["dependencies"],
        *(asked for name in optional if name != "dev" for asked in optional[name]),
    ]


def compile_for(platform: str, python: str) -> str:
    """Return the pins of a platform and Python; RuntimeError with uv's words if there are none."""
    with tempfile.NamedTemporaryFile("w", suffix=".in") as wanted:
        wanted.write("\n".join(requirements()))
        wanted.flush()
        command = ["uv", "pip", "compile", wanted.name, "-c", str(ROOT / "constraints.txt")]
        options = ["--no-annotate", "--no-header", "--quiet"]
        options += ["--only-binary", ":all:", "--no-binary", PLAIN_PYTHON]
        target = ["--python-version", python, "--python-platform", PLATFORMS[platform]]
        environment = {**os.environ, "MACOSX_DEPLOYMENT_TARGET": MACOS}
        done = subprocess.run(
            [*command, *options, *target], env=environment, capture_output=True, text=True
        )
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return done.stdout


def main() -> int:
    """Write a file for every platform and Python; return 1 if the tested one has none."""
    OUT.mkdir(exist_ok=True)
    failed = []
    for platform in PLATFORMS:
        for python in PYTHONS:
            file = OUT / f"{platform}-py{python}.txt"
            try:
                pins = compile_for(platform, python)
            except RuntimeError as error:
                failed.append(file.stem)
                file.unlink(missing_ok=True)
                print(f"{file.stem}: {error}", file=sys.stderr)
                continue
            file.write_text(f"# Written by infra/constraints.py; do not edit.\n{pins}")
            print(file.relative_to(ROOT), flush=True)
    return int("linux-x86_64-py3.11" in failed)


if __name__ == "__main__":
    sys.exit(main())
