"""`make gpu`: all that takes a GPU to be seen. Without a GPU tiny sizes show that it runs.

It needs torch, numpy, scipy, safetensors, pydantic, fsspec, filelock, tensorboardX, rich and
pytest: no Ray, Prefect, store or mesher, and no network. Data are made up, of the paper's sizes.
"""

import json
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from bench import bench_model, gpu_training
from bench.gpu_training import matmul_precision
from bench.measure import matmul_peak, peak_bytes, synchronise
from bench.report import show
from courant.field_model import Inputs as ModelInputs
from courant.field_model import Queries
from courant.model import Courant, CourantConfig, presets
from courant.model.attention import in_parts, way_on_gpu, written_out
from courant.training.step import Replayed, Tensors
from tests.model.literal import fused_attention, literal_forward

ROOT = Path(__file__).parents[1]
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
# tests/conftest.py starts servers that these tests do without, and imports what they need.
PYTEST += ["--confcutdir=tests/devices", "tests/devices/"]
Part = Callable[[torch.device, bool], list[dict[str, Any]]]


def main(out: Path, short: bool) -> None:
    """Print a table and write gpu.json after each part."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    short = short or device.type == "cpu"
    machine = {
        "device": torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else platform.machine(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
    }
    report: dict[str, Any] = {"machine": machine, "short": short, "seconds": {}}
    show([{**machine, "tiny sizes: the figures mean nothing": short}])
    for name, part in PARTS.items():
        began = time.perf_counter()
        report[name] = (
            tests(out) if name == "tests" and device.type == "cuda" else part(device, short)
        )
        report["seconds"][name] = round(time.perf_counter() - began, 1)
        (out / "gpu.json").write_text(json.dumps(report, indent=1))
        if report[name]:
            show(report[name], f"{name}, {report['seconds'][name]} s")
    if any("failed" in row["outcome"] or "error" in row["outcome"] for row in report["tests"]):
        raise SystemExit(f"tests failed; see {out}")


def tests(out: Path) -> list[dict[str, Any]]:
    """The suite's tests of devices: pytest's count."""
    done = subprocess.run(PYTEST, cwd=ROOT, capture_output=True, text=True)
    lines = (done.stdout + done.stderr).splitlines()
    (out / "tests-devices.log").write_text("\n".join(lines))
    counts = [line for line in lines if re.search(r"\d (passed|failed|error)", line)]
    return [{"tests": "tests/devices", "outcome": (counts or lines)[-1].strip("= ")}]


def literal(device: torch.device, short: bool) -> list[dict[str, Any]]:
    """A training step beside the equations read literally, on the same weights."""
    sizes = bench_model.SHORT if short else bench_model.Sizes()
    return bench_model.training_step(sizes, matmul_peak(device, sizes.matmul))


PRECISIONS = ("float32", "TF32", "bfloat16")


def models(short: bool) -> dict[str, tuple[CourantConfig, int, int, int]]:
    """Configuration, clouds, points in the encoder, steps."""
    if short:
        small = replace(presets.cylinder_flow(), width=24, num_anchors=8)
        windowed = replace(small, gaussian_window="both")
        return {"small": (small, 1, 40, 2), "small, windows": (windowed, 1, 40, 2)}
    return {
        "Cyl.Flow": (presets.cylinder_flow(), 8, 2_400, 10),
        "Br.Pipe": (presets.branched_pipe(), 1, 12_000, 1),
        "Br.Pipe, windows": (
            replace(presets.branched_pipe(), gaussian_window="both"),
            1,
            12_000,
            1,
        ),
    }


def example(
    config: CourantConfig, device: torch.device, clouds: int, points: int, queries: int
) -> tuple[Courant, dict[str, Tensor]]:
    """A model away from its initial values, and inputs; float64."""
    torch.manual_seed(0)
    model = Courant(config).double().to(device)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    cloud = 2 * torch.rand(clouds, points, config.dimension, device=device, dtype=torch.float64) - 1
    anchors = model.place_anchors(cloud)
    assert anchors is not None, "the paper's models sample their anchors"
    inputs = {
        "points": cloud,
        "features": torch.randn(clouds, points, config.num_features, device=device).double(),
        "query_points": 2 * torch.rand(clouds, queries, config.dimension, device=device).double()
        - 1,
        "query_features": torch.randn(
            clouds, queries, config.num_query_features, device=device
        ).double(),
        "anchors": anchors,
    }
    if config.num_parameters:
        inputs["parameters"] = torch.randn(clouds, config.num_parameters, device=device).double()
    return model, inputs


def accuracy(device: torch.device, short: bool) -> list[dict[str, Any]]:
    """Field, gradients, decomposition and padding of each precision against the literal equations
    in float64: |a - b| / |b|."""
    rows = []
    for name, (config, clouds, points, steps) in models(short).items():
        model, inputs = example(config, device, clouds, points, points)
        expected = literal_forward(model, **inputs, num_steps=steps, attention=fused_attention)
        weight = torch.randn_like(expected)
        gradient = flat_gradient(model, expected, weight)
        fast = Courant(config).to(device)
        fast.load_state_dict({key: value.float() for key, value in model.state_dict().items()})
        given = {key: value.float() for key, value in inputs.items()}
        for precision in PRECISIONS:
            with (
                matmul_precision(precision == "TF32"),
                torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16"),
            ):
                field = fast(*arguments(given), steps)
                found = flat_gradient(fast, field, weight.float())
                parts = fast.decompose(*arguments(given), steps)
                whole = (
                    torch.cat([part.contributions.sum(-3) for part in parts.chunks(4_096)], dim=-2)
                    + parts.offset
                )
                mask = pad(
                    torch.ones(given["points"].shape[:2], dtype=torch.bool, device=device), (0, 64)
                )
                longer = {
                    key: pad(given[key], (0, 0, 0, 64), value=float("nan"))
                    for key in ("points", "features")
                }
                with torch.no_grad():
                    padded = fast(*arguments({**given, **longer}, mask), steps)
            rows.append(
                {
                    "model": name,
                    "precision": precision,
                    "field": apart(field, expected),
                    "gradient": apart(found, gradient),
                    "decomposition": apart(whole, field),
                    "padding": apart(padded, field),
                }
            )
    return rows


def arguments(
    tensors: Mapping[str, Tensor], mask: Tensor | None = None
) -> tuple[ModelInputs, Queries]:
    """Of the model, from tensors by name."""
    given = dict(tensors)
    queries = Queries(given.pop("query_points"), given.pop("query_features", None))
    return ModelInputs(**given, mask=mask), queries


def flat_gradient(model: Courant, field: Tensor, weight: Tensor) -> Tensor:
    model.zero_grad()
    (field * weight).sum().backward()
    return torch.cat(
        [parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None]
    )


def apart(value: Tensor, reference: Tensor) -> float:
    value, reference = value.detach().double(), reference.detach().double()
    return float((value - reference).norm() / reference.norm())


def predictions(device: torch.device, short: bool) -> list[dict[str, Any]]:
    """One case, encoder points as queries: eager, and replayed from a CUDA graph."""
    rows = []
    cases = [
        (name, config, points, steps) for name, (config, _, points, steps) in models(short).items()
    ]
    # A rollout of many steps as well: a graph saves most where kernels are small and many.
    cases += [
        (name, config, points, 10 * steps)
        for name, config, points, steps in cases
        if config.transient
    ]
    for name, config, points, steps in cases:
        model, inputs = example(config, device, 1, points, points)
        model, inputs = model.float(), {key: value.float() for key, value in inputs.items()}

        @torch.no_grad()
        def call(given: Tensors, model: Courant = model, steps: int = steps) -> Tensor:
            return model(*arguments(given), steps)

        contenders: dict[str, Callable[[Tensors], Tensor]] = {"eager": call}
        if device.type == "cuda":
            contenders["CUDA graph"] = Replayed(call)
        row: dict[str, Any] = {"model": name, "points": points, "steps": steps}
        for kind, contender in contenders.items():
            row[kind] = 1e3 * seconds_of(partial(contender, inputs), device)
        rows.append(row)
    return rows


def decoding(device: torch.device, short: bool) -> list[dict[str, Any]]:
    """A latent at many query points in chunks: milliseconds and memory beyond the field itself."""
    rows = []
    sizes = (100, 200) if short else (1_000, 10_000, 100_000, 1_000_000)
    decoded = {name: each for name, each in models(short).items() if "windows" not in name}
    for name, (config, _, _, steps) in decoded.items():
        for queries in sizes:
            torch.manual_seed(0)
            model = Courant(config).to(device)
            Z = torch.randn(1, steps, config.num_anchors, config.width, device=device)
            x = 2 * torch.rand(1, queries, config.dimension, device=device) - 1
            xi = torch.randn(1, queries, config.num_query_features, device=device)
            row: dict[str, Any] = {"model": name, "steps": steps, "points": queries}
            for precision in PRECISIONS:
                with (
                    torch.no_grad(),
                    matmul_precision(precision == "TF32"),
                    torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16"),
                ):
                    call = lambda: model.decode(Z, Queries(x, xi), chunk=65_536)  # noqa: B023, E731
                    row[f"{precision} ms"] = 1e3 * seconds_of(call, device)
                    row[f"{precision} MB"] = peak_bytes(call, device) / 1e6
            rows.append(row)
    return rows


ATTENDING = {
    "encoder, one case of the pipe": (1, 256, 12_000),
    "encoder, one case of the pump": (1, 256, 58_774),
    "encoder, 8 windows of the cylinder": (8, 64, 2_400),
    "encoder, 100 windows of the cylinder": (100, 64, 2_400),
    "encoder, 100 windows of its preset": (100, 64, 4_900),
    "decoder, one case of the pipe": (1, 37_000, 256),
    "decoder, one case of the pump": (1, 300_000, 256),
    "decoder, 16,000 queries": (1, 16_000, 256),
    "decoder, 16,000 queries, 64 anchors": (16, 16_000, 64),
}
"""Clouds, queries and keys of attentions with three heads of 48 channels"""


def attending(device: torch.device, short: bool) -> list[dict[str, Any]]:
    """Forward and backward pass of an attention by the fused kernel and by each other way."""
    rows = []
    for name, sizes in ATTENDING.items():
        most = (2, 100, 100) if short else sizes
        clouds, num_queries, num_keys = (min(pair) for pair in zip(sizes, most, strict=True))
        for dtype in (torch.float32, torch.bfloat16):
            given = [
                torch.randn(clouds, 3, n, 48, device=device, dtype=dtype, requires_grad=True)
                for n in (num_queries, num_keys, num_keys)
            ]
            weight = torch.randn_like(given[0])
            row: dict[str, Any] = {"of": name, "precision": str(dtype).removeprefix("torch.")}
            ways: dict[str, Callable[..., Tensor]] = {
                "fused": scaled_dot_product_attention,
                "written out": written_out,
                "in parts": in_parts,
            }
            for kind, way in ways.items():

                def both(way: Callable[..., Tensor] = way) -> None:
                    torch.autograd.grad(way(*given, scale=0.15), given, weight)  # noqa: B023

                row[kind] = 1e3 * seconds_of(both, device)
            chosen = way_on_gpu(*given[:2])
            row["chosen"] = next(kind for kind, way in ways.items() if way is chosen)
            rows.append(row)
    return rows


def seconds_of(call: Callable[[], object], device: torch.device, repeats: int = 10) -> float:
    """The mean of some calls one after another, after three that warm up."""
    for _ in range(3):
        call()
    synchronise(device)
    began = time.perf_counter()
    for _ in range(repeats):
        call()
    synchronise(device)
    return (time.perf_counter() - began) / repeats


PARTS: dict[str, Part] = {
    "tests": lambda device, short: [],  # on a GPU alone
    "accuracy": accuracy,
    "literal": literal,
    "predictions": predictions,
    "attending": attending,
    "decoding": decoding,
    "steps": gpu_training.step_modes,
    "models": gpu_training.models,
    "schedules": gpu_training.schedules,
    "streaming": gpu_training.streaming,
}
