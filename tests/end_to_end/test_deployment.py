"""The README's Prefect commands against a real server: worker, run, bare name, cancellation."""

import asyncio
import json
import os
import subprocess

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, FlowRunFilter
from prefect.settings import PREFECT_API_URL, temporary_settings

import simgen
from courant.experiment import parse_experiment
from flows.serving import DeploymentSolver, find_deployment
from simgen.cases import get_family
from simgen.errors import InputError
from tests.end_to_end.conftest import BIN, ROOT, run, solvers, stop, wait_for
from tests.end_to_end.test_ray_jobs import jobs
from tests.ray_nodes import ray_head

pytestmark = [pytest.mark.end_to_end, pytest.mark.openfoam]


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    folder = tmp_path_factory.mktemp("deployment")
    return {name: folder / name for name in ("store", "runs", "reports", "scratch")}


@pytest.fixture(scope="module")
def worker_log(tmp_path_factory):
    """What the worker and its flow runs print."""
    return tmp_path_factory.mktemp("worker") / "log"


@pytest.fixture(scope="module")
def worker(prefect_server, places, worker_log):
    """The deployment and a worker, made by the README's commands; yields the environment."""
    environment = {
        **prefect_server,
        **{f"COURANT_{name.upper()}": str(place) for name, place in places.items()},
    }
    for command in (
        ["work-pool", "create", "local", "--type", "process"],
        ["--no-prompt", "deploy", "--all"],
    ):
        done = run(environment, "prefect", *command)
        assert done.returncode == 0, done.stdout + done.stderr
    with worker_log.open("wb") as log:
        process = subprocess.Popen(
            [str(BIN / "prefect"), "worker", "start", "--pool", "local"],
            env=environment,
            cwd=ROOT,
            stdout=log,
            stderr=log,
        )
    try:
        yield environment
    finally:
        stop(process)


def query(environment, ask):
    """Ask the server something through Prefect's client."""

    async def asked():
        async with get_client() as client:
            return await ask(client)

    with temporary_settings({PREFECT_API_URL: environment["PREFECT_API_URL"]}):
        return asyncio.run(asked())


@pytest.fixture(scope="module")
def generated(worker, places, tiny_experiment):
    """A dataset and a run, made by the main deployment."""
    settings = {"end_time": 12, "mesh_size": 2}
    parameters = {"cases": 4, "settings": settings, "experiment": str(tiny_experiment)}
    start(worker, "generate-and-train/cylinder-flow", parameters, "--watch")


def test_the_deployment_runs_to_completion_with_its_cases_and_artifacts_in_sight(
    worker, generated, worker_log, places
):
    assert len(simgen.open_dataset(places["store"] / "cylinder-flow")) == 4
    (page,) = places["reports"].glob("*/index.html")

    cases = {
        run.name
        for run in query(worker, lambda client: client.read_task_runs(limit=200))
        if run.name.startswith("case ")
    }
    assert len(cases) == 4
    artifacts = query(
        worker, lambda client: client.read_artifacts(artifact_filter=ArtifactFilter(), limit=200)
    )
    assert {artifact.type for artifact in artifacts} >= {"progress", "markdown"}
    texts = [str(one.data) for one in artifacts if one.type == "markdown"]
    assert any(f"Report: `{page}` on " in text for text in texts)
    logs = query(worker, lambda client: client.read_logs(limit=200))
    ends = [log for log in logs if log.message.startswith("case ") and "accepted" in log.message]
    assert len({log.task_run_id for log in ends} - {None}) == 4, "each on its task's page"
    # Prefect warns so where its own command is extended in a process that runs an event loop.
    assert "Failed to initialize plugins" not in worker_log.read_text()


