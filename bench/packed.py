"""Training on a GPU machine that has the repository alone: a dataset's splits travel in pieces.

    courant generate cylinder-flow --cases 200 --preset paper --store STORE    # 2.5 core-hours
    python -m bench.packed pack cylinder-flow STORE/cylinder-flow PACKED
    python -m bench.packed train PACKED TRAINED --contenders adamw muon --seconds 110   # on the GPU
    python -m bench.packed receive TRAINED/adamw-42 STORE/cylinder-flow RUNS
    courant evaluate RUNS/<run>

- `pack` writes what a recipe reads into safetensors files of at most 48 MB. A transient case is a
  truncated SVD of its standardised snapshots in float16, and the error is printed; a steady one is
  `POINTS` random faces and as many cells, in float16 but for their places.
- `train` takes each contender and seed for the same seconds, in bfloat16 and, where the model
  allows it, from CUDA graphs. It prints a table, with the error of the weights of the
  lowest validation loss on the test cases. The same command goes on from the last checkpoint.
- `receive` makes a result an ordinary run of that dataset version.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from bench.report import show
from courant.data.batch import Batch, Batches, BatchOrder, join_padded, spread
from courant.data.normalisation import Normaliser
from courant.experiment import Experiment, SteadyData, TransientData, parse_experiment
from courant.models import BASELINES
from courant.problems import Problem, open_problem, problem_of
from courant.problems.problem import Samples
from courant.problems.steady import SteadyBatches, SteadyProblem, SteadySource
from courant.problems.transient import (
    VALIDATION_BATCH,
    TrajectorySet,
    TransientProblem,
    WindowBatches,
    WindowReader,
    gather,
    list_windows,
)
from courant.recipes import get_recipe
from courant.runs import record as records
from courant.runs.directory import RunDirectory
from courant.training.train import Fitting, Task, within_budget

PIECE_BYTES = 48 * 10**6
TOLERANCE = 1e-2
"""What the truncation may leave out, relative, in the norm of all a case's standardised values"""
POINTS = 3_072
GEOMETRY = ("points", "distance", "parameters", "sign", "offset")
_WHOLE = {"points_per_sample": None, "queries_per_sample": None}
_STEADY = {"batch_size": 8, "samples_per_epoch": 960, "epochs": 10_000}
CONTENDERS: dict[str, dict[str, dict[str, Any]]] = {
    "cylinder-flow": {
        "adamw": {},
        # Thrice the small recipe's rate, for batches twelve times as large.
        "muon": {"training": {"optimiser": "muon", "learning_rate": 3e-3, "warmup_steps": 100}},
        # Baselines have the paper's rates and batches; their epochs fit into minutes.
        "transolver": {"training": {"samples_per_epoch": 400, "epochs": 1_000}},
        "transolver-muon": {
            "training": {
                "samples_per_epoch": 400,
                "epochs": 1_000,
                "optimiser": "muon",
                "learning_rate": 3e-3,
                "warmup_steps": 20,
            }
        },
        "upt": {"training": {"samples_per_epoch": 1_000, "epochs": 1_000}},
        "fno": {"training": {"samples_per_epoch": 2_000, "epochs": 1_000}},
        "mgn": {
            "model": {"edges": "nearest"},  # What is packed has no mesh
            "training": {"samples_per_epoch": 200, "epochs": 1_000},
        },
    },
    "branched-pipe-small": {
        "courant": {"model": {"num_anchors": 256}, "training": {"learning_rate": 3e-3}},
        "two-blocks": {
            "model": {"num_anchors": 256, "decoder_depth": 2},
            "training": {"learning_rate": 3e-3},
        },
        "two-members": {
            "model": {"num_anchors": 256, "decoder_depth": 2, "num_members": 2},
            "training": {"learning_rate": 3e-3},
        },
        "transolver": {},
    },
}
"""By recipe: what each contender changes; a baseline's name begins those of its own recipe"""
RECEIVED = ("metrics.jsonl", "status.json", "environment.json", "model.safetensors")


def contender(recipe: str, name: str, training: Mapping[str, Any]) -> Experiment:
    kind = name.partition("-")[0]
    base = get_recipe(f"{recipe}-{kind}" if kind in BASELINES else recipe)
    if base.task == "steady":
        base = base.derive(data=_WHOLE, training=_STEADY)
    return base.derive(**CONTENDERS[recipe][name]).derive(training=training)


# --- here, with the dataset


