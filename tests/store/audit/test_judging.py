"""A gate that changes judges the figures on record, without a solve."""

import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import simgen
from flows.cli.app import app
from flows.stages.generation import Generation, to_solve
from simgen.audit import judging
from simgen.audit.verify import verify
from simgen.cases.cylinder import family
from simgen.errors import ProgramError, StoreError
from tests.store.conftest import NUM_SNAPSHOTS, make_cloud, make_result

FIGURES = {
    "max_non_orthogonality": 40.0,
    "failed_checks": 0.0,
    "max_courant": 0.5,
    "mass_imbalance": 1e-6,
    "solver_finished": 1.0,
    "last_time": float(NUM_SNAPSHOTS),
    "num_snapshots": float(NUM_SNAPSHOTS),
    "first_stored_time": 1.0,
    "asked_times_missing": 0.0,
    "mesh_files_changed": 0.0,
    "not_finite": 0.0,
}


def put(writer, number, courant, archive=None, without=()):
    """Record a case with a Courant number, judged as solving it would: at most 1.5."""
    figures = {name: each for name, each in FIGURES.items() if name not in without}
    figures["max_courant"] = courant
    result = make_result(number)
    provenance = {**result.provenance, "figures": figures}
    if archive:
        provenance["archive"] = str(archive)
    accepted = courant <= 1.5
    verdict = ("accepted", "") if accepted else ("rejected", "maximum Courant number is too high")
    result = replace(result, provenance=provenance, status=verdict[0], reason=verdict[1])
    fork = writer.fork()
    fork.write(result, make_cloud(number) if accepted else None)
    writer.commit([fork])
    return result.id


@pytest.fixture
def cases(writer):
    """Five accepted cases, of which the last has a Courant number of 1.2."""
    return [put(writer, number, 0.5) for number in range(4)] + [put(writer, 4, 1.2)]


def judged(url) -> list[str]:
    store = str(Path(url).parent)
    done = CliRunner(env={"COLUMNS": "250"}).invoke(
        app, ["generate", "cylinder-flow", "--store", store, "--judge-again"]
    )
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()


@pytest.mark.parametrize("error", [FileNotFoundError(2, "gone"), TypeError("a mistake")])
def test_gates_that_need_files_judge_nothing_and_mistakes_in_them_are_told(
    writer, url, monkeypatch, error
):
    case = put(writer, 0, 0.5)
    writer.publish()

    def gates(self, case, figures):
        raise error

    monkeypatch.setattr(family.CylinderFlow, "gates", gates)
    dataset = simgen.open_dataset(url)
    if isinstance(error, OSError):
        found = judging.judge_version(dataset)
        assert found.unjudged == {case: "gates that read the case's files, which are gone"}
        assert (found.num_judged, found.rejected, found.passed) == (0, {}, {})
    else:
        said = f"case {case}: TypeError: a mistake, in gates .*; the program is at fault"
        with pytest.raises(ProgramError, match=said):
            judging.judge_version(dataset)


def test_a_stricter_gate_takes_cases_back_with_the_figure_that_fails(
    cases, writer, url, monkeypatch
):
    writer.publish()
    before = simgen.open_dataset(url)
    monkeypatch.setattr(family, "MAX_COURANT", 1.0)
    assert judged(url) == [
        "judged    5 cases of cylinder-flow v1",
        f"rejected  {cases[4]}: maximum Courant number is 1.2, limit <= 1",
        f"dataset   {url}  v2",
    ]
    after = simgen.open_dataset(url)
    stored = after[cases[4]]
    assert (stored.status, stored.split) == ("rejected", None)
    assert stored.reason == "maximum Courant number is 1.2, limit <= 1"
    (gate,) = (gate for gate in stored.gates if gate["name"] == "maximum Courant number")
    assert (gate["limit"], gate["passed"]) == ("<= 1", False)
    assert set(stored.provenance["rejected"]) == {"at", "by"}
    assert after.cases() == cases[:4]
    assert [after[case].split for case in cases[:4]] == [before[case].split for case in cases[:4]]
    assert verify(after).findings == [] and verify(before).findings == []
    # It is not solved again, and nothing is left to judge.
    assert to_solve([make_result(4).point], writer.known(), False) == []
    assert judged(url) == [
        "judged    5 cases of cylinder-flow v2",
        f"dataset   {url}  v2, unchanged",
    ]