@pytest.mark.nightly
def test_the_explorer_has_a_design_solved_by_its_deployment(worker, generated, places, monkeypatch):
    design = {"radius": 2.5, "center_x": 1.0, "center_y": 0.0}
    family = get_family("cylinder-flow")
    settings = family.settings("trial", {"end_time": 12, "mesh_size": 2})
    monkeypatch.setenv("PREFECT_API_URL", worker["PREFECT_API_URL"])
    with temporary_settings({PREFECT_API_URL: worker["PREFECT_API_URL"]}):
        with pytest.raises(InputError, match="has no deployment generate/nothing"):
            find_deployment("generate/nothing")
        url = str(places["store"] / "cylinder-flow")
        solver = DeploymentSolver(
            find_deployment("generate/cylinder-flow"), url, family.name, settings
        )
        begun = solver.begin(design)
        assert not begun.ended and solver.begin(design).id == begun.id
        wait_for(lambda: solver.look(begun.id).ended, 600)
        solve = solver.look(begun.id)
    assert (solve.state, solve.reason) == ("Completed", "")
    grown = simgen.open_dataset(url)
    case = family.point(design, settings).id
    assert case in grown.cases("train")


def test_the_bare_flow_name_finds_the_default_deployment(worker):
    done = run(worker, "prefect", "deployment", "run", "generate-and-train", "--param", "cases=0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "generate-and-train/cylinder-flow" in done.stdout


def test_automations_about_failures_are_put_on_the_server(worker):
    done = run(worker, "python", "infra/prefect/automations.py")
    assert done.returncode == 0, done.stdout + done.stderr
    found = query(worker, lambda client: client.read_automations())
    # The worker here sends no heartbeats, for want of which runs of other tests would be ended.
    for one in found:
        query(worker, lambda client, one=one: client.delete_automation(one.id))
    assert len(found) == 3 and all(one.name.startswith("courant: ") for one in found)


def start(environment, deployment, parameters, *options):
    """Start a run of a deployment; with --watch wait for its end."""
    given = [f"--param={name}={json.dumps(value)}" for name, value in parameters.items()]
    command = ("prefect", "deployment", "run", deployment, *given, *options)
    done = run(environment, *command, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.nightly
def test_a_cancelled_run_stops_its_job_on_the_cluster(
    worker, generated, tiny_experiment, tmp_path, places
):
    experiment = parse_experiment(tiny_experiment.read_text())
    endless = experiment.derive(name="cancelled", training={"epochs": 2000})
    (tmp_path / "experiment.json").write_text(endless.model_dump_json())
    dataset, file = f"{places['store']}/cylinder-flow", str(tmp_path / "experiment.json")
    asked = {"dataset": dataset, "experiment": file, "until": "run", "seed": 8}
    with ray_head(os.environ) as head:
        on_cluster = json.dumps({"RAY_ADDRESS": head.dashboard, **head.authentication})
        variable = ("--job-variable", f"env={on_cluster}")
        start(worker, "generate-and-train/cylinder-flow", asked, *variable)
        wait_for(lambda: list(jobs(head, "cancelled").values()) == ["RUNNING"], 120)
        cancel(worker, seed=8)
        wait_for(lambda: list(jobs(head, "cancelled").values()) == ["STOPPED"], 60)


def flow_run_of(environment, seed: int):
    runs = query(
        environment,
        lambda client: client.read_flow_runs(flow_run_filter=FlowRunFilter(), limit=100),
    )
    (flow_run,) = [
        found
        for found in runs
        if found.parameters.get("seed") == seed and found.parent_task_run_id is None
    ]
    return flow_run


def cancel(environment, seed: int) -> None:
    """Cancel the flow run with that seed, as a person does."""
    flow_run = str(flow_run_of(environment, seed).id)
    cancelled = run(environment, "prefect", "flow-run", "cancel", flow_run)
    assert cancelled.returncode == 0, cancelled.stdout + cancelled.stderr


@pytest.mark.nightly
def test_a_cancelled_run_leaves_no_solver_and_no_traceback(worker, places, worker_log):
    before = len(worker_log.read_bytes())
    asked = {"cases": 2, "settings": {"end_time": 900}, "seed": 7}
    start(worker, "generate-and-train/cylinder-flow", asked)
    wait_for(lambda: solvers(places["scratch"]), 180)
    cancel(worker, seed=7)
    wait_for(lambda: not solvers(places["scratch"]), 60)
    wait_for(lambda: flow_run_of(worker, seed=7).state.name == "Cancelled", 90)
    assert b"Traceback" not in worker_log.read_bytes()[before:]