def pack(recipe: str, dataset_url: str, out: Path) -> None:
    """Write what training needs; resumable only as a whole, it takes some minutes."""
    import simgen

    dataset = simgen.open_dataset(dataset_url)
    problem = open_problem(get_recipe(recipe), dataset)
    out.mkdir(parents=True, exist_ok=True)
    piece: dict[str, Tensor] = {}
    written: list[str] = []
    cases: dict[str, list[dict[str, object]]] = {of: [] for of in ("train", "validation", "test")}
    errors, interval = [0.0], 0.0

    def flush() -> None:
        name = f"piece-{len(written)}.safetensors"
        save_file(piece, out / name)
        written.append(name)
        piece.clear()

    for split in cases:
        for case in dataset.cases(split):
            start_s = 0.0
            if isinstance(problem, TransientProblem):
                one = WindowReader(dataset, [case], problem).read_all()
                packed, error = compress(one.frames)
                errors.append(error)
                packed |= {name: getattr(one, name)[0].half() for name in GEOMETRY}
                packed["points"] = one.points[0]
                interval, start_s = one.snapshot_interval_s, float(one.start_s[0])
            else:
                assert isinstance(problem, SteadyProblem)
                packed = thinned(SteadySource(dataset, [case], problem).read(0))
            size = sum(each.nbytes for each in packed.values())
            if piece and size + sum(each.nbytes for each in piece.values()) > PIECE_BYTES:
                flush()
            piece |= {f"{case}/{name}": each.contiguous() for name, each in packed.items()}
            cases[split].append({"id": case, "start_s": start_s})
            print(f"{split} {case}: {size / 1e6:.2f} MB, error {errors[-1]:.1e}", flush=True)
    flush()
    content = {
        "recipe": recipe,
        "snapshot_interval_s": interval,
        "normaliser": problem.normaliser.to_json(),
        "cases": cases,
        "pieces": written,
        "error": {"mean": float(np.mean(errors)), "max": max(errors)},
    }
    (out / "pack.json").write_text(json.dumps(content, indent=1))
    print(json.dumps({"pieces": written, **content["error"]}))  # type: ignore[dict-item]


def thinned(sample: Batch) -> dict[str, Tensor]:
    """Keep random faces and cells of a steady sample, and what the nearest face prescribes."""
    from simgen.point_cloud import point_tree

    generator = torch.Generator().manual_seed(0)
    faces, cells = (
        torch.randperm(cloud.shape[1], generator=generator)[:POINTS]
        for cloud in (sample.points, sample.query_points)
    )
    places = sample.query_points[0, cells]
    nearest = point_tree(sample.points[0].numpy()).query(places.numpy())[1]
    kept = {
        "features": sample.features[0, faces],
        "query_features": sample.query_features[0, cells],
        "prescribed": sample.features[0, nearest],
        "targets": sample.targets[0, 0, cells],
        "parameters": sample.parameters[0],
    }
    kept = {name: each.half() for name, each in kept.items()}
    scale = {} if sample.scale is None else {"scale": sample.scale[0]}
    return {"points": sample.points[0, faces], "query_points": places, **kept, **scale}


def compress(frames: Tensor) -> tuple[dict[str, Tensor], float]:
    """Truncate the SVD of (T, N, C) snapshots; return its factors in float16, and the error.

    The error, of the rounded factors, is relative to the norm of all values.
    """
    whole = frames.flatten(1).double()
    # The eigenvectors of the (T, T) products: some times faster than an SVD, and as exact at 1e-3.
    squares, times = torch.linalg.eigh(whole @ whole.T)
    squares, times = squares.flip(0).clamp(min=0), times.flip(1)
    left_out = squares.sum() - squares.cumsum(0)
    rank = int((left_out > TOLERANCE**2 * squares.sum()).sum()) + 1
    times = times[:, :rank]
    modes = times.T @ whole
    size = modes.abs().amax(1, keepdim=True)
    factors = {
        "times": (times * size.T / size.max()).half(),
        "modes": (modes / size).half(),
        "size": size.max().float().reshape(1),
    }
    error = (restore(factors).double() - whole).norm() / whole.norm()
    return factors, float(error)


def restore(factors: dict[str, Tensor]) -> Tensor:
    """(T, N C) in float32."""
    return (factors["times"].float() @ factors["modes"].float()) * factors["size"]


def receive(trained: Path, dataset_url: str, runs_url: str) -> None:
    """Put a trained run among others, with the dataset version on record."""
    import simgen

    dataset = simgen.open_dataset(dataset_url)
    experiment = parse_experiment(json.loads((trained / "experiment.json").read_text()))
    run = RunDirectory(runs_url) / experiment.run_id(dataset.snapshot_id)
    records.describe_run(run, experiment, dataset, open_problem(experiment, dataset).normaliser)
    for name in RECEIVED:
        run.write_bytes(name, (trained / name).read_bytes())
    for checkpoint in sorted((trained / "checkpoints").glob("*.pt")):
        run.write_bytes(f"checkpoints/{checkpoint.name}", checkpoint.read_bytes())
    print(run.url)


