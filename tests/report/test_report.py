"""Reports of transient and steady runs, for every kind of anchors and for other models."""

import dataclasses
import html
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from courant.evaluation.evaluate import evaluate
from courant.prediction.bands import GridError, QuantityBand
from courant.report import errors, report
from courant.report.anchors import TOP_ANCHORS, anchor_scores_panel, decomposition_panel
from courant.report.context import Context, open_context
from courant.report.data_and_training import cases_panel, ledger_of, tuning_seconds, use_panel
from courant.report.dynamics import monitor_panel
from courant.report.page import Cell
from courant.report.report import write_report
from courant.report.verdict import judge, known_verdict
from courant.runs.directory import RunDirectory
from courant.runs.record import EpochRecord, write_records
from courant.runs.summary import read_run
from courant.training.train import fit
from simgen.cases import FAMILIES
from simgen.store.read import Dataset, StoredCase
from tests.commands import called
from tests.world import tiny_experiment, tiny_steady

BOTH_FIELDS = {"fields": ("velocity", "kinematic_pressure")}
RUNS: dict[str, Any] = {
    "transient sampled": {},
    "transient abstract": {"model": {"anchor_kind": "abstract"}},
    "steady learned": {
        "model": {"anchor_kind": "learned", "num_outputs": 4, "num_features": 4},
        "data": BOTH_FIELDS,
    },
    "steady abstract": {"model": {"anchor_kind": "abstract"}},
}


@pytest.fixture(scope="module", params=RUNS)
def context(
    request: pytest.FixtureRequest,
    waves: Dataset,
    ducts: Dataset,
    tmp_path_factory: pytest.TempPathFactory,
) -> Context:
    torch.set_num_threads(1)
    task = request.param.split()[0]
    run = RunDirectory(tmp_path_factory.mktemp("runs")) / request.param.replace(" ", "-")
    made = {"transient": (tiny_experiment, waves), "steady": (tiny_steady, ducts)}[task]
    fit(made[0](epochs=1).derive(**RUNS[request.param]), made[1], run)
    return open_context(run, evaluate(run.url))


