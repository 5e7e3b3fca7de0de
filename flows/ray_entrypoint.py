"""Run a submitted job on the cluster: python -m flows.ray_entrypoint URL-OF-ITS-REQUEST."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import simgen
from courant.experiment import parse_experiment
from courant.ray_session import connect_ray
from courant.runs.directory import RunDirectory
from flows.ray_jobs import unseal
from flows.terminal import start_logs
from simgen.errors import SimgenError
from simgen.log_lines import set_field

report = partial(print, flush=True)


def on_trial(result: Any) -> None:
    if result.state != "running":
        report(result.line())


def train(experiment: Any, dataset: str, version: str, runs: str) -> None:
    from courant.training.ray_train import train as train_on_ray

    given = parse_experiment(experiment)
    train_on_ray(given, dataset, version, runs, on_epoch=lambda record: report(record.line()))


def sweep(
    experiment: Any,
    space: Any,
    dataset: str,
    version: str,
    runs: str,
    trials: int,
    seed: int,
    **execution: Any,
) -> None:
    from courant.sweeps.ray_trials import run_sweep
    from courant.sweeps.search_space import SearchSpace
    from courant.sweeps.sweep import plan_sweep

    given, opened = parse_experiment(experiment), simgen.open_dataset(dataset, version)
    plan = plan_sweep(given, opened, SearchSpace.model_validate(space), trials, runs, seed)
    run_sweep(plan, on_trial=on_trial, **execution)


def benchmark(benchmark: Any, **execution: Any) -> None:
    from courant.sweeps.benchmark import Benchmark
    from courant.sweeps.ray_trials import run_benchmark

    run_benchmark(
        Benchmark.model_validate(benchmark),
        on_phase=lambda phase, num: report(f"{phase}: {num} to do"),
        on_trial=on_trial,
        **execution,
    )


def solve(points: Any, dataset: str, execution: Any, retry_failed: bool) -> None:
    from flows.solving import Execution, solve_cases
    from flows.stages import to_solve
    from simgen.cases import get_family
    from simgen.design_space import DesignPoint
    from simgen.store.schema import Schema
    from simgen.store.write import DatasetWriter

    designs = [DesignPoint(**point) for point in points]
    writer = DatasetWriter.open(dataset, Schema.of(get_family(designs[0].family)))
    left = to_solve(designs, writer.known(), retry_failed)
    if not left:  # another run may have committed the last ones since this was asked for
        return
    if os.environ.get("PREFECT_API_URL"):
        from flows.prefect_flows import solve_in_flow

        solve_in_flow(left, writer.url, Execution(**execution))
    else:
        solve_cases(left, writer, Execution(**execution))


KINDS: dict[str, Callable[..., None]] = {
    each.__name__: each for each in (train, sweep, benchmark, solve)
}


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
        KINDS[request.pop("kind")](**request)
    except SimgenError as error:
        report(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
