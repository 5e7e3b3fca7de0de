"""The model against the paper's equations read literally: training step, Gaussian windows,
decoding, and how cost grows.

The literal implementation (tests/model/literal.py) runs in the same process on the same weights,
once with the softmax spelled out and once on torch's fused attention kernel. On a machine with a
GPU everything runs there.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from bench.measure import exponent, matmul_peak, peak_bytes, race, seconds
from courant.field_model import Inputs, Queries
from courant.model import Courant, CourantConfig, presets
from tests.model.literal import (
    Attention,
    explicit_attention,
    fused_attention,
    literal_decode,
    literal_forward,
)

Forward = Callable[[Inputs, Queries, int], Tensor]
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BARS = {
    "training step": 5.0 if DEVICE.type == "cuda" else 2.5,
    "decode": 3.0,
    "window time": 1.08,
    "window memory": 1.05,
}


@dataclass(frozen=True)
class Sizes:
    """What is measured; `short` shows that everything runs, its figures mean nothing."""

    batch: int = 16
    points: int = 2_000
    steps: int = 10
    window_points: int = 37_000
    decode_points: int = 1_000_000
    decode_chunk: int = 16_384
    curve_points: tuple[int, ...] = (1_000, 4_000, 16_000, 64_000, 250_000, 1_000_000)
    curve_anchors: tuple[int, ...] = (16, 64, 256, 1_024)
    curve_steps: tuple[int, ...] = (1, 4, 16, 64)
    repeats: int = 7
    matmul: int = 4_096


SHORT = Sizes(2, 200, 3, 600, 4_000, 1_024, (500, 1_000, 2_000), (4, 8, 16), (1, 2, 4), 2, 256)


@dataclass(frozen=True)
class Case:
    """A model with inputs to call it on."""

    model: Courant
    inputs: Inputs
    queries: Queries
    num_steps: int
    target: Tensor
    optimiser: torch.optim.Optimizer

    def step(self, forward: Forward) -> None:
        """One training step through `forward`."""
        self.optimiser.zero_grad()
        field = forward(self.inputs, self.queries, self.num_steps)
        (field - self.target).square().mean().backward()
        self.optimiser.step()

    def literal(self, attention: Attention) -> Forward:
        def forward(inputs: Inputs, queries: Queries, num_steps: int) -> Tensor:
            return literal_forward(
                self.model,
                inputs.points,
                inputs.features,
                *queries,
                parameters=inputs.parameters,
                num_steps=num_steps,
                anchors=inputs.anchors,
                attention=attention,
            )

        return forward


def case(config: CourantConfig, *, batch: int, points: int, steps: int = 1) -> Case:
    """Encoder points are the decoder's queries, anchors are cached, as in training."""
    torch.manual_seed(0)
    model = Courant(config).to(DEVICE)
    cloud = 2 * torch.rand(batch, points, config.dimension, device=DEVICE) - 1

    def normal(*shape: int) -> Tensor:
        return torch.randn(batch, *shape, device=DEVICE)

    inputs = Inputs(
        cloud,
        normal(points, config.num_features),
        parameters=normal(config.num_parameters) if config.num_parameters else None,
        anchors=model.place_anchors(cloud),
    )
    queries = Queries(cloud, normal(points, config.num_query_features))
    target = normal(steps, points, config.num_outputs)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-5)
    return Case(model, inputs, queries, steps, target, optimiser)


def main(out: Path, short: bool) -> None:
    sizes = SHORT if short else Sizes()
    peak = matmul_peak(DEVICE, sizes.matmul)
    report: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if DEVICE.type == "cuda" else platform.machine(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "short": short,
        "matmul_peak_flops": peak,
        "training_step": training_step(sizes, peak),
        "gaussian_window": gaussian_window(sizes),
        "decode": [decode(sizes, peak, config, steps) for config, steps in decoded(sizes)],
        "curves": curves(sizes),
    }
    print(
        f"float32 matrix products: {peak / 1e9:.0f} GFLOP/s on {report['threads']} threads,"
        f" {DEVICE}"
    )
    (out / "model.json").write_text(json.dumps(report, indent=2))
    plot(report["curves"], out / "model.png")


