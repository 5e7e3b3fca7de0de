"""`courant status` tells what is going on from records alone, within eighty columns."""

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from courant.runs.directory import RunDirectory
from flows.cli import observing
from flows.cli.app import app
from flows.settings import Settings, load_settings
from flows.terminal import screen
from simgen.solving.case_lock import own_case
from tests.observing.conftest import make_run, solve_some


def ask(places: Settings, *options: str):
    where = ["--store", places.store, "--runs", places.runs]
    screen.width = 80
    return CliRunner().invoke(
        app, ["status", *where, *options], env={"COURANT_SCRATCH": places.scratch}
    )


def test_datasets_trainings_sweeps_and_disks_are_told_in_eighty_columns(places):
    with own_case("aaaa00000001", Path(places.scratch)):
        done = ask(places)
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    tables = [line for line in lines if not {places.store, places.runs} & {*line.split()}]
    assert max(map(len, tables)) <= 80
    row = {line.split()[0]: line.split() for line in lines if line.strip()}
    assert row["cylinder-flow"][1:6] == ["solving", "2", "0", "0", "6"]
    assert row["demo-0123456789"][1:5] == ["running", "3/8", "0.250", "100"]
    assert row["demo-9876543210"][1] == "interrupted"
    assert row["demo-1111111111"][1] == "finished"
    assert "1/3 ended, 1 running" in done.stdout and "0.125" in done.stdout
    assert row["aaaa00000001"][1] == "50%"
    assert "bbbb00000002" not in row, "no process has this case any more"
    assert "disk  scratch, store, runs: " in done.stdout


def test_json_has_all_figures_and_what_follows_from_them(places):
    found = json.loads(ask(places, "--json").stdout)
    (dataset,) = found["datasets"]
    assert dataset["state"] == "solving" and dataset["num_left"] == 6
    assert dataset["left_s"] > 0
    names = {"demo-0123456789", "demo-1111111111", "demo-9876543210"}
    assert {run["name"] for run in found["runs"]} == names
    (sweep,) = found["trials"]
    assert (sweep["state"], sweep["best_nmae"]) == ("running", 0.125)


def test_what_cannot_be_read_is_one_line_and_the_rest_is_shown(places):
    (RunDirectory(places.runs) / "demo-0123456789").write_bytes("metrics.jsonl", b"no record")
    done = ask(places)
    assert done.exit_code == 1
    assert done.stderr.count("\n") == 1 and "metrics.jsonl is damaged" in done.stderr
    assert "demo-1111111111" in done.stdout
    (RunDirectory(places.runs) / "demo-0123456789").write_bytes("metrics.jsonl", b"")
    (RunDirectory(places.runs) / "demo-anchors-0123456789").write_bytes("trials.json", b"{")
    assert "trials.json is not valid JSON" in ask(places).stderr


def test_a_folder_that_is_not_there_and_an_empty_one(tmp_path):
    done = CliRunner().invoke(app, ["status", "--store", str(tmp_path / "nowhere")])
    assert done.exit_code == 1
    assert done.stderr.startswith("error: --store") and done.stderr.count("\n") == 1
    here = str(tmp_path)
    done = ask(replace(load_settings(), store=here, runs=here, scratch=here))
    assert done.exit_code == 0 and "courant run cylinder-flow" in done.stdout


def test_a_store_on_s3_is_read_like_a_folder(s3, places):
    base = f"{s3.url}/status"
    solve_some(f"{base}/store")
    make_run(RunDirectory(f"{base}/runs") / "demo-0123456789", "running", 3)
    overview = observing.look(replace(places, store=f"{base}/store", runs=f"{base}/runs"))
    assert overview.problems == []
    assert [each.num_left for each in overview.datasets] == [6]
    assert [(run.state, run.epoch) for run in overview.runs] == [("running", 3)]


def test_on_a_terminal_it_keeps_up_with_what_goes_on(places, monkeypatch):
    looks, look = iter(range(3)), observing.look

    def look_twice(where):
        match next(looks):
            case 1:
                solve_some(places.store, num_cases=4, num_left=0)
            case 2:
                raise KeyboardInterrupt
        return look(where)

    monkeypatch.setattr(observing, "look", look_twice)
    drawn = io.StringIO()
    terminal = Console(file=drawn, force_terminal=True, color_system=None, width=80, height=40)
    with pytest.raises(KeyboardInterrupt):
        observing.draw_until_interrupted(places, 0.0, terminal)
    lines = [line for line in drawn.getvalue().splitlines() if "cylinder-flow  " in line]
    assert [line.split()[1:3] for line in lines] == [["solving", "2"], ["unpublished", "4"]]
