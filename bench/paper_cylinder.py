"""The cylinder at the paper's size, trained on a GPU machine that has the repository alone.

    courant generate cylinder-flow --cases 200 --preset paper --store STORE    # 2.5 core-hours
    python -m bench.paper_cylinder pack STORE/cylinder-flow PACKED
    python -m bench.paper_cylinder train PACKED TRAINED --optimiser adamw --seconds 300
    python -m bench.paper_cylinder receive TRAINED STORE/cylinder-flow RUNS
    courant evaluate RUNS/<run>

- `pack` writes the recipe's training and validation trajectories into safetensors files of at most
  60 MiB: each case's snapshots, standardised, as a truncated SVD in float16. It prints the error.
- `train` takes the recipe of the paper (tab:cf-hparams) in bfloat16, compiled, from a CUDA graph,
  with as many of its 500 epochs as fit into the seconds: the schedule ends with them. The same
  command goes on from the last checkpoint.
- `receive` makes the result an ordinary run of that dataset version.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from bench.gpu_training import time_steps
from courant.data.batch import BatchOrder, join_padded, spread
from courant.data.normalisation import Normaliser
from courant.data_config import TransientData
from courant.experiment import Experiment, parse_experiment
from courant.problems import Problem, open_problem, problem_of
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
from courant.training.train import Fitting, Task, Validation

RECIPE = "cylinder-flow"
SPLITS = ("train", "validation")
PIECE_BYTES = 60 * 2**20
TOLERANCE = 1e-3
"""What the truncation may leave out, relative, in the norm of all a case's standardised values"""
GEOMETRY = ("points", "distance", "parameters", "sign", "offset")
OPTIMISERS = {
    "adamw": {},
    "muon": {"optimiser": "muon", "learning_rate": 3e-3, "warmup_steps": 100},
}
"""The paper's; and Muon at thrice the small recipe's rate, for batches twelve times as large"""
RECEIVED = ("metrics.jsonl", "status.json", "environment.json", "model.safetensors")


# --- here, with the dataset


def pack(dataset_url: str, out: Path) -> None:
    """Write what training needs; resumable only as a whole, it takes some minutes."""
    import simgen

    dataset = simgen.open_dataset(dataset_url)
    experiment = get_recipe(RECIPE)
    problem = open_problem(experiment, dataset)
    assert isinstance(problem, TransientProblem)
    out.mkdir(parents=True, exist_ok=True)
    piece: dict[str, Tensor] = {}
    written: list[str] = []
    cases: dict[str, list[dict[str, object]]] = {split: [] for split in SPLITS}
    errors: list[float] = []

    def flush() -> None:
        name = f"piece-{len(written)}.safetensors"
        save_file(piece, out / name)
        written.append(name)
        piece.clear()

    for split in SPLITS:
        for case in dataset.cases(split):
            one = WindowReader(dataset, [case], problem).read_all()
            packed, error = compress(one.frames)
            errors.append(error)
            geometry = {name: getattr(one, name)[0].half() for name in GEOMETRY}
            tensors = {**packed, **geometry, "points": one.points[0]}
            size = sum(each.nbytes for each in tensors.values())
            if piece and size + sum(each.nbytes for each in piece.values()) > PIECE_BYTES:
                flush()
            piece |= {f"{case}/{name}": each.contiguous() for name, each in tensors.items()}
            cases[split].append({"id": case, "start_s": float(one.start_s[0])})
            rank = packed["times"].shape[1]
            print(
                f"{split} {case}: {one.frames.shape[0]} snapshots of {one.frames.shape[1]} points,"
                f" rank {rank}, error {error:.1e}, {size / 1e6:.2f} MB",
                flush=True,
            )
    flush()
    content = {
        "snapshot_interval_s": one.snapshot_interval_s,
        "normaliser": problem.normaliser.to_json(),
        "experiment": experiment.model_dump(mode="json"),
        "cases": cases,
        "pieces": written,
        "error": {"mean": float(np.mean(errors)), "max": max(errors)},
    }
    (out / "pack.json").write_text(json.dumps(content, indent=1))
    print(json.dumps({"pieces": written, **content["error"]}))  # type: ignore[dict-item]


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