def training_step(sizes: Sizes, peak: float) -> dict[str, Any]:
    """Cyl.Flow: the whole step, AdamW included."""
    it = case(presets.cylinder_flow(), batch=sizes.batch, points=sizes.points, steps=sizes.steps)
    calls: dict[str, Callable[[], object]] = {
        "courant": lambda: it.step(it.model),
        "literal": lambda: it.step(it.literal(explicit_attention)),
        "literal, fused kernel": lambda: it.step(it.literal(fused_attention)),
    }
    taken = race(calls, DEVICE, sizes.repeats)
    memory = {name: peak_bytes(call, DEVICE) for name, call in calls.items()}
    title = (
        f"training step, B {sizes.batch}, N {sizes.points}, L {it.model.config.num_anchors}, T"
        f" {sizes.steps}"
    )
    table(title, taken, memory, BARS["training step"])
    utilisation = flops(calls["courant"]) / taken["courant"] / peak
    print(f"  arithmetic: {100 * utilisation:.0f} % of the matrix-product peak")
    return {
        "seconds": taken,
        "peak_bytes": memory,
        "ratio": ratios(taken),
        "utilisation": utilisation,
    }


def gaussian_window(sizes: Sizes) -> dict[str, Any]:
    """Br.Pipe on the full mesh: a training step with windows in encoder and decoder over one
    without any.
    """
    plain = case(presets.branched_pipe_full_mesh(), batch=1, points=sizes.window_points)
    windowed = case(
        replace(presets.branched_pipe_full_mesh(), gaussian_window="both"),
        batch=1,
        points=sizes.window_points,
    )
    calls: dict[str, Callable[[], object]] = {
        "no window": lambda: plain.step(plain.model),
        "window": lambda: windowed.step(windowed.model),
        "window, literal": lambda: windowed.step(windowed.literal(fused_attention)),
    }
    taken = race(calls, DEVICE, sizes.repeats)
    memory = {name: peak_bytes(call, DEVICE) for name, call in calls.items()}
    table(f"Gaussian windows, N {sizes.window_points}, L 256", taken, memory, None)
    time_ratio = taken["window"] / taken["no window"]
    memory_ratio = memory["window"] / max(1, memory["no window"])
    print(
        f"  time x {time_ratio:.3f} (bar {BARS['window time']}), memory x {memory_ratio:.3f} (bar"
        f" {BARS['window memory']})"
    )
    return {
        "seconds": taken,
        "peak_bytes": memory,
        "time_ratio": time_ratio,
        "memory_ratio": memory_ratio,
    }


def decoded(sizes: Sizes) -> list[tuple[CourantConfig, int]]:
    return [(presets.cylinder_flow(), sizes.steps), (presets.branched_pipe(), 1)]


