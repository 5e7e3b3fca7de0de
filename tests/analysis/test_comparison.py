"""Runs side by side: seeds in one row, what is scored already not again."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from courant.analysis import comparison
from courant.analysis.case_scores import NEAREST, POD, RANDOM
from courant.analysis.comparison import ANCHORS, WINDOWS, ScoredRun, compare_runs, gather, score_run
from courant.prediction.surrogate import Surrogate
from courant.runs.directory import RunDirectory
from flows.cli.app import app
from flows.terminal import screen
from simgen.errors import InputError


def planted(name: str, seed: int, gini: float, **settings: Any) -> ScoredRun:
    """A run with settings such as model__width=64."""
    known = {key.replace("__", "."): value for key, value in settings.items()}
    return ScoredRun(f"runs/{name}", {"name": name, "training.seed": seed, **known}, {"gini": gini})


def test_seeds_are_one_row_with_the_mean_and_its_interval() -> None:
    found = gather(
        [
            planted("a", 1, 0.2, model__anchor_kind="sampled", model__gaussian_window="none"),
            planted("b", 1, 0.9, model__anchor_kind="learned", model__gaussian_window="none"),
            planted("c", 2, 0.4, model__anchor_kind="sampled", model__gaussian_window="none"),
            planted("d", 1, 0.5, model__anchor_kind="sampled", model__gaussian_window="both"),
        ]
    )
    assert [row.label for row in found.rows] == ["baseline", "learned anchors", "windows (both)"]
    assert found.rows[0].runs == ("runs/a", "runs/c")
    gini = found.rows[0].scores["gini"]
    # Student's t of one degree of freedom at 97.5 % is 12.706.
    assert gini.mean == pytest.approx(0.3)
    assert gini.half_width == pytest.approx(12.706 * 0.1, rel=1e-3)
    assert found.rows[1].scores["gini"].half_width is None


def test_rows_are_named_by_the_settings_that_differ_and_act() -> None:
    def labels(*settings: dict[str, str]) -> list[str]:
        runs = [ScoredRun(str(n), {**each, "training.seed": 1}) for n, each in enumerate(settings)]
        return [row.label for row in gather(runs).rows]

    assert labels({"model.width": "64"}, {"model.width": "128"}) == ["width=64", "width=128"]
    plain = {ANCHORS: "sampled", WINDOWS: "none", "model.window_scale": "1.0"}
    cloud = {"model.window_scale": "0.35", "data.anchor_start": "cloud"}
    learned = {**plain, ANCHORS: "learned", "data.anchor_start": "cloud"}
    assert labels(plain, learned, {ANCHORS: "learned", WINDOWS: "both", **cloud}) == [
        "baseline",
        "learned anchors, anchor_start=cloud",
        "learned anchors, windows (both), window_scale=0.35, anchor_start=cloud",
    ]
    # Where nothing else differs between two rows, a setting that does nothing names them.
    assert len(set(labels(plain, {**plain, "model.window_scale": "0.5"}))) == 2


def test_families_are_in_one_table_each_with_its_controls_once() -> None:
    found = []
    for name, family, gini, chance in (("a", "pipe", 0.2, 0.1), ("b", "pump", 0.6, 0.3)):
        controls = {"random partition": {"gini": chance}, "POD": {"gini": 0.9}}
        found.append(replace(planted(name, 1, gini, family=family), controls=controls))
    controls = {"random partition": {"gini": 0.2}}
    found.append(replace(planted("c", 2, 0.4, family="pipe"), controls=controls))
    table = gather(found)
    assert table.families == ["pipe", "pump"]
    line = table.to_markdown().splitlines()[2]
    cells = [cell.strip() for cell in line.split("|")[2:-2]]
    assert cells[0].startswith("0.300 ±") and cells[1:] == ["0.15", "0.9", "0.6", "0.3", "0.9"]
    assert "pipe,random partition,gini,0.15,,2" in table.to_csv()


@pytest.fixture
def runs(surrogate: Surrogate, tmp_path: Path) -> list[str]:
    """The same weights twice, as of two seeds."""
    shutil.copytree(surrogate.url, tmp_path / "run")
    return [edited(str(tmp_path / "run"), f"seed-{seed}", training__seed=seed) for seed in (1, 2)]


def edited(url: str, name: str, **changes: Any) -> str:
    """A copy of a run with other settings, such as data__step_s=2.0."""
    copy = Path(url).with_name(name)
    shutil.copytree(url, copy)
    experiment = json.loads((copy / "experiment.json").read_text())
    for key, value in changes.items():
        section, _, setting = key.partition("__")
        experiment[section] = experiment[section] | {setting: value} if setting else value
    (copy / "experiment.json").write_text(json.dumps(experiment))
    return str(copy)


def test_cases_are_those_of_the_runs_families_and_of_all_versions(
    runs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = edited(runs[0], "other", family="centrifugal-pump")
    known = {runs[0]: ["a", "b"], runs[1]: ["b", "c", "a"], other: ["e"]}
    scored: dict[str, list[str]] = {}

    def score(run: str, cases: list[str], *_: Any) -> Any:
        scored[run] = list(cases)
        return {"mean": {"gini": 0.5}, "controls": {}}

    def record(run: RunDirectory) -> dict[str, str]:
        return {"version": "v1", "snapshot_id": run.url}

    def opened(url: str, *_: Any) -> Any:
        return SimpleNamespace(cases=lambda split=None: known[url])

    monkeypatch.setattr(comparison, "read_dataset_record", record)
    monkeypatch.setattr(comparison, "open_recorded", opened)
    monkeypatch.setattr(comparison, "score_run", score)
    folder = RunDirectory(tmp_path / "out")
    assert len(compare_runs([*runs, other], folder).families) == 2
    assert scored == {runs[0]: ["a", "b"], runs[1]: ["a", "b"], other: ["e"]}
    compare_runs([runs[0], other], folder, ["b", "e"])
    assert (scored[runs[0]], scored[other]) == (["b"], ["e"])
    with pytest.raises(InputError, match="none of the named cases is of centrifugal-pump"):
        compare_runs([runs[0], other], folder, ["b"])
    known[runs[1]] = ["d"]
    with pytest.raises(InputError, match="no test case in common"):
        compare_runs(runs, folder)


def test_the_command_writes_one_table_and_goes_on_where_it_was_cut_off(
    runs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen.width = 200
    scored: list[str] = []
    score = score_run

    def count(url: str, *arguments: Any) -> Any:
        if len(scored) == 1 and "cut" not in scored:
            scored.append("cut")
            raise InputError("cut off")
        scored.append(url)
        return score(url, *arguments)

    monkeypatch.setattr(comparison, "score_run", count)
    asked = ["analyse", "compare", *runs, "--out", str(tmp_path / "out")]
    assert CliRunner().invoke(app, asked).exit_code == 1
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    assert scored == [runs[0], "cut", runs[1]]
    written = json.loads((tmp_path / "out/comparison.json").read_text())
    (row,) = written["rows"]
    assert row["label"] == "baseline" and row["runs"] == runs and row["scores"]["nmae"]["mean"] > 0
    # The same weights have the same scores; two seeds are one pair, from whichever side.
    matched = row["scores"].pop("seed_correlation")
    assert matched == {"mean": pytest.approx(1), "half_width": None, "count": 1}
    for each in row["scores"].values():
        assert each["half_width"] == pytest.approx(0, abs=1e-9) and each["count"] == 2
    assert [each["label"] for each in written["controls"]] == [RANDOM, NEAREST, POD]
    for name in ("comparison", "trade-off", "fields"):
        assert (tmp_path / f"out/{name}.png").read_bytes().startswith(b"\x89PNG")
    with np.load(tmp_path / "out/fields.npz") as fields:
        assert fields["magnitudes_0"].shape == (len(fields["anchors_0"]), len(fields["points"]))
    assert "baseline (2)" in (tmp_path / "out/comparison.md").read_text()
    assert "Gini of the energies" in done.stdout and "nearest-anchor" in done.stdout


def test_runs_are_compared_once_each_and_with_what_answers_the_same(
    runs: list[str], tmp_path: Path
) -> None:
    folder = RunDirectory(tmp_path / "out")
    with pytest.raises(InputError, match="name two or more"):
        compare_runs([runs[0], f"{runs[0]}/"], folder)
    again = edited(runs[0], "again")
    with pytest.raises(InputError, match=r"again and .*seed-1 are one training: .* name one"):
        compare_runs([*runs, again], folder)
    other = edited(runs[0], "other", data__fields=["kinematic_pressure"])
    with pytest.raises(InputError, match=r"differ in data\.fields.*: compare runs that predict"):
        compare_runs([*runs, other], folder)
