"""The rehearsal for a cluster: two Ray nodes that share S3 alone, one of which is cut off."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

import simgen
from courant.runs.checkpoint import checkpoint_epochs
from courant.runs.directory import RunDirectory
from courant.runs.record import is_finished, read_records
from tests.end_to_end.conftest import SHORT, courant_at_work, tiny_recipe, wait_for
from tests.end_to_end.test_ray_jobs import experiment_file
from tests.ray_nodes import RayNode, ray_head, ray_worker

pytestmark = [pytest.mark.end_to_end, pytest.mark.openfoam, pytest.mark.nightly]


@dataclass
class Cluster:
    """A head and one more node, of one core each; the second can be lost and replaced."""

    head: RayNode
    second: RayNode
    stack: ExitStack
    environment: dict[str, str]
    scratch: list[Path]


@pytest.fixture(scope="module")
def cluster(s3_server, environment, tmp_path_factory) -> Iterator[Cluster]:
    scratch = [tmp_path_factory.mktemp(f"node-{number}") for number in (1, 2)]
    keys = {**os.environ, **s3_server.environment}
    with ExitStack() as stack:
        head = stack.enter_context(ray_head({**keys, "COURANT_SCRATCH": str(scratch[0])}, cpus=1))
        own = {**keys, "COURANT_SCRATCH": str(scratch[1])}
        yield Cluster(head, stack.enter_context(ray_worker(head, own)), stack, own, scratch)


@pytest.fixture
def submitter(environment, s3, cluster):
    """The process that submits has a scratch folder of a third machine, and no say in the keys."""
    return {
        **environment,
        **s3.environment,
        **cluster.head.authentication,
        "RAY_ADDRESS": cluster.head.dashboard,
    }


@pytest.fixture(scope="module")
def base(s3_server) -> str:
    return f"{s3_server.url}/rehearsal"


def test_cases_are_solved_on_both_nodes(cluster, submitter, base):
    command = ["generate", "cylinder-flow", "--cases", "4", *SHORT, "--store", f"{base}/store"]
    seen: set[tuple[Path, str]] = set()
    with courant_at_work({**submitter, "COURANT_LOG_FORMAT": "json"}, *command) as flow:
        while flow.poll() is None:
            seen |= {(node, case.name) for node in cluster.scratch for case in node.iterdir()}
            time.sleep(0.2)
        output = flow.communicate()[0]
    assert flow.returncode == 0, output
    dataset = simgen.open_dataset(f"{base}/store/cylinder-flow")
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    accepted = [line for line in lines if "  accepted  " in line["message"]]
    assert sorted(line["case"] for line in accepted) == sorted(dataset.cases()), "the job's log"
    assert (dataset.version, len(dataset)) == ("v1", 4)
    assert {node for node, _ in seen} == set(cluster.scratch), "both had cases on their disks"
    assert not [case for node in cluster.scratch for case in node.iterdir() if case.is_dir()]


def test_training_on_two_workers_outlives_a_node(cluster, submitter, base, tmp_path):
    dataset = simgen.open_dataset(f"{base}/store/cylinder-flow")
    given = {"epochs": 60, "workers": 2, "checkpoint_every": 10}
    file, experiment = experiment_file(tmp_path, "two-workers", tiny_recipe(2), **given)
    run_ = RunDirectory(f"{base}/runs") / experiment.run_id(dataset.snapshot_id)
    given = ("--experiment", str(file), "--runs", f"{base}/runs")
    with courant_at_work(submitter, "train", dataset.url, *given) as flow:
        wait_for(lambda: checkpoint_epochs(run_), 180)
        cluster.second.kill()
        assert not is_finished(run_)
        before = max(checkpoint_epochs(run_))
        another = ray_worker(cluster.head, cluster.environment)
        cluster.second = cluster.stack.enter_context(another)
        output, _ = flow.communicate(timeout=600)
    assert flow.returncode == 0, output
    records = read_records(run_)
    assert [record.epoch for record in records] == list(range(1, 61))
    assert before < 60
    assert run_.read_json("environment.json")["workers"] == 2


def test_a_sweep_of_six_trials_outlives_a_node(cluster, submitter, base, tmp_path):
    dataset = simgen.open_dataset(f"{base}/store/cylinder-flow")
    file, _ = experiment_file(tmp_path, "six", tiny_recipe(2), epochs=12)
    (tmp_path / "space.yaml").write_text(
        "design: grid\nparameters: {training.learning_rate: [1e-4, 2e-4, 4e-4, 1e-3, 2e-3, 4e-3]}"
    )
    command = ["--experiment", str(file), "--space", str(tmp_path / "space.yaml")]
    command += ["--runs", f"{base}/runs", "--to-the-end"]
    with courant_at_work(submitter, "sweep", dataset.url, *command) as flow:
        wait_for(lambda: num_begun(base) >= 3, 180)
        cluster.second.kill()
        output, _ = flow.communicate(timeout=600)
    assert flow.returncode == 0, output
    (name,) = [n for n in RunDirectory(f"{base}/runs").names() if n.startswith("six-space-")]
    table = RunDirectory(f"{base}/runs/{name}").read_json("trials.json")
    assert [(row["state"], row["epochs"]) for row in table] == [("finished", 12)] * 6
    assert RunDirectory(f"{base}/runs/{name}").exists("index.html")


def num_begun(base: str) -> int:
    """Trials that have trained an epoch."""
    runs = RunDirectory(f"{base}/runs")
    sweeps = [runs / name / "trials" for name in runs.names() if name.startswith("six-space-")]
    return sum(bool(read_records(sweep / trial)) for sweep in sweeps for trial in sweep.names())
