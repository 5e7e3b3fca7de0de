"""Benchmarks are run by hand, so the suite shows that they can be: every module is imported, and
what `make gpu` measures runs here at tiny sizes, on the CPU.
"""

import importlib
import inspect
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from bench import bench_gpu, bench_model, gpu_training
from bench.gpu_training import CHANNELS, PATCH_KINDS, TINY, make_task
from courant.data.normalisation import select_channels
from courant.models import build
from courant.recipes import get_recipe
from simgen.cases import FAMILIES
from simgen.store.schema import Schema
from tests.declared import USER_EXTRAS, declared, modules_of, names_of

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "bench"
MODULES = sorted(path.stem for path in FOLDER.glob("*.py"))
CPU = torch.device("cpu")


@pytest.mark.parametrize("name", MODULES)
def test_every_module_of_this_folder_can_be_imported(name: str) -> None:
    module = importlib.import_module(f"bench.{name}")
    if name.startswith("bench_"):
        assert list(inspect.signature(module.main).parameters) == ["out", "short"]


@pytest.fixture(scope="module")
def small_model_sizes() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        small = bench_model.Sizes(1, 40, 2, 60, 200, 64, (40, 80), (4, 8), (1, 2), 1, 64)
        patch.setattr(bench_model, "SHORT", small)
        yield


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory, small_model_sizes: None) -> dict[str, Any]:
    """Of one short run of all that needs no GPU."""
    out = tmp_path_factory.mktemp("bench")
    bench_gpu.main(out, short=True)
    return json.loads((out / "gpu.json").read_text())


@pytest.mark.nightly
def test_all_parts_of_the_gpu_benchmark_run(report: dict[str, Any]) -> None:
    assert report["short"]
    # The tests of the model, which the suite has run, are left to a machine with a GPU.
    assert all(report[part] for part in bench_gpu.PARTS if part != "tests")
    schedules = {row["recipe"]: row for row in report["schedules"]}
    assert set(schedules) == set(gpu_training.PUBLISHED)
    for row in schedules.values():
        assert row["epoch_s"] > 0 and row["peak_gb"] > 0
        assert all(map(math.isfinite, row["losses"]))
    assert len(report["models"]) == sum(map(len, gpu_training.PUBLISHED.values()))
    assert all(row["float32 ms"] > 0 and row["paper ms"] > 50 for row in report["models"])
    assert {row["batches"] for row in report["streaming"]} == {"resident", "streamed"}
    for row in report["accuracy"]:
        close = 1e-5 if row["precision"] != "bfloat16" else 0.05
        assert max(row[part] for part in ("field", "gradient", "decomposition", "padding")) < close


def test_the_models_benchmark_runs(tmp_path: Path, small_model_sizes: None) -> None:
    bench_model.main(tmp_path, short=True)
    written = json.loads((tmp_path / "model.json").read_text())
    assert set(written["curves"]) == {"N", "L", "T"}
    assert (tmp_path / "model.png").stat().st_size > 0


@pytest.mark.parametrize("family", TINY)
def test_made_up_data_have_the_channels_of_the_real_ones(family: str) -> None:
    experiment, schema = get_recipe(family), Schema.of(FAMILIES[family])
    assert select_channels(schema, experiment.data.fields) == CHANNELS[family]
    assert schema.patch_kinds == PATCH_KINDS[family]
    task = make_task(experiment, TINY[family], CPU)
    task.problem.check()
    _, batch = next(iter(task.train.epoch(1)))
    assert task.predict(build(experiment.model), batch).shape == batch.targets.shape


@pytest.mark.parametrize("target", [None, bench_gpu.PYTEST])
def test_the_gpu_benchmark_needs_only_the_packages_that_the_docs_name(
    target: list[str] | None, tmp_path: Path
) -> None:
    """All others that the project declares cannot be imported here."""
    page = (ROOT / "docs/gpu.md").read_text()
    named = re.search(r"uses only packages of that Python \(([^;]+);", page)
    assert named is not None
    there = names_of(named[1].replace("\n", " ").split(", ")) | {"pydantic-core"}
    lacking = sorted(modules_of(declared(*USER_EXTRAS, "dev") - there))
    assert {"ray", "zarr", "icechunk", "gmsh", "prefect"} <= set(lacking)
    (tmp_path / "sitecustomize.py").write_text(f"""
import importlib.abc, sys
class NotThere(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {lacking}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, NotThere())
""")
    command = [sys.executable, "-c", "import bench.bench_gpu"]
    if target is not None:
        command = [*target, "--collect-only"]
    # Plugins of packages that are installed here would be imported by pytest.
    alone = {"PYTHONPATH": str(tmp_path), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **alone}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
