"""Reports of transient and steady runs, for every kind of anchors and for other models."""

import dataclasses
import html
import re
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from courant.evaluation.evaluate import evaluate
from courant.field_model import FieldModel, Inputs, ModelConfig, Queries
from courant.prediction.surrogate import Surrogate
from courant.report import context as of_context
from courant.report import report
from courant.report.context import TOP_ANCHORS, Context, open_context
from courant.report.data_and_training import case_table, designs_panel, use_panel
from courant.report.dynamics import frequencies_panel, monitor_panel
from courant.report.errors import (
    case_panel,
    growth_panel,
    parity_panel,
    sensitivity_panel,
    short_ids,
)
from courant.report.fields import rollout_panel, streamlines_panel, surface_panel
from courant.report.page import current_page, keep_inputs, summary_line
from courant.report.report import PANELS, main_figure, write_report
from courant.runs.directory import RunDirectory
from courant.training.train import fit
from simgen.publish.figures import designs as draw_designs
from simgen.publish.figures import sample_cases
from simgen.store.read import Dataset
from simgen.store.schema import Schema
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


@pytest.fixture(scope="module")
def datasets(waves: Dataset, ducts: Dataset) -> dict[str, Dataset]:
    return {"transient": waves, "steady": ducts}


@pytest.fixture(scope="module", params=RUNS)
def context(
    request: pytest.FixtureRequest,
    datasets: dict[str, Dataset],
    tmp_path_factory: pytest.TempPathFactory,
) -> Context:
    torch.set_num_threads(1)
    task = request.param.split()[0]
    run = RunDirectory(tmp_path_factory.mktemp("runs")) / request.param.replace(" ", "-")
    tiny = {"transient": tiny_experiment, "steady": tiny_steady}[task](epochs=1)
    fit(tiny.derive(**RUNS[request.param]), datasets[task], run)
    return open_context(run, evaluate(run.url))


def test_a_report_is_one_page_with_its_pictures_in_it_and_its_arrays_beside_it(
    context: Context, tmp_path: Path
) -> None:
    url = write_report(context.run.url, str(tmp_path))
    page = html.unescape(Path(url).read_text())
    named = re.findall(r'href="([^"#]+)"', page)
    led_to = re.findall(r'href="#([^"]+)"', page)
    assert len(led_to) >= 5 and set(led_to) <= set(re.findall(r'h2 id="([^"]+)"', page))
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
        assert ".npz" in caption and not re.search(r"\b(None|nan)\b", caption), caption
    assert summary_line(context.evaluation) in page
    assert main_figure(context.evaluation) in written
    assert {"decomposition.png", "decomposition.npz", "prediction.npz"} <= written
    for name in set(named):
        with np.load(tmp_path / name, allow_pickle=False) as arrays:
            assert all(arrays[key].size for key in arrays.files), name
    assert "the paper never defines" in page
    assert "Quantities of interest" in page
    assert ("quantities.png" in written) == bool(context.evaluation.quantities)
    rows = re.search(r'id="anchor_table".*?<tbody>(.*?)</tbody>', page, flags=re.S)
    assert rows is not None
    assert rows[1].count("<tr>") == context.surrogate.model.config.num_anchors
    for channel in context.channels:
        assert f"{channel.field} {channel.component}".replace("_", " ") in page


def test_a_report_is_drawn_again_only_where_its_inputs_changed_or_a_file_is_gone(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "PANELS", (designs_panel,))
    figure, inputs = tmp_path / "designs.png", tmp_path / "report.json"
    url = write_report(context.run.url, str(tmp_path))
    drawn = figure.stat().st_mtime_ns
    assert write_report(context.run.url, str(tmp_path)) == url
    assert figure.stat().st_mtime_ns == drawn
    for spoil in (figure.unlink, lambda: inputs.write_text("{}"), lambda: inputs.write_text("[]")):
        spoil()
        write_report(context.run.url, str(tmp_path))
        assert figure.stat().st_mtime_ns > drawn
        drawn = figure.stat().st_mtime_ns


@pytest.mark.parametrize("name", ["bands.json", "monitor.json", "metrics.jsonl"])
def test_a_report_is_drawn_again_after_a_calibration_or_more_training(
    context: Context, tmp_path: Path, name: str
) -> None:
    folder = RunDirectory(tmp_path / "report")
    run = RunDirectory(tmp_path / "run")
    run.write_bytes("metrics.jsonl", b"{}\n")
    folder.write_bytes("index.html", b"page")
    keep_inputs(run, folder, context.evaluation, [])
    assert current_page(run, folder, context.evaluation) is not None
    before = run.read_bytes(name) if run.exists(name) else b""
    run.write_bytes(name, before + b"{}\n")
    assert current_page(run, folder, context.evaluation) is None


def test_cases_that_a_panel_was_fitted_to_are_not_judged(context: Context) -> None:
    of_validation = dataclasses.replace(
        context, evaluation=context.evaluation.model_copy(update={"split": "validation"})
    )
    assert monitor_panel(of_validation) is None