def test_a_report_is_one_page_with_its_pictures_in_it_and_its_arrays_beside_it(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = write_report(context.run.url, str(tmp_path))
    page = html.unescape(Path(url).read_text())
    named = re.findall(r'href="([^"#]+)"', page)
    led_to = re.findall(r'href="#([^"]+)"', page)
    assert set(led_to) <= set(re.findall(r'(?:h2|tr) id="([^"]+)"', page))
    assert len(set(led_to) - set(context.dataset.cases())) == 6
    written = {file.name for file in tmp_path.iterdir()}
    assert set(named) == {name for name in written if name.endswith(".npz")}
    figures = {name for name in written if name.endswith(".png")}
    assert written - set(named) - figures == {"index.html", "report.json", "summary.json"}
    assert all((tmp_path / name).stat().st_size > 5000 for name in figures)
    pictures = re.findall(r'src="([^"]+)"', page)
    assert len(pictures) > len(figures)
    assert all(each.startswith(("data:image/webp;", "data:image/png;")) for each in pictures)
    assert "Content-Security-Policy" in page and not re.search(r"(src|href)=\"http", page)
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", page, flags=re.S)
    is_transient = context.evaluation.step_s is not None
    assert len(captions) == len(figures) + is_transient
    for caption in captions:
        assert re.search(r"<b>.+</b>", caption) and 'class="score">' in caption, caption
        assert not re.search(r"\b(None|nan)\b", caption), caption
    verdict = judge(context.evaluation, {})
    whose = f"{verdict.given} " * bool(verdict.given)
    assert f">{whose}fields: {verdict.word}</p>" in page and verdict.measured in page
    assert known_verdict(context.run) == verdict
    is_known = bool(errors.bands_of(context) or errors.bands_in_the_middle(context))
    is_first = is_known and verdict.word in ("not usable", "unproven") and not verdict.given
    assert (f"<code>courant predict {context.run.url} <span>--design" in page) == is_first
    assert verdict.word != "not usable" or "fewer core-seconds" not in page
    asked = ["predict", context.run.url, next(iter(context.evaluation.cases))]
    asked += ["--out", f"{tmp_path}/case.npz", *["--start", "20", "--steps", "1"] * is_transient]
    last = f"fields of the network: {verdict.word} (courant evaluate {context.run.url} says why)"
    assert (called(*asked).output.splitlines()[-1] == last) == (not verdict.given)
    assert read_run(context.run).test_cases == len(context.evaluation.cases)
    of_one, experiment = ledger_of(context).training.mean, context.surrogate.experiment
    of_two = experiment.derive(training={"workers": 2})
    monkeypatch.setattr(context.surrogate, "experiment", of_two)
    assert ledger_of(context).training.mean == 2 * of_one > 0
    # What is inside the model is closed.
    assert page.index("<details>") < page.index('id="decomposition"')
    # One or two cases are in tables alone.
    drawn = len(context.evaluation.cases) >= errors.LEAST_DRAWN
    assert ("errors_by_case.png" in written) == drawn
    assert {"decomposition.png", "decomposition.npz", "prediction.npz"} <= written
    for name in set(named):
        with np.load(tmp_path / name, allow_pickle=False) as arrays:
            assert all(arrays[key].size for key in arrays.files), name
    assert ("quantities.png" in written) == (drawn and bool(context.evaluation.quantities))
    rows = re.search(r'id="anchor_table".*?<tbody>(.*?)</tbody>', page, flags=re.S)
    assert rows is not None
    assert rows[1].count("<tr>") == context.surrogate.model.config.num_anchors
    for channel in context.channels:
        assert f"{channel.field} {channel.component}".replace("_", " ") in page


def test_a_report_is_drawn_again_only_where_its_inputs_changed_or_its_page_is_gone(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "SECTIONS", {"Data": (cases_panel,)})
    figure, inputs = tmp_path / "designs.png", tmp_path / "report.json"
    url = write_report(context.run.url, str(tmp_path))
    drawn = figure.stat().st_mtime_ns
    assert write_report(context.run.url, str(tmp_path)) == url
    assert figure.stat().st_mtime_ns == drawn
    for spoil in ((tmp_path / "index.html").unlink, lambda: inputs.write_text("[]")):
        spoil()
        write_report(context.run.url, str(tmp_path))
        assert figure.stat().st_mtime_ns > drawn
        drawn = figure.stat().st_mtime_ns


def test_cases_that_a_panel_was_fitted_to_are_not_judged(context: Context) -> None:
    of_validation = dataclasses.replace(
        context, evaluation=context.evaluation.model_copy(update={"split": "validation"})
    )
    assert monitor_panel(of_validation) is None


def test_cases_are_ranked_and_marked_by_the_fields_that_are_shown(context: Context) -> None:
    given = dataclasses.replace(context)
    vars(given)["better"] = ("nearest design", lambda *_: np.zeros(1))
    of = {n: e.overall["nearest design"].nmae for n, e in given.evaluation.cases.items()}
    assert given.ranked == sorted(of, key=of.__getitem__) and given.shown[-1].by == "nearest design"
    for row in errors.errors_panel(given).tables[0].rows:
        marks = any(isinstance(of, Cell) and of.mark for of in row.values())
        assert not marks or row["predicted by"] == "the nearest design"


def test_the_strongest_fields_are_those_of_most_energy_and_sum_to_the_prediction(
    context: Context,
) -> None:
    panel, fields = decomposition_panel(context), context.scores.fields
    assert panel is not None
    chosen, parts = panel.arrays["largest"], panel.arrays["contributions"]
    assert chosen.tolist() == np.argsort(-fields.energies).tolist()[:TOP_ANCHORS]
    deviation = re.search(r"differs from the prediction by at most (\S+)", panel.note)
    assert deviation is not None and float(deviation[1]) < 1e-4
    std = context.surrogate.normaliser.at(context.shown[0].case.parameters).std
    sizes = np.linalg.norm(parts / std, axis=-1)
    np.testing.assert_allclose(sizes, fields.magnitudes[chosen], rtol=1e-3, atol=1e-5)
    abstract = context.surrogate.experiment.model.anchor_kind == "abstract"
    assert (fields.anchors is None) == abstract


def test_the_lines_to_paste_predict_the_shown_case(context: Context) -> None:
    names: dict[str, Any] = {}
    code = use_panel(context).code.replace("help(", "(")
    exec(code.replace("surrogate.predict_case", "found = surrogate.predict_case"), names)
    last = names["found"].reshape(-1, *names["found"].shape[-2:])[-1]
    shown = context.shown[0]
    expected = context.surrogate.predict_last(shown.case, start_s=shown.start_s)
    np.testing.assert_allclose(last, expected, atol=1e-4 * np.abs(expected).max())


def test_the_next_step_ends_with_the_next_report_and_names_changed_settings(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    unusable = judge(context.evaluation, {})._replace(word="not usable", given="")
    url = context.dataset.url
    lines = {"runs": f"run --dataset {url} --out /a", "b": f"train {url} --runs /a/b"}
    for folder, line in lines.items():
        of_run = dataclasses.replace(context, run=RunDirectory(f"/a/{folder}/b-1"))
        assert report.next_step(of_run, unusable)[1].splitlines()[-1].startswith(f"courant {line}")
    with monkeypatch.context() as imported:
        imported.setattr(context.dataset, "family", None)
        imported.setattr(StoredCase, "provenance", {"command": "courant dataset import a"})
        assert report.next_step(context, unusable)[1].startswith("courant dataset import a\n")
    ahead = report.next_step(context, unusable._replace(given="POD + GP"))
    assert "POD + GP predicts the fields" in ahead[0] and "courant generate" in ahead[1]
    suffix = "vtu" if context.evaluation.step_s is None else "pvd"
    assert ahead[1].splitlines()[-1].endswith(f" --out fields.{suffix}")
    with monkeypatch.context() as unmeshed:
        unmeshed.setattr(report, "predict_command", lambda *_: "")
        ahead = report.next_step(context, unusable._replace(given="POD + GP"))
        assert "any design" not in ahead[0] and "courant predict" not in ahead[1]
    # A budget of a minute ended the training of a few designs, or of many.
    hasty = context.surrogate.experiment.with_values({"training.budget_s": 60})
    monkeypatch.setattr(context.surrogate, "experiment", hasty)
    losses = SimpleNamespace(validation_loss=1, train_loss=1)
    monkeypatch.setattr(report, "best_record", lambda _: losses)
    why, step = report.next_step(context, unusable)
    assert "designs" in why and step.splitlines()[-1].endswith("--budget 10min")
    monkeypatch.setattr(report, "LEAST_DESIGNS", 0)
    assert report.next_step(context, unusable)[0].startswith("Train for longer")
    assert "Train for longer" not in report.next_step(context, unusable._replace(given="POD"))[0]
    records = context.dataset.records
    failed = {**next(iter(records.values())), "status": "failed"}
    monkeypatch.setattr(
        context.dataset, "records", records | dict.fromkeys(map(str, range(len(records))), failed)
    )
    why, step = report.next_step(context, unusable)
    assert step == f"courant dataset show {context.dataset.url}"
    assert why.startswith(f"{len(records)} of {2 * len(records)} designs")
    pipe = FAMILIES["branched-pipe"]
    assert pipe.options({**pipe.presets["trial"], "mesh_size": 9.5}) == " --set mesh_size=9.5"


def test_commands_in_notes_quote_a_run_with_blanks(context: Context) -> None:
    panel = anchor_scores_panel(dataclasses.replace(context, run=RunDirectory("/a b")))
    assert panel is not None and "`courant analyse '/a b'`" in panel.note


def test_a_calibrated_run_has_both_bands_and_the_error_of_the_mesh() -> None:
    bands: Any = SimpleNamespace(
        grid={"peak_speed": GridError(order=1, low=0.1, high=0.2, num_designs=5, sizes=(5, 7))},
        no_grid={"branch1_share": "no trend"},
    )
    of = {"unit": "m2/s2", "source": "fields", "error": 0.1, "fields_error": None}
    of |= {"constant": False, "predicted": {"a": 0.6, "b": 0.64, "c": 0.62, "d": 0.62}}
    of |= {"truth": {"a": 1.2, "b": 0.9, "c": None, "d": 0.62}}
    names = ("pressure_loss", "branch1_share", "peak_speed")
    context: Any = SimpleNamespace(
        surrogate=SimpleNamespace(bands=bands),
        evaluation=SimpleNamespace(quantities={name: SimpleNamespace(**of) for name in names}),
    )
    band = QuantityBand(half_width=0.31, kind="calibrated", level=0.9, num_cases=12)
    table = errors.lead_table(context, {"peak_speed": [band, band, band, None]})
    assert table is not None
    rows = {row["quantity"]: list(row.values())[1:] for row in table.rows}
    assert rows["pressure loss (m²/s²)"] == ["fields", "10.0%", "none", "not studied"]
    assert rows["branch1 share (m²/s²)"] == ["fields", "10.0%", "none", "no trend"]
    expected = ["fields", "10.0%", "± 0.31 (50%)", "1 of 2", "+10.0% to +20.0%"]
    assert rows["peak speed (m²/s²)"] == expected
    assert "band (90%)" in table.rows[0]
    context.surrogate.bands = None
    vars(context.evaluation.quantities["peak_speed"])["constant"] = True
    uncalibrated = errors.lead_table(context, {})
    assert uncalibrated is not None
    assert list(uncalibrated.rows[0]) == ["quantity", "answered by", "error"]
    assert uncalibrated.rows[2]["answered by"] == Cell("no trend, its mean", "bad")


def test_the_other_trials_of_a_sweep_are_its_search(tmp_path: Path) -> None:
    sweep = RunDirectory(tmp_path / "sweep")
    times = {"a": 5.0, "b": 7.0, "c": 11.0}
    sweep.write_json("trials.json", [])
    for name, seconds in times.items():
        # Of two threads: what is summed is their time, and not that of the wall.
        epoch = EpochRecord(1, 1, 0.1, None, None, 1e-3, seconds / 2, 1.0, 0.0, 0.0, seconds)
        write_records(sweep / "trials" / name, [epoch])
    assert tuning_seconds(sweep / "trials" / "b") == 16.0
    assert tuning_seconds(RunDirectory(tmp_path / "runs" / "a")) is None
