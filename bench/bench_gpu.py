"""`make gpu`: all that takes a GPU to be seen, on one table. Without a GPU tiny sizes show that it
runs.

It needs torch, numpy, scipy, safetensors, pydantic, fsspec, tensorboardX, rich and pytest: no Ray,
Prefect, store or mesher, and no network. Data are made up, of the paper's sizes.
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from bench import bench_model, gpu_model, gpu_training

ROOT = Path(__file__).parents[1]
TESTED = ("tests/devices/",)
"""What needs neither store nor mesher"""


def main(out: Path, short: bool) -> None:
    """Print the table, write gpu.json after each part."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    short = short or device.type == "cpu"
    report: dict[str, Any] = {"machine": machine(device), "short": short}
    parts: dict[str, Callable[[], Any]] = {
        "accuracy": lambda: gpu_model.accuracy(device, short),
        "literal": lambda: literal(device, short),
        "predictions": lambda: gpu_model.predictions(device, short),
        "attending": lambda: gpu_model.attending(device, short),
        "decoding": lambda: gpu_model.decoding(device, short),
        "decompositions": lambda: gpu_model.decompositions(device, short),
        "steps": lambda: gpu_training.step_modes(device, short),
        "schedules": lambda: gpu_training.schedules(device, short),
        "streaming": lambda: gpu_training.streaming(device, short),
        "kernels": lambda: gpu_training.kernels(device, short),
    }
    if device.type == "cuda":
        parts = {"tests": lambda: tests(out), **parts}
    for name, part in parts.items():
        began = time.perf_counter()
        report[name] = part()
        report.setdefault("seconds", {})[name] = round(time.perf_counter() - began, 1)
        (out / "gpu.json").write_text(json.dumps(report, indent=1))
        print(f"-- {name}: {report['seconds'][name]} s", flush=True)
    Console(width=130).print(as_table(report))
    if any("failed" in count or "error" in count for _, count in report.get("tests", [])):
        raise SystemExit(f"tests failed; see {out}")


def machine(device: torch.device) -> dict[str, Any]:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {
        "device": name,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
    }


def literal(device: torch.device, short: bool) -> list[dict[str, Any]]:
    """A training step beside the equations read literally, on the same weights."""
    sizes = bench_model.SHORT if short else bench_model.Sizes()
    return [bench_model.training_step(sizes, bench_model.matmul_peak(device, sizes.matmul))]


def tests(out: Path) -> list[tuple[str, str]]:
    """The suite's tests of devices: pytest's count for each."""
    lines = []
    for target in TESTED:
        done = subprocess.run(pytest_of(target), cwd=ROOT, capture_output=True, text=True)
        written = done.stdout + done.stderr
        (out / f"{target.strip('/').replace('/', '-')}.log").write_text(written)
        told = [
            line for line in written.splitlines() if re.search(r"\d (passed|failed|error)", line)
        ]
        lines.append((target, (told or written.splitlines())[-1].strip("= ")))
        print(*lines[-1], flush=True)
    return lines


def pytest_of(target: str) -> list[str]:
    """tests/conftest.py starts servers that these tests do without, and imports what they need."""
    without = ["-p", "no:cacheprovider", f"--confcutdir={target.rpartition('/')[0]}"]
    return [sys.executable, "-m", "pytest", "-q", *without, target]


def as_table(report: dict[str, Any]) -> Table:
    """All parts, a line for each figure."""
    machine = report["machine"]
    title = f"{machine['device']}, torch {machine['torch']}, CUDA {machine['cuda']}"
    table = Table(
        "part",
        "of",
        "measured",
        title=title + " (tiny sizes: the figures mean nothing)" * report["short"],
    )
    for part, line in LINES.items():
        rows = report.get(part, [])
        for number, row in enumerate(rows):
            table.add_row(part if number == 0 else "", *line(row))
    return table


def _schedule(row: dict[str, Any]) -> tuple[str, str]:
    return (
        f"{row['recipe']}, {row['mode']}",
        (
            f"{row['epoch_s']:.2f} s an epoch, {row['samples_per_s']:.0f} samples/s,"
            f" {row['tflops']:.1f} TFLOP/s, whole schedule {row['schedule_s'] / 60:.1f} min (paper"
            f" {row['published_hours']} h), {row['peak_gb']:.1f} GB (paper {row['published_gb']})"
        ),
    )


def _accuracy(row: dict[str, Any]) -> tuple[str, str]:
    compared = ("field", "gradient", "decomposition", "padding")
    return f"{row['model']}, {row['precision']}", ", ".join(
        f"{name} {row[name]:.1e}" for name in compared
    )


def _literal(row: dict[str, Any]) -> tuple[str, str]:
    slower = ", ".join(f"{name} x {ratio:.2f}" for name, ratio in row["ratio"].items())
    return "Cyl.Flow, a training step", f"{1e3 * row['seconds']['courant']:.2f} ms, {slower}"


def _prediction(row: dict[str, Any]) -> tuple[str, str]:
    replayed = f", CUDA graph {row['CUDA graph']:.2f} ms" if "CUDA graph" in row else ""
    return (
        f"{row['model']}, {row['points']} points, {row['steps'] or 1} steps",
        f"eager {row['eager']:.2f} ms{replayed}",
    )


def _attending(row: dict[str, Any]) -> tuple[str, str]:
    ways = ("fused", "written out", "in parts")
    times = ", ".join(f"{way} {row[way]:.2f} ms" for way in ways)
    return f"{row['of']}, {row['precision']}", f"{times}; {row['chosen']}"


def _decoding(row: dict[str, Any]) -> tuple[str, str]:
    each = [
        f"{name} {row[f'{name} ms']:.2f} ms {row[f'{name} MB']:.0f} MB"
        for name in gpu_model.PRECISIONS
    ]
    return f"{row['model']}, {row['steps']} x {row['points']} points", ", ".join(each)


LINES: dict[str, Callable[[Any], tuple[str, str]]] = {
    "tests": lambda row: row,
    "accuracy": _accuracy,
    "literal": _literal,
    "steps": lambda row: (
        f"{row['recipe']}, {row['mode']}",
        f"{row['ms']:.2f} ms, host {row['host_ms']:.2f} ms, {row['peak_gb']:.1f} GB",
    ),
    "schedules": _schedule,
    "streaming": lambda row: (
        row["batches"],
        f"{row['samples_per_s']:.0f} samples/s, waiting for data {row['wait_share']:.1%}",
    ),
    "predictions": _prediction,
    "attending": _attending,
    "decoding": _decoding,
    "decompositions": lambda row: (
        f"{row['model']}, {row['points']} points",
        f"{row['ms']:.1f} ms, {row['MB']:.0f} MB",
    ),
}