def test_ids_are_shortened_as_far_as_they_stay_different() -> None:
    assert short_ids(["7e24a8abf7ac", "af126143f96d"]) == ["7e24a8ab", "af126143"]
    airfoils = ["airFoil2D_SST_31.2_4.1", "airFoil2D_SST_31.2_5.0", "airFoil2D_SST_90.0_0"]
    found = short_ids(airfoils)
    assert len(set(found)) == 3 and all(
        short in name for short, name in zip(found, airfoils, strict=True)
    )
    assert short_ids(["run", "run-2"]) == ["run", "run-2"]
    assert short_ids(["only-one"]) == ["only-one"]


def test_anchors_are_ranked_over_the_whole_field_in_standard_deviations(context: Context) -> None:
    shown = context.shown[0]
    parts = context.surrogate.decompose_case(shown.case, start_s=shown.start_s)
    fields = parts.contributions.reshape(-1, *parts.contributions.shape[-3:])[-1]
    norms = np.linalg.norm(
        (fields / context.surrogate.normaliser.std).reshape(len(fields), -1), axis=1
    )
    ranking = shown.ranking
    np.testing.assert_allclose(ranking.norms, norms, rtol=1e-5)
    assert ranking.largest.tolist() == np.argsort(-norms).tolist()[:TOP_ANCHORS]
    assert ranking.deviation < 1e-4
    assert (ranking.anchors is None) == (
        context.surrogate.experiment.model.anchor_kind == "abstract"
    )


def test_a_decomposition_in_parts_is_the_same_and_encodes_once(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = context.shown[0]
    whole = shown.ranking
    encoded: list[str] = []
    prepare = Surrogate.prepare_case

    def counted(surrogate: Surrogate, case: Any, *given: Any) -> Any:
        encoded.append(case.id)
        return prepare(surrogate, case, *given)

    cells = np.arange(0, shown.case.num_points, 3)
    some = shown.contributions(cells, whole.largest)
    one_cell = context.surrogate.decompose_case(
        shown.case, start_s=shown.start_s, cells=np.arange(1)
    )
    monkeypatch.setattr(of_context, "MAX_VALUES", 7 * one_cell.contributions.size)
    monkeypatch.setattr(Surrogate, "prepare_case", counted)
    parted = dataclasses.replace(shown).ranking
    assert len(encoded) <= 2, "of the prediction, and of its decomposition"
    np.testing.assert_allclose(parted.norms, whole.norms, rtol=1e-4)
    again = shown.contributions(cells, whole.largest)
    np.testing.assert_allclose(again, some, atol=1e-5 * np.abs(some).max())


def test_the_lines_to_paste_predict_the_shown_case(context: Context) -> None:
    code = use_panel(context).code
    by_case = re.sub(
        r"^surrogate\.predict_case", "by_case = surrogate.predict_case", code, flags=re.M
    )
    names: dict[str, Any] = {}
    exec(re.sub(r"^surrogate\.predict\(", "given = surrogate.predict(", by_case, flags=re.M), names)
    expected = context.shown[0].predicted
    for found in (names["by_case"], names["given"]):
        last = found.reshape(-1, *found.shape[-2:])[-1]
        np.testing.assert_allclose(last, expected, atol=1e-4 * np.abs(expected).max())


@dataclasses.dataclass(frozen=True)
class PlainConfig(ModelConfig):
    kind: ClassVar[str] = "plain"


class PlainModel(FieldModel):
    """A model that has no decomposition."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.layer = nn.Linear(config.dimension, config.num_outputs)

    def forward(self, inputs: Inputs, queries: Queries, num_steps: int = 1) -> Tensor:
        return self.layer(queries.points)[:, None].expand(-1, num_steps, -1, -1)


def test_a_model_that_does_not_decompose_has_no_such_panel(context: Context) -> None:
    sizes = {each.name for each in dataclasses.fields(ModelConfig)}
    trained = context.surrogate.model.config
    model = PlainModel(PlainConfig(**{name: getattr(trained, name) for name in sizes}))
    plain = Surrogate(context.run.url, context.surrogate.problem, context.surrogate.dataset, model)
    other = dataclasses.replace(context, surrogate=plain)
    is_steady = context.evaluation.step_s is None
    of_other_problems = (rollout_panel, growth_panel) if is_steady else (parity_panel,)
    # Sensitivities need more designs; streamlines and surfaces fields and dimensions.
    without = (frequencies_panel, monitor_panel, sensitivity_panel, *of_other_problems)
    for make in PANELS:
        if make not in (streamlines_panel, surface_panel):
            absent = make.__module__ == "courant.report.anchors" or make in without
            assert (make(other) is None) == absent, make.__qualname__


@pytest.mark.parametrize("num", [0, 1])
def test_a_design_space_of_one_parameter_or_none_has_a_report(
    context: Context, monkeypatch: pytest.MonkeyPatch, num: int
) -> None:
    schema: Schema = context.dataset.schema
    fewer = dataclasses.replace(schema, parameters=schema.parameters[:num])
    monkeypatch.setattr(context.dataset, "schema", fewer)
    assert len(case_panel(context).pictures) == 1 + num
    assert (designs_panel(context) is not None) == (num == 1)
    assert len(case_table(context.dataset).columns) == 6 + num
    sample_cases([context.dataset[0]], context.channels[0].field).canvas.draw()
    if num:
        draw_designs(context.dataset).canvas.draw()
