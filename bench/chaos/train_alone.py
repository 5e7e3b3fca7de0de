"""Train the campaign's experiment on a dataset in this process, evaluate it, and print digests."""

from __future__ import annotations

import json
import os
import sys

import torch

import simgen
from bench.chaos.reference import chaos_experiment, digest, figures
from courant.evaluation.evaluate import evaluate
from courant.runs.directory import RunDirectory
from courant.training.loop import fit

if __name__ == "__main__":
    url, runs = sys.argv[1:]
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    experiment, dataset = chaos_experiment(), simgen.open_dataset(url)
    run = RunDirectory(runs) / experiment.run_id(dataset.snapshot_id)
    fit(experiment, dataset, run)
    evaluate(run.url, split="test")
    told = {"weights": digest(run.read_bytes("model.safetensors")), "evaluation": figures(run)}
    print(json.dumps(told))
