"""Train in this process, without Ray: for tuning a recipe and for debugging.

python -m courant.training cylinder-flow-demo demo-run/store/cylinder-flow runs
training.learning_rate=5e-4 model.num_anchors=32
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from typing import Any

import simgen
from courant.cpu_arithmetic import use_threads
from courant.experiment import Experiment
from courant.recipes import get_recipe
from courant.runs.directory import RunDirectory
from courant.training.train import fit
from courant.training.workers import device_of
from simgen.errors import InputError, SimgenError
from simgen.machine import usable_cores


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m courant.training",
        description="Train a recipe in this process, without Ray.",
    )
    parser.add_argument("recipe", help="such as cylinder-flow-demo or branched-pipe-small-fno")
    parser.add_argument("dataset", help="dataset URL, such as demo-run/store/cylinder-flow")
    parser.add_argument("runs", help="folder or s3://bucket/prefix for the run directory")
    parser.add_argument(
        "change",
        nargs="*",
        help="SECTION.NAME=VALUE, such as training.epochs=5 or data.points_per_sample=null",
    )
    parser.add_argument("--version", help="dataset version; default: the newest")
    parser.add_argument("--threads", type=int, default=usable_cores())
    arguments = parser.parse_intermixed_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    use_threads(arguments.threads)
    try:
        experiment = apply_changes(get_recipe(arguments.recipe), arguments.change)
        dataset = simgen.open_dataset(arguments.dataset, arguments.version)
        run = RunDirectory(arguments.runs) / experiment.run_id(dataset.snapshot_id)
        if experiment.training.workers > 1:
            raise InputError(
                f"training.workers = {experiment.training.workers}: this is one process; courant"
                " train has several"
            )
        fit(experiment, dataset, run, device=device_of(experiment.training))
    except SimgenError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(run.url)
    return 0


def apply_changes(experiment: Experiment, changes: list[str]) -> Experiment:
    """Apply `section.name=value` changes to the experiment; values are JSON or plain words."""
    sections: dict[str, dict[str, Any]] = {"model": {}, "data": {}, "training": {}}
    for change in changes:
        path, equals, text = change.partition("=")
        section, dot, name = path.partition(".")
        if not (equals and dot) or section not in sections:
            raise InputError(
                f"'{change}' is no change; write SECTION.NAME=VALUE with section"
                f" {', '.join(sections)}, such as training.epochs=5"
            )
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        sections[section][name] = value
    return experiment.derive(
        model=sections["model"], data=sections["data"], training=sections["training"]
    )


if __name__ == "__main__":
    raise SystemExit(main())