def test_a_looser_gate_takes_the_fields_from_the_archive(cases, writer, url, monkeypatch, tmp_path):
    """As of a steady case, whose archive holds all that was solved."""
    rejected = make_result(5).id
    (tmp_path / rejected).mkdir()
    (tmp_path / rejected / "U").write_text("solved")
    with tarfile.open(tmp_path / "case.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / rejected, rejected)
    assert put(writer, 5, 1.8, tmp_path / "case.tar.gz") == rejected
    writer.publish()

    def convert(case):
        assert (case.directory / "U").read_text() == "solved"
        return make_cloud(5)

    monkeypatch.setattr(judging, "convert", convert)
    monkeypatch.setattr(family, "MAX_COURANT", 2.0)
    assert judged(url)[1:] == [
        f"accepted  {rejected}, with the fields of its archive",
        f"dataset   {url}  v2",
    ]
    after = simgen.open_dataset(url)
    assert (after[rejected].status, after[rejected].num_points) == ("accepted", 40)
    assert verify(after).findings == []


def test_a_case_whose_fields_were_not_kept_is_solved_again_by_the_next_generation(
    cases, writer, url, monkeypatch, tmp_path
):
    with tarfile.open(tmp_path / "case.tar.gz", "w:gz"):
        pass
    gone, empty = put(writer, 5, 1.8), put(writer, 6, 1.9, tmp_path / "case.tar.gz")
    writer.publish()
    monkeypatch.setattr(family, "MAX_COURANT", 2.0)
    lines = judged(url)
    assert f"passes    {gone}: its fields were not kept (there is no archive)" in lines[1]
    assert lines[2].startswith(f"passes    {empty}: its fields were not kept (")
    after = simgen.open_dataset(url)
    assert {after[case].status for case in (gone, empty)} == {"withdrawn"}
    assert verify(after).findings == []
    points = [make_result(number).point for number in range(7)]
    assert [point.id for point in to_solve(points, writer.known(), False)] == [gone, empty]


def test_a_record_without_a_figure_is_left_as_it_is_and_told(cases, writer, url, monkeypatch):
    lacking = put(writer, 5, 1.2, without=("mass_imbalance",))
    writer.publish()
    monkeypatch.setattr(family, "MAX_COURANT", 1.0)
    lines = judged(url)
    assert lines[0] == "judged    5 cases of cylinder-flow v1"
    told = f"unjudged  1 case, whose records lack something; the first: {lacking} has no"
    assert f"{told} 'mass_imbalance'" in lines
    assert simgen.open_dataset(url)[lacking].status == "accepted"


def test_judging_needs_a_dataset(url):
    done = CliRunner(env={"COLUMNS": "250"}).invoke(
        app, ["generate", "cylinder-flow", "--store", str(Path(url).parent), "--judge-again"]
    )
    assert done.exit_code == 1 and f"there is no dataset at {url}" in done.stderr
    assert Generation("cylinder-flow", store=str(Path(url).parent)).url == url


def test_a_damaged_archive_gives_no_fields(cases, writer, url, monkeypatch, tmp_path):
    rejected = make_result(5).id
    (tmp_path / rejected).mkdir()
    (tmp_path / rejected / "U").write_bytes(bytes(range(256)) * 40)
    path = tmp_path / "case.tar.gz"
    # Stored as they are, so that a flipped bit leaves an archive that can be unpacked.
    with tarfile.open(path, "w:gz", compresslevel=0) as archive:
        archive.add(tmp_path / rejected, rejected)
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    put(writer, 5, 1.8, path)
    writer.publish()
    monkeypatch.setattr(judging, "convert", lambda case: make_cloud(5))
    monkeypatch.setattr(family, "MAX_COURANT", 2.0)
    (line,) = (each for each in judged(url) if each.startswith("passes"))
    assert "its fields were not kept (CRC check failed" in line
    assert simgen.open_dataset(url)[rejected].status == "withdrawn"


def test_a_disk_in_trouble_takes_no_verdict_back(cases, writer, url, monkeypatch, tmp_path):
    rejected = put(writer, 5, 1.8, tmp_path / "case.tar.gz")
    writer.publish()

    def read_nothing(stored, folder):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(judging, "_unpack", read_nothing)
    monkeypatch.setattr(family, "MAX_COURANT", 2.0)
    dataset = simgen.open_dataset(url)
    with pytest.raises(StoreError, match=r"No space left on device\); run again"):
        judging.apply_judgement(dataset, judging.judge_version(dataset))
    assert simgen.open_dataset(url)[rejected].status == "rejected"
