"""The model against the paper's equations read literally: training step, Gaussian windows,
decoding, and how cost grows.

The literal implementation (tests/model/literal.py) runs in the same process on the same weights,
once with the softmax spelled out and once on torch's fused attention kernel. On a machine with a
GPU everything runs there.
"""

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from bench.measure import exponent, matmul_peak, peak_bytes, race, seconds
from bench.report import plot, publish, show
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
    """Print the tables, write model.json and model.png."""
    sizes = SHORT if short else Sizes()
    peak = matmul_peak(DEVICE, sizes.matmul)
    parts = {
        f"training step, B {sizes.batch}, N {sizes.points}, T {sizes.steps}": training_step(
            sizes, peak
        ),
        f"Gaussian windows, N {sizes.window_points}, L 256": gaussian_window(sizes),
        **{
            f"decode, M {sizes.decode_points}, L {config.num_anchors}, T {steps}": decode(
                sizes, peak, config, steps
            )
            for config, steps in (
                (presets.cylinder_flow(), sizes.steps),
                (presets.branched_pipe(), 1),
            )
        },
    }
    for title, rows in parts.items():
        show(rows, title)
    found = curves(sizes)
    rows = [{"against": name, **row} for name, curve in found.items() for row in curve["rows"]]
    publish(
        out,
        "model",
        rows,
        "inference, one cloud",
        **{f"{name}_exponents": curve["exponents"] for name, curve in found.items()},
        parts=parts,
        curves=found,
        bars=BARS,
        device=torch.cuda.get_device_name() if DEVICE.type == "cuda" else platform.machine(),
        threads=torch.get_num_threads(),
        torch=torch.__version__,
        short=short,
        matmul_peak_gflops=peak / 1e9,
    )
    panels = [
        {
            "lines": {name: [[row[of] for row in curve["rows"]] for of in ("size", key)]},
            "title": f"{name}^{curve['exponents'][key]:.2f}",
            "xlabel": name,
            "ylabel": label,
        }
        for key, label in (("seconds", "time (s)"), ("peak_bytes", "peak memory (bytes)"))
        for name, curve in found.items()
    ]
    plot(out / "model.png", panels, len(found))


def measured(
    calls: Mapping[str, Callable[[], object]], repeats: int, peak: float | None = None
) -> list[dict[str, Any]]:
    """Seconds and memory of each beside the first; of the first, the share of the matrix-product
    peak.
    """
    taken = race(calls, repeats, partial(seconds, device=DEVICE))
    memory = {name: peak_bytes(call, DEVICE) for name, call in calls.items()}
    first = next(iter(calls))
    rows: list[dict[str, Any]] = [
        {
            "": name,
            "seconds": taken[name],
            "time over the first's": taken[name] / taken[first],
            "MB": memory[name] / 2**20,
            "memory over the first's": memory[name] / max(1, memory[first]),
        }
        for name in calls
    ]
    if peak is not None:
        with FlopCounterMode(display=False) as counter:
            calls[first]()
        share = counter.get_total_flops() / taken[first] / peak
        rows = [{**row, "share of the peak": share if row[""] == first else ""} for row in rows]
    return rows


def training_step(sizes: Sizes, peak: float) -> list[dict[str, Any]]:
    """Cyl.Flow: the whole step, AdamW included."""
    it = case(presets.cylinder_flow(), batch=sizes.batch, points=sizes.points, steps=sizes.steps)
    calls: dict[str, Callable[[], object]] = {
        "courant": lambda: it.step(it.model),
        "literal": lambda: it.step(it.literal(explicit_attention)),
        "literal, fused kernel": lambda: it.step(it.literal(fused_attention)),
    }
    return measured(calls, sizes.repeats, peak)


def gaussian_window(sizes: Sizes) -> list[dict[str, Any]]:
    """Br.Pipe on the full mesh: a training step with windows in encoder and decoder over one
    without any.
    """
    mesh = replace(presets.branched_pipe(), num_features=14)
    plain = case(mesh, batch=1, points=sizes.window_points)
    windowed = case(replace(mesh, gaussian_window="both"), batch=1, points=sizes.window_points)
    calls: dict[str, Callable[[], object]] = {
        "no window": lambda: plain.step(plain.model),
        "window": lambda: windowed.step(windowed.model),
        "window, literal": lambda: windowed.step(windowed.literal(fused_attention)),
    }
    return measured(calls, sizes.repeats)


@torch.no_grad()
def decode(sizes: Sizes, peak: float, config: CourantConfig, steps: int) -> list[dict[str, Any]]:
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
    return measured(calls, max(1, sizes.repeats // 2), peak)


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

            @torch.no_grad()
            def call(it: Case = it) -> Tensor:
                latents = it.model.rollout(it.model.encode(it.inputs), it.num_steps)
                return it.model.decode(latents, it.queries, chunk=sizes.decode_chunk)

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
        result[name] = {"rows": rows, "exponents": slopes}
    return result