# --- on the GPU machine, with the pieces


@dataclass(frozen=True)
class Packed:
    """Everything that `pack` wrote."""

    content: dict[str, Any]
    tensors: dict[str, Tensor]

    @classmethod
    def read(cls, folder: Path) -> Packed:
        content, tensors = json.loads((folder / "pack.json").read_text()), dict[str, Tensor]()
        for name in content["pieces"]:
            tensors |= load_file(folder / name)
        return cls(content, tensors)

    def problem(self, experiment: Experiment) -> Problem:
        return problem_of(experiment, Normaliser.from_json(self.content["normaliser"]))

    def ids(self, split: str) -> list[str]:
        return [case["id"] for case in self.content["cases"][split]]

    def task(self, experiment: Experiment, device: torch.device) -> Task:
        problem, training = self.problem(experiment), experiment.training
        order = BatchOrder(training.batch_size, training.samples_per_epoch, training.seed)
        if isinstance(problem, SteadyProblem):
            source = cast(SteadySource, Cases(self, problem, "train"))
            train: Batches = SteadyBatches(source, order, device)
        else:
            seen = self.trajectories(problem, "train", device)
            train = WindowBatches(seen, cast(TransientData, experiment.data), order, device)
        return Task(problem, train, self.held(problem, "validation", device))

    def held(self, problem: Problem, split: str, device: torch.device) -> Samples:
        """Return samples of a split that is not trained on."""
        if isinstance(problem, SteadyProblem):
            samples = Cases(self, problem, split).read_all(device)
            return lambda: iter(samples)
        held = self.trajectories(problem, split, device)
        config, num = problem.experiment.data, problem.experiment.training.validation_windows
        assert isinstance(config, TransientData)
        parts = spread(list_windows(held, config), num).split(VALIDATION_BATCH)
        return lambda: (gather(held, p, config) for p in parts)

    def trajectories(self, problem: Problem, split: str, device: torch.device) -> TrajectorySet:
        """Restore a split on the device."""
        ids, tensors = self.ids(split), self.tensors
        most = max(len(tensors[f"{case}/points"]) for case in ids)
        num_points = torch.tensor([len(tensors[f"{case}/points"]) for case in ids])
        num_frames = torch.tensor([len(tensors[f"{case}/times"]) for case in ids])
        first_frame = torch.cumsum(num_frames, 0) - num_frames
        num_channels = len(problem.normaliser.channels)
        frames = torch.zeros(int(num_frames.sum()), most, num_channels, device=device)
        for case, begin, num, points in zip(
            ids, first_frame.tolist(), num_frames.tolist(), num_points.tolist(), strict=True
        ):
            factors = {
                name: tensors[f"{case}/{name}"].to(device) for name in ("times", "modes", "size")
            }
            restored = restore(factors).unflatten(1, (points, num_channels))
            frames[begin : begin + num, :points] = restored
        joined = {
            name: [tensors[f"{case}/{name}"].float()[None] for case in ids] for name in GEOMETRY
        }
        points = join_padded(joined["points"], length=most)
        is_real = torch.arange(most) < num_points[:, None]
        starts = [case["start_s"] for case in self.content["cases"][split]]
        return TrajectorySet(
            ids=tuple(ids),
            snapshot_interval_s=self.content["snapshot_interval_s"],
            points=points,
            distance=join_padded(joined["distance"], length=most),
            anchors=problem.anchors.among(points, is_real),
            num_points=num_points,
            frames=frames,
            first_frame=first_frame,
            start_s=torch.tensor(starts, dtype=torch.float64),
            num_frames=num_frames,
            parameters=torch.cat(joined["parameters"]),
            sign=torch.cat(joined["sign"]),
            offset=torch.cat(joined["offset"]),
        ).to(device)


