"""Run a submitted job on the cluster: python -m flows.ray_entrypoint URL-OF-ITS-REQUEST."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import simgen
from courant.experiment import parse_experiment
from courant.ray_session import connect_ray
from courant.runs.directory import RunDirectory
from flows.ray_jobs import unseal
from flows.terminal import start_logs
from simgen.errors import SimgenError
from simgen.log_lines import set_field

Parameters = dict[str, Any]


def train(request: Parameters) -> None:
    from courant.training.ray_train import train as train_on_ray

    train_on_ray(
        parse_experiment(request["experiment"]),
        request["dataset"],
        request["version"],
        request["runs"],
        on_epoch=lambda record: _print(record.line()),
    )


def sweep(request: Parameters) -> None:
    from courant.sweeps.ray_trials import run_sweep
    from courant.sweeps.search_space import SearchSpace
    from courant.sweeps.sweep import plan_sweep

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
        on_trial=lambda result: _print(result.line()) if result.state != "running" else None,
    )


def benchmark(request: Parameters) -> None:
    from courant.sweeps.benchmark import Benchmark
    from courant.sweeps.ray_trials import run_benchmark

    run_benchmark(
        Benchmark.model_validate(request["benchmark"]),
        cpus_per_trial=request["cpus"],
        gpus_per_trial=request["gpus"],
        on_phase=lambda phase, num: _print(f"{phase}: {num} to do"),
        on_trial=lambda result: _print(result.line()) if result.state != "running" else None,
    )


def solve(request: Parameters) -> None:
    from flows.solving import Execution, solve_cases
    from flows.stages import to_solve
    from simgen.cases import get_family
    from simgen.design_space import DesignPoint
    from simgen.store.schema import Schema
    from simgen.store.write import DatasetWriter

    points = [DesignPoint(**point) for point in request["points"]]
    writer = DatasetWriter.open(request["dataset"], Schema.of(get_family(points[0].family)))
    left = to_solve(points, writer.known(), request["retry_failed"])
    if not left:  # another run may have committed the last ones since this was asked for
        return
    execution = Execution(**request["execution"])
    if os.environ.get("PREFECT_API_URL"):
        from flows.prefect_flows import solve_in_flow

        solve_in_flow(left, writer.url, execution)
    else:
        solve_cases(left, writer, execution)


def main() -> int:
    """Return the exit code: 1 for an error, with one line that begins with `error: `."""
    start_logs()
    job = json.loads(os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}"))
    if flow_run := (job.get("metadata") or {}).get("flow_run"):
        set_field("flow_run", str(flow_run))  # of the flow run that waits for this job
    folder, _, name = sys.argv[1].rpartition("/")
    try:
        begin_worker = unseal()
        request = RunDirectory(folder).read_json(name)
        connect_ray(begin_worker=begin_worker)
        KINDS[request.pop("kind")](request)
    except SimgenError as error:
        _print(f"error: {error}")
        return 1
    return 0


KINDS: dict[str, Callable[[Parameters], None]] = {
    each.__name__: each for each in (train, sweep, benchmark, solve)
}


def _print(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