@torch.no_grad()
def decode(sizes: Sizes, peak: float, config: CourantConfig, steps: int) -> dict[str, Any]:
    """A latent trajectory at many query points; both sides in the same chunks of queries."""
    torch.manual_seed(0)
    model = Courant(config).to(DEVICE)
    Z = torch.randn(1, steps, config.num_anchors, config.width, device=DEVICE)
    x = 2 * torch.rand(1, sizes.decode_points, config.dimension, device=DEVICE) - 1
    xi = torch.randn(1, sizes.decode_points, config.num_query_features, device=DEVICE)

    def literal(attention: Attention) -> list[Tensor]:
        return [
            literal_decode(model, Z[:, t], part, features, None, attention)
            for t in range(steps)
            for part, features in zip(
                x.split(sizes.decode_chunk, 1), xi.split(sizes.decode_chunk, 1), strict=True
            )
        ]

    calls: dict[str, Callable[[], object]] = {
        "courant": lambda: model.decode(Z, Queries(x, xi), chunk=sizes.decode_chunk),
        "literal": lambda: literal(explicit_attention),
        "literal, fused kernel": lambda: literal(fused_attention),
    }
    taken = race(calls, DEVICE, max(1, sizes.repeats // 2))
    memory = {name: peak_bytes(call, DEVICE) for name, call in calls.items()}
    title = f"decode, M {sizes.decode_points}, L {config.num_anchors}, T {steps}"
    table(title, taken, memory, BARS["decode"])
    utilisation = flops(calls["courant"]) / taken["courant"] / peak
    print(f"  arithmetic: {100 * utilisation:.0f} % of the matrix-product peak")
    shape = {"points": sizes.decode_points, "anchors": config.num_anchors, "steps": steps}
    return {
        **shape,
        "seconds": taken,
        "peak_bytes": memory,
        "ratio": ratios(taken),
        "utilisation": utilisation,
    }


def curves(sizes: Sizes) -> dict[str, Any]:
    """Inference (encode, roll out, decode at the encoder's points) against N, L and T, one
    cloud.
    """
    base = presets.cylinder_flow()
    by_points = [(n, base, n, sizes.steps) for n in sizes.curve_points]
    by_anchors = [
        (count, replace(base, num_anchors=count), sizes.points, sizes.steps)
        for count in sizes.curve_anchors
    ]
    by_steps = [(steps, base, sizes.points, steps) for steps in sizes.curve_steps]
    result = {}
    for name, settings in (("N", by_points), ("L", by_anchors), ("T", by_steps)):
        rows = []
        for size, config, points, steps in settings:
            it = case(config, batch=1, points=points, steps=steps)
            call = inference(it, sizes.decode_chunk)
            call()
            memory = peak_bytes(call, DEVICE)
            rows.append(
                {
                    "size": size,
                    "seconds": min(seconds(call, DEVICE) for _ in range(2)),
                    "peak_bytes": memory,
                }
            )
        slopes = {
            key: exponent([row["size"] for row in rows], [row[key] for row in rows])
            for key in ("seconds", "peak_bytes")
        }
        print(
            f"against {name}: time ~ {name}^{slopes['seconds']:.2f}, peak memory ~"
            f" {name}^{slopes['peak_bytes']:.2f}"
        )
        for row in rows:
            print(
                f"  {name} {row['size']:>9,}  {row['seconds']:9.4f} s "
                f" {row['peak_bytes'] / 2**20:9.1f} MB"
            )
        result[name] = {"rows": rows, "exponents": slopes}
    return result


def inference(it: Case, chunk: int) -> Callable[[], Tensor]:
    @torch.no_grad()
    def call() -> Tensor:
        Z = it.model.rollout(it.model.encode(it.inputs), it.num_steps)
        return it.model.decode(Z, it.queries, chunk=chunk)

    return call


def flops(call: Callable[[], object]) -> int:
    """Multiplications and additions in matrix products and attention kernels."""
    with FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops()


def ratios(taken: dict[str, float]) -> dict[str, float]:
    return {name: value / taken["courant"] for name, value in taken.items() if name != "courant"}


def table(title: str, taken: dict[str, float], memory: dict[str, int], bar: float | None) -> None:
    first = next(iter(taken))
    print(title + (f" (bar: {bar} x)" if bar else ""))
    for name, value in taken.items():
        print(
            f"  {name:24} {value:9.4f} s  {memory[name] / 2**20:9.1f} MB  x"
            f" {value / taken[first]:.2f}"
        )


def plot(curves: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(2, len(curves), figsize=(4 * len(curves), 6), squeeze=False)
    for column, (name, curve) in enumerate(curves.items()):
        sizes = [row["size"] for row in curve["rows"]]
        for row, (key, unit, scale) in enumerate(
            (("seconds", "s", 1), ("peak_bytes", "MB", 2**-20))
        ):
            panel = panels[row][column]
            panel.loglog(sizes, [scale * point[key] for point in curve["rows"]], "o-")
            panel.set_title(f"{name}^{curve['exponents'][key]:.2f}")
            panel.set_xlabel(name)
            panel.set_ylabel(f"{'time' if row == 0 else 'peak memory'} [{unit}]")
            panel.grid(True, which="both", alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