class Cases:
    """Packed steady cases, as `courant.problems.steady.SteadySource` has them."""

    def __init__(self, packed: Packed, problem: Problem, split: str) -> None:
        self.problem, self.ids = problem, tuple(packed.ids(split))
        self._packed = packed

    def read_all(self, device: torch.device | str) -> list[Batch]:
        """Read all cases; they have the same numbers of points."""
        tensors = {
            name: [self._packed.tensors[f"{case}/{name}"].float() for case in self.ids]
            for name in {key.rpartition("/")[2] for key in self._packed.tensors}
        }
        kept = {name: torch.stack(each).to(device) for name, each in tensors.items()}
        prescribed, targets = kept.pop("prescribed"), kept.pop("targets")[:, None]
        if cast(SteadyData, self.problem.data).encoder == "mesh":
            kept["points"] = kept["query_points"]
            kept["features"] = torch.cat([prescribed, kept["query_features"]], dim=-1)
        anchors = self.problem.anchors.among(kept["points"])
        whole = Batch(**kept, targets=targets, anchors=anchors)
        return [whole.map(lambda value, at=at: value[at : at + 1]) for at in range(len(self.ids))]  # type: ignore[misc]


def train(
    packed: Path, out: Path, contenders: list[str], seeds: list[int], seconds: float, short: bool
) -> None:
    """Train all contenders, seed by seed; print and write a row for each."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    pieces, rows = Packed.read(packed), list[dict[str, Any]]()
    known = CONTENDERS[pieces.content["recipe"]]
    if unknown := sorted(set(contenders) - {*known}):
        raise SystemExit(f"error: no contender {unknown[0]}; there are {', '.join(known)}")
    out.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        for name in contenders:
            row = {"contender": name, "seed": seed}
            run = RunDirectory(out / f"{name}-{seed}")
            rows.append(row | train_one(pieces, run, device, name, seed, seconds, short))
            (out / "rows.json").write_text(json.dumps(rows, indent=1))
    show(rows, f"{seconds:g} s each on {records.environment(device, 1)['device']}")


def train_one(
    packed: Packed,
    run: RunDirectory,
    device: torch.device,
    name: str,
    seed: int,
    seconds: float,
    short: bool,
) -> dict[str, Any]:
    options: dict[str, Any] = {"seed": seed, "budget_s": seconds}
    if device.type == "cuda":
        options["precision"] = "bfloat16"
    experiment = contender(packed.content["recipe"], name, options)
    if short:
        few = {"batch_size": 4, "samples_per_epoch": 8, "validation_windows": 4, "epochs": 4}
        experiment = experiment.derive(training=few, model={"width": 24})
    task = packed.task(experiment, device)
    experiment = task.problem.experiment = within_budget(task, run, device, 0, 1)
    run.write_json("experiment.json", experiment.model_dump(mode="json"))
    run.write_json(records.ENVIRONMENT, records.environment(device, workers=1))
    fitting = Fitting(task, run, device)
    state, training = fitting.state, experiment.training
    for epoch in range(state.epoch + 1, training.epochs + 1):
        last = epoch == training.epochs
        validate = last or epoch % training.validate_every == 0
        record = fitting.epoch(epoch, validate)
        fitting.write(record, last or epoch % training.checkpoint_every == 0)
        if validate:
            print(f"{name} {seed}: {record.line()}", flush=True)
    fitting.finish()
    best = next(each for each in fitting.records if each.epoch == state.best_epoch)
    fitting.bare.load_state_dict(state.best)
    nmae = fitting.validate(packed.held(task.problem, "test", device))[1]
    return {
        "seconds": sum(each.seconds for each in fitting.records),
        "epochs": training.epochs,
        "steps": training.epochs * task.train.num_batches,
        "best epoch": state.best_epoch,
        "loss": fitting.records[-1].train_loss,
        "peak GB": fitting.records[-1].peak_memory_gb,
        "validation": best.validation_nmae,
        "NMAE": nmae,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = parser.add_subparsers(dest="part", required=True)
    packing = parts.add_parser("pack", help="what a recipe reads of a dataset version, compressed")
    packing.add_argument("recipe", choices=CONTENDERS)
    packing.add_argument("dataset")
    packing.add_argument("out", type=Path)
    training = parts.add_parser("train", help="contenders for equal seconds on packed cases")
    training.add_argument("packed", type=Path)
    training.add_argument("out", type=Path)
    training.add_argument("--contenders", nargs="+", required=True)
    training.add_argument("--seeds", nargs="+", type=int, default=[42])
    training.add_argument("--seconds", type=float, default=300.0, help="of each training")
    training.add_argument("--short", action="store_true", help="tiny sizes: that it works")
    receiving = parts.add_parser("receive", help="make a result a run of the dataset version")
    receiving.add_argument("trained", type=Path)
    receiving.add_argument("dataset")
    receiving.add_argument("runs")
    given = vars(parser.parse_args())
    run: dict[str, Callable[..., None]] = {"pack": pack, "train": train, "receive": receive}
    run[given.pop("part")](*given.values())


if __name__ == "__main__":
    main()
