#!/usr/bin/env python3
"""Write constraints/ and the images' lock files: a version of every package for each target.

    infra/constraints.py                  # needs uv: pip install uv

Users install with the file of their platform and Python, `pip install -c
constraints/macos-arm64-py3.12.txt ...`; it covers the optional parts as well. Here are only the
packages that the platform needs, all of which have wheels for it (PyFoam, which is plain Python,
has none anywhere). Images are built from lock files, which have the files' hashes too:

solving.txt   what a node needs that solves cases: no torch
training.txt  what flows, training, reports and Prefect's workers need: torch with CUDA

Versions are those of constraints.txt, which the tests ran with on Linux x86_64 and Python 3.11, so
that file decides. Run it after a change of pyproject.toml or constraints.txt; tests compare them.

A target whose packages cannot all be had is named, and gets no file.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "constraints"
IMAGES = ROOT / "infra/images"
TESTED = "linux-x86_64", "3.11"
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
#: PyFoam has no wheels on the package index.
WHEELS = ("--only-binary", ":all:", "--no-binary", "PyFoam")
#: Needed by training and its curves alone.
NOT_FOR_SOLVING = ("torch", "tensorboardX")
#: To install the project itself, without a download.
BUILD = ("setuptools>=77", "wheel")
EXTRAS = ("solvers", "tensorboard", "optimise", "mlflow", "kubernetes")


def requirements() -> list[str]:
    """Read what a user can ask for: the project, and every extra but that of the developers."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    return [
        *project["dependencies"],
        *(asked for name in optional if name != "dev" for asked in optional[name]),
    ]


def image_requirements() -> dict[str, list[str]]:
    """Read what each image asks for, by its lock file."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    base = [*project["dependencies"], *BUILD]
    extras = [asked for name in EXTRAS for asked in project["optional-dependencies"][name]]
    solving = [asked for asked in base if not asked.startswith(NOT_FOR_SOLVING)]
    return {"solving.txt": solving, "training.txt": [*base, *extras]}


def targets() -> Iterator[tuple[Path, list[str], str, str, Sequence[str]]]:
    """Yield each file, what it has to hold, its platform and Python, and options of uv."""
    for name, asked in image_requirements().items():
        yield IMAGES / name, asked, *TESTED, ["--generate-hashes"]
    for platform in PLATFORMS:
        for python in PYTHONS:
            file = OUT / f"{platform}-py{python}.txt"
            yield file, requirements(), platform, python, WHEELS


def compile_for(asked: list[str], platform: str, python: str, options: Sequence[str]) -> str:
    """Return the pins of a platform and Python; RuntimeError with uv's words if there are none."""
    with tempfile.NamedTemporaryFile("w", suffix=".in") as wanted:
        wanted.write("\n".join(asked))
        wanted.flush()
        command = ["uv", "pip", "compile", wanted.name, "-c", str(ROOT / "constraints.txt")]
        command += ["--no-annotate", "--no-header", "--quiet", *options]
        target = ["--python-version", python, "--python-platform", PLATFORMS[platform]]
        environment = {**os.environ, "MACOSX_DEPLOYMENT_TARGET": MACOS}
        done = subprocess.run([*command, *target], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return done.stdout


def main() -> int:
    """Write a file for every target; return 1 if an image or the tested platform has none."""
    OUT.mkdir(exist_ok=True)
    failed = []
    for file, *target in targets():
        try:
            pins = compile_for(*target)
        except RuntimeError as error:
            failed.append(file)
            file.unlink(missing_ok=True)
            print(f"{file.relative_to(ROOT)}: {error}", file=sys.stderr)
            continue
        file.write_text(f"# Written by infra/constraints.py; do not edit.\n{pins}")
        print(file.relative_to(ROOT), flush=True)
    tested = OUT / "{}-py{}.txt".format(*TESTED)
    return int(any(file == tested or file.parent == IMAGES for file in failed))


if __name__ == "__main__":
    sys.exit(main())
