"""The ledger of a report counts what the run's sweep took."""

from pathlib import Path

from courant.report.trust import tuning_seconds
from courant.runs.directory import RunDirectory


def test_the_other_trials_of_a_sweep_are_its_search(tmp_path: Path) -> None:
    sweep = RunDirectory(tmp_path / "sweep")
    rows = [
        {"run": f"/first/place/{name}", "seconds": seconds}
        for name, seconds in (("a", 5.0), ("b", 7.0), ("c", 11.0))
    ]
    sweep.write_json("trials.json", rows)
    assert tuning_seconds(sweep / "trials" / "b") == 16.0


def test_a_run_of_no_sweep_has_no_search_on_record(tmp_path: Path) -> None:
    assert tuning_seconds(RunDirectory(tmp_path / "runs" / "a")) is None
    assert tuning_seconds(RunDirectory(tmp_path / "trials" / "a")) is None
    RunDirectory(tmp_path).write_json("trials.json", {"no": "table"})
    assert tuning_seconds(RunDirectory(tmp_path / "trials" / "a")) is None
