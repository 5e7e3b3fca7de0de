#!/usr/bin/env python3
"""Write the images' lock files: every package with its version and its files' hashes.

    infra/images/lock.py                  # needs uv: pip install uv

Versions are those of constraints.txt, which the tests ran with, where it has the package. Run it
after a change of pyproject.toml or constraints.txt; a test compares the three.

solving.txt   what a node needs that solves cases: no torch
training.txt  what flows, training, reports and Prefect's workers need: torch with CUDA
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PYTHON = "3.11"
#: Needed by training and its curves alone.
NOT_FOR_SOLVING = ("torch", "tensorboardX")
#: To install the project itself, without a download.
BUILD = ("setuptools>=77", "wheel")
EXTRAS = ("solvers", "tensorboard", "optimise", "mlflow", "kubernetes")


def requirements() -> dict[str, list[str]]:
    """Read what each image asks for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    base = [*project["dependencies"], *BUILD]
    extras = [asked for name in EXTRAS for asked in project["optional-dependencies"][name]]
    solving = [asked for asked in base if not asked.startswith(NOT_FOR_SOLVING)]
    return {"solving.txt": solving, "training.txt": [*base, *extras]}


def main() -> int:
    """Write both files; return the exit code of uv."""
    for name, asked in requirements().items():
        with tempfile.NamedTemporaryFile("w", suffix=".in") as wanted:
            wanted.write("\n".join(asked))
            wanted.flush()
            command = ["uv", "pip", "compile", wanted.name, "-c", str(ROOT / "constraints.txt")]
            options = ["--generate-hashes", "--no-annotate", "--no-header", "--quiet"]
            target = ["--python-version", PYTHON, "--python-platform", "x86_64-manylinux_2_28"]
            done = subprocess.run([*command, *options, *target], capture_output=True, text=True)
        if done.returncode:
            print(done.stderr, file=sys.stderr)
            return done.returncode
        (HERE / name).write_text(f"# Written by infra/images/lock.py; do not edit.\n{done.stdout}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
