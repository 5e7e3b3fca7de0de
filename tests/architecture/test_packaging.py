"""What goes to others: a wheel that is whole, and a reader's environment without GPL libraries."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the files that git knows, so that nothing else of the tree can fill a gap."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    tracked = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in tracked.splitlines():
        if name.startswith(("simgen/", "courant/", "flows/")) or "/" not in name:
            target = source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).exists():
                target.write_bytes((ROOT / name).read_bytes())
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(out), str(source)],
        check=True,
        timeout=600,
    )
    (built,) = out.glob("courant_surrogate-*.whl")
    return built


def test_the_wheel_has_every_module_and_every_file_that_they_read(wheel: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    wanted = {
        str(path.relative_to(ROOT))
        for package in ("simgen", "courant", "flows")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert wanted - held == set()
    assert any(name.endswith("licenses/LICENSE") for name in held)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel, which finds the other packages in that of the tests."""
    place = tmp_path_factory.mktemp("installed") / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(place / "bin/python"), "install"]
    subprocess.run([*pip, "--quiet", "--no-deps", "--no-index", str(wheel)], check=True)
    (packages,) = place.glob("lib/python*/site-packages")
    # Of a folder that is named in a file, Python reads no further such files: not the one that
    # leads to the repository.
    (packages / "packages_of_the_tests.pth").write_text(sysconfig.get_path("purelib"))
    return place


def test_the_wheels_command_runs_where_the_repository_is_not(
    installed: Path, tmp_path: Path
) -> None:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(installed / "bin/courant"), "doctor"],
        cwd=tmp_path,
        env={**clean, "COURANT_STORE": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr


def test_reading_training_and_predicting_need_no_gpl_library_and_no_compiler() -> None:
    code = """
import sys
import simgen.store.read, courant.prediction.surrogate, courant.training.train
import courant.evaluation.evaluate, courant.report.report, simgen.cases, torch
import jsonschema  # with rfc3987_syntax beside it, it builds a grammar for two seconds
from courant.model import farthest_point_sampling
farthest_point_sampling(torch.rand(1, 9, 2), 3)
needless = ("gmsh", "pyfoam", "rfc3987_syntax", "lark", "torch._dynamo")  # the last: two seconds
print([name for name in sys.modules if name.lower().startswith(needless)])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600
    )
    assert done.stdout.strip() == "[]"
