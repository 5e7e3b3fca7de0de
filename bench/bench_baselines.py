"""Courant beside the baselines at the same number of points: a training step, and a prediction.

Sizes are the paper's for the pipe (tab:hvac-hparams), weights random: they cost the same. One cloud
of N points is read, and its points are the queries. In training the anchors of a case are known
beforehand, since they are kept with it; a prediction places them first, and has its queries in
chunks. Baselines look for neighbours each time. On a CPU the processor time counts, so that other
work on the machine does not. Each model has a process of its own: what others leave of its memory
decides how many pages a call must fetch, up to a fifth of its time. A model that has taken long, or
would need more memory than there is, is left out from then on. Results are written after every
number of points, so that a run which is cut short keeps what it has.
"""

import json
import os
import platform
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import torch

from bench.measure import peak_bytes, processor_seconds
from bench.report import plot, publish, show
from courant.field_model import Inputs, Queries
from courant.model import presets
from courant.model.coordinates import farthest_point_sampling, gather_points
from courant.model_config import ModelConfig
from courant.models import build
from courant.recipes import get_recipe
from courant.training.workers import use_threads

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
WORKS = ("training step", "prediction")
T = TypeVar("T")
CHUNK = 16_384
_TIME = "wall time (s)" if DEVICE.type == "cuda" else "processor time (s)"
_NAMES = {
    "courant": "Courant",
    "courant-gwa": "Courant, Gaussian windows",
    "transolver": "Transolver",
    "upt": "UPT",
    "mgn": "MeshGraphNet",
}


@dataclass(frozen=True)
class Sizes:
    """What is measured; `short` shows that everything runs, its figures mean nothing."""

    points: tuple[int, ...] = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
    repeats: int = 3
    most_repeated_s: float = 15.0
    """Works that took longer are measured once"""
    most_s: float = 60.0
    """A model that took longer is not asked for more points"""
    most_memory: float = 0.5
    """Share of the machine's free memory that a call may be expected to take"""


SHORT = Sizes((200, 400), 1)


class Worker:
    """A model in this process, and what it is asked to do again."""

    def __init__(self, name: str, threads: int) -> None:
        use_threads(threads)
        torch.manual_seed(0)
        self.model = build(configs()[name]).to(DEVICE)
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=1e-5)
        self.call: Callable[[], object] = lambda: None

    def prepare(self, work: str, num: int) -> None:
        """Make a cloud; in training the anchors are known."""
        torch.manual_seed(num)
        points, config = 2 * torch.rand(1, num, 3, device=DEVICE) - 1, self.model.config
        anchors = None
        if work == WORKS[0] and config.num_sampled_anchors:
            chosen = farthest_point_sampling(points, config.num_sampled_anchors, None)
            anchors = gather_points(points, chosen)
        features, queried = (
            torch.randn(1, num, channels, device=DEVICE)
            for channels in (config.num_features, config.num_query_features)
        )
        do = self._step if work == WORKS[0] else self._predict
        inputs = Inputs(points, features, anchors=anchors)
        self.call = partial(do, inputs, Queries(points, queried))

    def _step(self, inputs: Inputs, queries: Queries) -> None:
        self.optimiser.zero_grad()
        self.model(inputs, queries).square().mean().backward()
        self.optimiser.step()

    @torch.no_grad()
    def _predict(self, inputs: Inputs, queries: Queries) -> None:
        self.model.predict(inputs, queries, chunk=CHUNK)


_worker: Worker
"""That of a process which `Contender` has started"""


def _start(name: str, threads: int) -> None:
    global _worker
    _worker = Worker(name, threads)


def _prepare(work: str, num: int) -> None:
    _worker.prepare(work, num)


def _seconds() -> float:
    return processor_seconds(_worker.call, DEVICE)


def _peak() -> int:
    return peak_bytes(_worker.call, DEVICE)


class Contender:
    """A model in a process of its own, and the works at which it has become too slow."""

    def __init__(self, name: str) -> None:
        self._process = ProcessPoolExecutor(
            1, get_context("spawn"), _start, (name, torch.get_num_threads())
        )
        self.ended: set[str] = set()
        self.per_point: dict[str, float] = {}
        """Bytes of each work over the number of points, as measured last"""

    def ask(self, what: Callable[..., T], *arguments: object) -> T:
        return self._process.submit(what, *arguments).result()

    def end(self) -> None:
        self._process.shutdown()


def configs() -> dict[str, ModelConfig]:
    """Return the models by name, each of which reads the whole mesh."""
    courant = replace(presets.branched_pipe(), num_features=14, num_parameters=0)
    mgn = get_recipe("branched-pipe-mgn").derive(model={"edges": "nearest"}).model
    return {
        "courant": courant,
        "courant-gwa": replace(courant, gaussian_window="both"),
        **{kind: get_recipe(f"branched-pipe-{kind}").model for kind in ("transolver", "upt")},
        "mgn": mgn,
    }


def main(out: Path, short: bool) -> None:
    """Print the table, write baselines.json and baselines.png."""
    sizes = SHORT if short else Sizes()
    contenders = {name: Contender(name) for name in configs()}
    rows: list[dict[str, Any]] = []
    try:
        for num in sizes.points:
            for work in WORKS:
                found = _race(contenders, work, num, sizes)
                show(found)
                rows += found
            (out / "baselines.json").write_text(json.dumps(rows))
            plot(out / "baselines.png", _panels(rows), len(WORKS))
    finally:
        for each in contenders.values():
            each.end()
    publish(
        out,
        "baselines",
        rows,
        device=torch.cuda.get_device_name() if DEVICE.type == "cuda" else platform.machine(),
        threads=torch.get_num_threads(),
        torch=torch.__version__,
        short=short,
    )


def _race(
    contenders: dict[str, Contender], work: str, num: int, sizes: Sizes
) -> list[dict[str, Any]]:
    """Measure all at one number of points; they take turns, so that a busy spell weighs on all."""
    taken: dict[str, list[float]] = {}
    for name, each in contenders.items():
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if DEVICE.type == "cuda":
            free = torch.cuda.mem_get_info()[0]
        if each.per_point.get(work, 0.0) * num > sizes.most_memory * free:
            each.ended.add(work)
        if work not in each.ended:
            each.ask(_prepare, work, num)
            taken[name] = [each.ask(_seconds)]
    for _ in range(sizes.repeats):
        for name, times in taken.items():
            if times[0] < sizes.most_repeated_s:
                times.append(contenders[name].ask(_seconds))
    rows = []
    for name, times in taken.items():
        best, memory = min(times), contenders[name].ask(_peak)
        contenders[name].per_point[work] = memory / num
        if best > sizes.most_s:
            contenders[name].ended.add(work)
        rows.append(
            {
                "work": work,
                "points": num,
                "model": name,
                "seconds": best,
                "MB": memory / 2**20,
                "over Courant's": best / min(taken["courant"]) if "courant" in taken else "",
            }
        )
    return rows


def _panels(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Time and memory of each work against the number of points."""
    panels = []
    for key, label in (("seconds", _TIME), ("MB", "peak memory (MB)")):
        for work in WORKS:
            lines = {}
            for name in dict.fromkeys(each["model"] for each in rows):
                mine = [each for each in rows if (each["work"], each["model"]) == (work, name)]
                lines[_NAMES[name]] = (
                    [each["points"] for each in mine],
                    [each[key] for each in mine],
                )
            panels.append({"lines": lines, "title": work, "xlabel": "points", "ylabel": label})
    return panels