def read_pieces(packed: Path, device: torch.device) -> tuple[Problem, dict[str, TrajectorySet]]:
    """Read the recipe's problem, and the trajectories of both splits, restored on the device."""
    content = json.loads((packed / "pack.json").read_text())
    tensors: dict[str, Tensor] = {}
    for name in content["pieces"]:
        tensors |= load_file(packed / name)
    normaliser = Normaliser.from_json(content["normaliser"])
    problem = problem_of(parse_experiment(content["experiment"]), normaliser)
    sets: dict[str, TrajectorySet] = {}
    for split, cases in content["cases"].items():
        ids = [case["id"] for case in cases]
        most = max(len(tensors[f"{case}/points"]) for case in ids)
        num_points = torch.tensor([len(tensors[f"{case}/points"]) for case in ids])
        num_frames = torch.tensor([len(tensors[f"{case}/times"]) for case in ids])
        first_frame = torch.cumsum(num_frames, 0) - num_frames
        num_channels = len(normaliser.channels)
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
        sets[split] = TrajectorySet(
            ids=tuple(ids),
            snapshot_interval_s=content["snapshot_interval_s"],
            points=points,
            distance=join_padded(joined["distance"], length=most),
            anchors=problem.anchors.among(points, is_real),
            num_points=num_points,
            frames=frames,
            first_frame=first_frame,
            start_s=torch.tensor([case["start_s"] for case in cases], dtype=torch.float64),
            num_frames=num_frames,
            parameters=torch.cat(joined["parameters"]),
            sign=torch.cat(joined["sign"]),
            offset=torch.cat(joined["offset"]),
        ).to(device)
    return problem, sets


def make_task(
    experiment: Experiment,
    normaliser: Normaliser,
    sets: dict[str, TrajectorySet],
    device: torch.device,
) -> Task:
    """The batches that training from the store would draw."""
    training, config = experiment.training, experiment.data
    assert isinstance(config, TransientData)
    order = BatchOrder(training.batch_size, training.samples_per_epoch, training.seed)
    held = sets["validation"]
    windows = spread(list_windows(held, config), training.validation_windows)
    parts = windows.split(VALIDATION_BATCH)
    return Task(
        problem_of(experiment, normaliser),
        WindowBatches(sets["train"], config, order, device),
        Validation(lambda: (gather(held, part, config) for part in parts), normaliser),
    )


def train(packed: Path, out: Path, optimiser: str, seconds: float, short: bool) -> None:
    """Train as many epochs as fit; print a line for each."""
    began = time.perf_counter()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    problem, sets = read_pieces(packed, device)
    recipe, normaliser = problem.experiment, problem.normaliser
    run = RunDirectory(out)
    if run.exists("experiment.json"):
        experiment = parse_experiment(run.read_json("experiment.json"))
    else:
        experiment = recipe.derive(training=OPTIMISERS[optimiser])
        if device.type == "cuda":
            fast = {"precision": "bfloat16", "cuda_graphs": True, "compile": True}
            experiment = experiment.derive(training=fast)
        if short:
            few = {"batch_size": 4, "samples_per_epoch": 8, "validation_windows": 4}
            small = {"width": 24}
            experiment = experiment.derive(training=few, model=small)
        with tempfile.TemporaryDirectory() as folder:
            task = make_task(experiment, normaliser, sets, device)
            step = time_steps(Fitting(task, RunDirectory(folder), device), device, 20)
        steps = task.train.num_batches
        left = seconds - (time.perf_counter() - began)
        epochs = max(1, int(0.93 * left / (1e-3 * step["ms"] * steps)))
        print(f"{step}; {left:.0f} s left for {epochs} epochs of {steps} steps", flush=True)
        experiment = experiment.derive(training={"epochs": min(epochs, recipe.training.epochs)})
        run.write_json("experiment.json", experiment.model_dump(mode="json"))
    task = make_task(experiment, normaliser, sets, device)
    fitting = Fitting(task, run, device)
    state, training = fitting.state, experiment.training
    run.write_json(records.ENVIRONMENT, records.environment(device, workers=1))
    began = time.perf_counter()
    for epoch in range(state.epoch + 1, training.epochs + 1):
        last = epoch == training.epochs
        validate = last or epoch % training.validate_every == 0
        record = fitting.epoch(epoch, validate)
        fitting.write(record, last or epoch % training.checkpoint_every == 0)
        if validate or epoch < 3:
            print(f"{time.perf_counter() - began:.0f} s: {record.line()}", flush=True)
    fitting.finish()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = parser.add_subparsers(dest="part", required=True)
    packing = parts.add_parser("pack", help="trajectories of a dataset version, compressed")
    packing.add_argument("dataset")
    packing.add_argument("out", type=Path)
    training = parts.add_parser("train", help="the paper's recipe on the packed trajectories")
    training.add_argument("packed", type=Path)
    training.add_argument("out", type=Path)
    training.add_argument("--optimiser", choices=OPTIMISERS, default="adamw")
    training.add_argument("--seconds", type=float, default=300.0, help="of the whole training")
    training.add_argument("--short", action="store_true", help="tiny sizes: that it works")
    receiving = parts.add_parser("receive", help="make the result a run of the dataset version")
    receiving.add_argument("trained", type=Path)
    receiving.add_argument("dataset")
    receiving.add_argument("runs")
    given = vars(parser.parse_args())
    run: dict[str, Callable[..., None]] = {"pack": pack, "train": train, "receive": receive}
    run[given.pop("part")](*given.values())


if __name__ == "__main__":
    main()
