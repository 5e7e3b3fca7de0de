"""No flow run is shown as running for ever: those of a killed command are put down as crashed."""

import os
import subprocess
import sys

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Running

from flows.cluster.flow_runs import TAG, close_abandoned, owned_flow_runs, process_tag

pytestmark = pytest.mark.end_to_end


@flow
def waiting() -> None:
    """Stands for any flow."""


def start_run(client, *tags):
    """A run that has begun and of which nothing more is heard."""
    run = client.create_flow_run(waiting, tags=tags)
    client.set_flow_run_state(run.id, Running(), force=True)
    return run.id


def test_runs_of_killed_commands_are_closed_and_no_others(prefect_server):
    killed = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    of_killed = process_tag(killed.pid)
    killed.kill()
    killed.wait()
    machine, _, rest = of_killed.partition(":")[2].partition(":")
    elsewhere = f"process:not-{machine}:{rest}"
    with (
        temporary_settings({PREFECT_API_URL: prefect_server["PREFECT_API_URL"]}),
        get_client(sync_client=True) as client,
    ):
        runs = {
            "killed": start_run(client, TAG, of_killed),
            "alive": start_run(client, TAG, process_tag(os.getpid())),
            "on another machine": start_run(client, TAG, elsewhere),
            "of somebody else": start_run(client, "process:unknown"),
        }
        with owned_flow_runs():
            own = waiting(return_state=True).state_details.flow_run_id
        close_abandoned()
        found = {name: client.read_flow_run(run).state_type.value for name, run in runs.items()}
        assert process_tag(os.getpid()) in client.read_flow_run(own).tags
    assert found == {
        "killed": "CRASHED",
        "alive": "RUNNING",
        "on another machine": "RUNNING",
        "of somebody else": "RUNNING",
    }


def test_a_server_that_is_away_does_not_stand_in_the_way():
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):
        close_abandoned()
