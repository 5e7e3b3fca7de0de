"""Images: pinned, not root, whole, and with no more than they need."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.infra.files import INFRA, PROJECT, ROOT, load, scripts

pytestmark = pytest.mark.nightly

IMAGES = INFRA / "images"
DOCKERFILE = (IMAGES / "Dockerfile").read_text()
BIN = Path(sys.executable).parent
PIN = re.compile(r"^([A-Za-z0-9][\w.-]*)==([^\s;\\]+)", re.M)


def instructions(name: str) -> list[str]:
    """The arguments of each instruction of that name, on one line."""
    lines = re.sub(r"\\\n\s*", "", DOCKERFILE).splitlines()
    return [line.removeprefix(f"{name} ") for line in lines if line.startswith(f"{name} ")]


def locked(name: str) -> dict[str, str]:
    found = PIN.findall((IMAGES / f"{name}.txt").read_text())
    return {canonicalize_name(package): version for package, version in found}


def test_linters_have_nothing_to_say() -> None:
    # Info: a user by number, as Kubernetes wants it, has no name that hadolint could look up.
    hadolint = [BIN / "hadolint", "--failure-threshold", "warning", IMAGES / "Dockerfile"]
    done = subprocess.run(hadolint, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert len(scripts()) > 8
    done = subprocess.run([BIN / "shellcheck", *scripts()], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_what_is_copied_is_there_and_reaches_the_builder() -> None:
    ignore = (IMAGES / "Dockerfile.dockerignore").read_text()
    allowed = tuple(line[1:] + "/" for line in ignore.splitlines() if line.startswith("!"))
    lines = [line for line in instructions("COPY") if not line.startswith("--from")]
    copied = [source for line in lines for source in line.split()[:-1]]
    assert len(copied) > 10
    for source in copied:
        assert (ROOT / source).exists(), source
        assert f"{source}/".startswith(allowed), source
    (base,) = (given for given in instructions("ARG") if given.startswith("DEBIAN="))
    assert re.search(r":bookworm-\d{8}-slim@sha256:[0-9a-f]{64}$", base)
    steps = {path.name for path in (IMAGES / "steps").iterdir()}
    assert set(re.findall(r"/tmp/steps/(\w+)", DOCKERFILE)) == steps


def test_lock_files_hold_what_the_project_asks_for_in_the_versions_that_are_tested() -> None:
    constraints = load(INFRA / "constraints.py")
    tested = {
        canonicalize_name(name): version
        for name, version in PIN.findall((ROOT / "constraints.txt").read_text())
    }
    for file, asked in constraints.image_requirements().items():
        held = locked(file.removesuffix(".txt"))
        for one in map(Requirement, asked):
            version = held.get(canonicalize_name(one.name))
            assert version, f"{one.name} is not in {file}: run infra/constraints.py"
            assert one.specifier.contains(version), f"{file}: {one.name} {version}"
        other = {name for name in held if tested.get(name, held[name]) != held[name]}
        assert other == set(), f"{file} has other versions than constraints.txt"
        blocks = re.split(r"^(?=[a-z])", (IMAGES / file).read_text(), flags=re.M)[1:]
        assert len(blocks) > 100
        assert [block.split()[0] for block in blocks if "--hash=sha256:" not in block] == []


def test_the_solving_image_has_no_torch_and_its_work_asks_for_none() -> None:
    held = locked("solving")
    assert [name for name in held if name.startswith(("torch", "nvidia", "triton"))] == []
    left_out = sorted(set(locked("training")) - set(held))
    code = f"""
import importlib.abc, sys
class NotThere(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        package = name.partition(".")[0].lower().replace("_", "-")
        if package in {left_out}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, NotThere())
import flows.solving, flows.ray_entrypoint, flows.ray_jobs, flows.stages
import simgen.solving.solve_case, simgen.solving.convert
from simgen.cases import FAMILIES
print(len(FAMILIES))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_list_of_packages_is_one_that_scanners_read() -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    bill = load(IMAGES / "sbom.py").bill()
    text = json.dumps(bill)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    names = {one["name"] for one in bill["components"] if one["purl"].startswith("pkg:pypi/")}
    required = {canonicalize_name(Requirement(one).name) for one in PROJECT["dependencies"]}
    assert required <= names
    references = [one["bom-ref"] for one in bill["components"]]
    assert len(references) == len(set(references))
