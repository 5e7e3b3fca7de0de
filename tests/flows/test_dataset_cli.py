"""`courant dataset` on a real dataset: what a person sees, and exit codes."""

import re
import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import zarr

import simgen
from simgen.case import Gate
from simgen.store import versions as collect
from simgen.store.schema import Source
from simgen.store.write import DatasetWriter
from tests.commands import called
from tests.store.conftest import FAMILY, SCHEMA, add, make_cloud, make_result, record

STORE = "store"
DATASET = f"{STORE}/cylinder-flow"

SETTINGS = FAMILY.settings("trial", {})
POINTS = [FAMILY.point(values, SETTINGS) for values in FAMILY.design_space.sample(5)]
REASONS = {2: "maximum Courant number is 7, limit <= 1.5", 4: "time limit of 60 s"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A dataset of two versions: five cases, one rejected, one failed."""
    url = str(tmp_path_factory.mktemp("made") / "cylinder-flow")
    writer = DatasetWriter.open(url, SCHEMA)
    num_snapshots = round(SETTINGS["end_time"] / SETTINGS["snapshot_interval"])
    for number, point in enumerate(POINTS):
        status = {2: "rejected", 4: "failed"}.get(number, "accepted")
        result = replace(make_result(number, status, REASONS.get(number, "")), point=point)
        cloud = make_cloud(number, 6, num_snapshots) if status == "accepted" else None
        record(writer, result, cloud)
        if number in (2, 4):
            run = {"family": "cylinder-flow", "cases": number + 1, "sampler": "sobol", "seed": 42}
            run |= {"preset": "trial", "settings": {}, "designs": None}
            writer.publish(f"cylinder-flow: trial preset, {number + 1} designs", run)
    return url


@pytest.fixture
def courant(made, tmp_path, monkeypatch):
    """Run a command in a folder that holds the dataset."""
    shutil.copytree(made, tmp_path / DATASET)
    monkeypatch.chdir(tmp_path)
    return lambda *words, **ends: called(*words, **ends).output


def test_versions_are_listed_and_shown_with_rejected_cases_and_how_to_make_them_again(courant):
    assert "v2" in courant("dataset", "ls", STORE)
    listed, made = courant("dataset", "versions", DATASET), "courant generate cylinder-flow --cases"
    assert "cylinder-flow: trial preset, 3 designs" in listed
    assert f"v2  {made} 5 --sampler sobol --seed 42 --preset trial" in listed
    shown = courant("dataset", "show", DATASET)
    assert "rejected: maximum Courant number is 7" in shown
    assert f"make it again:\n  {made} 3" in shown and f" && {made} 5" in shown
    assert "OpenFOAM v1912" in courant("dataset", "show", DATASET, "--case", POINTS[0].id)


def test_two_versions_are_compared(courant):
    assert "newly accepted\t1 " in courant("dataset", "diff", DATASET, "v1", "v2")
    assert "v2 and v2 hold the same cases" in courant("dataset", "diff", DATASET, "v2", "v2")
    assert "has no version v9; there are v1, v2" in courant(
        "dataset", "diff", DATASET, "v1", "v9", exit_code=1
    )


def test_verify_says_intact_or_exits_with_one_and_a_table(courant):
    assert "chunks of 5 cases are intact" in courant("dataset", "verify", DATASET)
    for chunk in Path(DATASET, "chunks").iterdir():
        chunk.write_bytes(chunk.read_bytes()[:100])
    damaged = courant("dataset", "verify", DATASET, exit_code=1)
    assert "restore the store from a copy" in damaged


def test_a_version_is_exported_described_and_cleaned(courant, monkeypatch):
    export = ("dataset", "export", DATASET, "plain")
    assert "plain  2 cases" in courant(*export, "--version", "v1")
    assert len(list(zarr.open_group("plain", mode="r")["cases"])) == 2
    assert "plain  2 cases" in courant(*export, "--version", "v1"), "again"
    assert "is not empty" in courant(*export, exit_code=1)
    assert "card/README.md" in courant("dataset", "card", DATASET, "--license", "CC0-1.0")
    assert "| licence | CC0-1.0 |" in Path("card/README.md").read_text()
    gc = ("dataset", "gc", DATASET, "--older-than")
    assert "nothing to delete" in courant(*gc, "876000")
    assert "is too short" in courant(*gc, "0", exit_code=1)
    monkeypatch.setattr(collect, "LEAST_AGE", timedelta(0))
    assert "would delete at least" in courant(*gc, "0", "--dry-run")
    assert courant(*gc, "0").startswith("deleted ")
    assert "intact" in courant("dataset", "verify", DATASET, "--version", "v1")


def test_one_damaged_dataset_hides_no_other(courant):
    shutil.copytree(DATASET, f"{STORE}/copy")
    shutil.move(f"{STORE}/copy", f"{STORE}/branched-pipe")
    Path(DATASET, "refs", "tag.v2", "ref.json").write_text("{")
    Path(STORE, "branched-pipe", "refs", "branch.main", "ref.json").write_text("{")
    listed = courant("dataset", "ls", STORE, exit_code=1)
    assert "cannot be read" in listed
    assert "v2" in next(line for line in listed.splitlines() if "cylinder-flow" in line)


def test_a_case_is_withdrawn_in_a_new_version_that_all_commands_understand(courant, tmp_path):
    case = simgen.open_dataset(DATASET).cases("test")[0]
    told = courant("dataset", "withdraw", DATASET, case, "--reason", "half of it")
    assert told.startswith("cylinder-flow v3: 2 cases")
    assert "withdrawn: half of it" in courant("dataset", "show", DATASET)
    assert f"{case}  withdrawn  half of it" in courant("dataset", "show", DATASET, "--case", case)
    assert f"1: {case} accepted -> withdrawn" in courant("dataset", "diff", DATASET, "v2", "v3")
    assert f"withdrawn: {case}: half of it" in courant("dataset", "versions", DATASET)
    assert "of 5 cases are intact" in courant("dataset", "verify", DATASET)
    courant("dataset", "card", DATASET, "--out", str(tmp_path / "card"))
    card = (tmp_path / "card/README.md").read_text()
    assert "| withdrawn | half of it | 1 |" in card
    assert f"courant dataset withdraw made-again/cylinder-flow {case} --reason 'half of it'" in card


#: A title, a link with a picture's name, a bell, a C1 introducer, and markup of this screen's own.
ESCAPES = "\x1b]0;owned\x07 \x1b[2J \x9b31m [link=http://page.example]here[/link] [/nothing]"


def test_a_strangers_dataset_does_not_control_the_terminal(courant):
    url = "hostile/cylinder-flow"
    fields = (replace(SCHEMA.fields[0], unit=ESCAPES), *SCHEMA.fields[1:])
    source = Source(ESCAPES, ESCAPES, ESCAPES)
    writer = DatasetWriter.open(url, replace(SCHEMA, fields=fields, source=source))
    add(writer, 0, 1)
    result = make_result(2, "rejected", f"reason {ESCAPES}")
    provenance = {**result.provenance, "solver": ESCAPES}
    gates = (Gate(ESCAPES, 1.0, ESCAPES, False, ESCAPES),)
    hostile = replace(result, gates=gates, log_tail=f"tail {ESCAPES}", provenance=provenance)
    record(writer, hostile)
    writer.publish(f"message {ESCAPES}")
    case = ("show", url, "--case", result.id)
    for words in (("show", url), case, ("versions", url), ("ls", "hostile")):
        shown = courant("dataset", *words)
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown), words
    assert "[link=http://page.example]" in courant("dataset", *case)


def test_a_password_in_a_url_is_not_printed(courant, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://user:s3cr3tpassw0rd@127.0.0.1:1")
    shown = courant("dataset", "show", "s3://bucket/cylinder-flow", exit_code=1)
    assert "127.0.0.1:1" in shown
    assert "s3cr3tpassw0rd" not in shown
