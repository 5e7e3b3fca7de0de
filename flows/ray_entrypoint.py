"""Run a submitted job on the cluster, by the functions that a flow calls without a cluster.

python -m flows.ray_entrypoint
s3://bucket/runs/jobs/courant-train-cylinder-flow-small-0123456789.json
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import simgen
from courant.experiment import parse_experiment
from courant.runs.directory import RunDirectory
from flows.cluster.process_logs import know_submitter, start_logs
from flows.cluster.ray_cluster import ensure_ray
from flows.cluster.ray_variables import unseal
from flows.settings import embedded_defaults
from simgen.errors import SimgenError

Parameters = dict[str, Any]


def train(request: Parameters) -> None:
    from courant.training.ray_train import train as train_on_ray

    ensure_ray()
    train_on_ray(
        parse_experiment(request["experiment"]),
        request["dataset"],
        request["version"],
        request["runs"],
        on_epoch=lambda record: _say(record.line()),
    )


def sweep(request: Parameters) -> None:
    from courant.sweeps.ray_tune import run_sweep
    from courant.sweeps.search_space import SearchSpace
    from courant.sweeps.sweep import plan_sweep

    ensure_ray()
    plan = plan_sweep(
        parse_experiment(request["experiment"]),
        simgen.open_dataset(request["dataset"], request["version"]),
        SearchSpace.model_validate(request["space"]),
        request["trials"],
        request["runs"],
        request["seed"],
    )
    run_sweep(
        plan,
        early_stopping=request["early_stopping"],
        cpus_per_trial=request["cpus"],
        gpus_per_trial=request["gpus"],
        on_trial=lambda result: _say(result.line()) if result.state != "running" else None,
    )


def benchmark(request: Parameters) -> None:
    from courant.benchmark.ray_runner import run_benchmark
    from courant.benchmark.request import Request

    ensure_ray()
    run_benchmark(
        Request.from_json(request["request"]),
        cpus_per_trial=request["cpus"],
        gpus_per_trial=request["gpus"],
        on_phase=lambda phase, num: _say(f"{phase}: {num} to do"),
        on_trial=lambda result: _say(result.line()) if result.state != "running" else None,
    )


def solve(request: Parameters) -> None:
    from flows.cluster.prefect_api import prefect_api
    from flows.cluster.ray_cluster import check_prefect_reach, warm_workers
    from flows.solve_cases import Execution, solve_cases
    from flows.stages.generation import to_solve
    from simgen.cases import get_family
    from simgen.design_space import DesignPoint
    from simgen.store.access.writer import DatasetWriter
    from simgen.store.format.layout import Schema

    with prefect_api(ensure_ray):
        check_prefect_reach()
        warm_workers()
        points = [DesignPoint(**point) for point in request["points"]]
        writer = DatasetWriter.open(request["dataset"], Schema.of(get_family(points[0].family)))
        left = to_solve(points, writer.known(), request["retry_failed"])
        if left:  # another run may have committed the last ones since this was asked for
            solve_cases(left, writer, Execution(**request["execution"]))


KINDS: dict[str, Callable[[Parameters], None]] = {
    "train": train,
    "sweep": sweep,
    "benchmark": benchmark,
    "solve": solve,
}


def main() -> int:
    """Return the exit code.

    It is 1, with one line that begins with `error: `, where the request cannot be carried out.
    """
    embedded_defaults()
    start_logs()
    know_submitter()
    folder, _, name = sys.argv[1].rpartition("/")
    try:
        unseal()
        request = RunDirectory(folder).read_json(name)
        KINDS[request.pop("kind")](request)
    except SimgenError as error:
        _say(f"error: {error}")
        return 1
    return 0


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
