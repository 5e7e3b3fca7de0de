"""What the explorer's page asks for: sections of designs, the sum that makes a value, solved
neighbours, and curves of quantities."""

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import ZipFile

import meshio
import numpy as np
import pytest
from scipy.spatial import cKDTree

import courant
from bench.synthetic_cases import publish_cases
from courant.evaluation.quantities import of_solved, recorded
from courant.prediction.bands import quantity_bands
from courant.prediction.surrogate import Surrogate, transferred_state
from courant.runs.directory import RunDirectory
from courant.serving import explorer
from courant.serving.predictions import Limits, RequestError
from flows.serving import explore_model
from simgen.case import CaseResult
from simgen.errors import InputError
from simgen.store.schema import Schema
from tests.serving.explored_server import answers_of_shares
from tests.world import DESIGN, FAMILY, SETTINGS, SPACE, duct, share, trained_on_pipes


@pytest.fixture
def explored(
    pipes_run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[explorer.Explored]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield explorer.Explored(courant.load(pipes_run, device="cpu"), Limits())


def at(**place: Any) -> explorer.ContributionRequest:
    return explorer.ContributionRequest(**{"parameters": DESIGN, **place})


def asked(**more: Any) -> explorer.SectionRequest:
    return explorer.SectionRequest(**{"parameters": DESIGN, **more})


@pytest.mark.openfoam
@pytest.mark.filterwarnings("ignore:.*outside the training domain")
def test_a_section_has_the_field_in_the_plane_and_a_place_is_a_sum(
    explored: explorer.Explored, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = explored.section(asked(anchors=True))
    assert explored.section(asked()) == section.model_copy(update={"anchors": []})
    middles = np.reshape(section.walls, (-1, 2, 2)).mean(axis=1)
    away, _ = cKDTree(np.stack([section.x, section.y], axis=1)).query(middles)
    assert away.max() < 1e-4 * np.ptp(middles), "the picture reaches the walls"
    corners = np.array(section.triangles)
    assert corners.max() < len(section.x) == len(section.y) and len(corners) > 100
    assert section.plane.startswith("y = ") and (section.across, section.up) == ("x", "z")
    assert section.widths is None and "is not calibrated" in section.bands.no_field
    # Walls from end to end, where the plane cuts them, and no line across inlet or outlets.
    walls = np.array(section.walls)
    lengths = np.hypot(*(walls[:, 2:] - walls[:, :2]).T)
    assert len(section.open) > 2, "inlet and outlets"
    faces = explored.shown(DESIGN).found.cloud.boundary
    of = faces.patch == explored.surrogate.normaliser.patch_kinds.index("wall")
    beside = of & (np.abs(faces.normals[:, 1]) < 0.5)
    depth = np.ptp(explored.shown(DESIGN).found.cloud.mesh.points[:, 1])
    assert lengths.sum() * depth == pytest.approx(faces.areas[beside].sum(), rel=1e-3)
    assert len(section.anchors) == explored.surrogate.experiment.model.num_sampled_anchors

    slower = {**DESIGN, "inlet_velocity": 4.0}
    other = explored.section(asked(beside=slower)).other
    np.testing.assert_allclose(other, explored.section(asked(parameters=slower)).values, atol=1e-3)

    # A window has the same cells.
    left, right, low, high = section.window
    box = (left, 0.9 * left + 0.1 * right, low, high)
    part = explored.section(asked(window=box))
    assert part.window == pytest.approx(box)
    ours, theirs = (np.stack([of.x, of.y], axis=1) for of in (part, section))
    away, same = cKDTree(theirs).query(ours)
    assert away.max() < 1e-3 and 10 < len(same) < 0.5 * len(theirs)
    np.testing.assert_allclose(part.values, np.array(section.values)[:, same], atol=1e-3)
    with pytest.raises(RequestError, match="no part of the domain"):
        explored.section(asked(window=(right + 1, right + 2, low, high)))

    monkeypatch.setattr(explored, "predict", lambda *_: pytest.fail("predicted again"))
    surface = explored.surface(asked())
    assert section.has_surface and surface.widths is None
    places, faces = np.array(surface.points), np.array(surface.triangles)
    boundary = explored.shown(DESIGN).found.cloud.boundary
    one, two = (places[faces[:, n]] - places[faces[:, 0]] for n in (1, 2))
    area = np.linalg.norm(np.cross(one, two), axis=1).sum() / 2
    assert area == pytest.approx(boundary.areas.sum(), rel=1e-3), "all of the boundary"
    assert surface.other is None and explored.surface(asked(beside=DESIGN)).other == surface.values
    # A corner has the mean of the cells behind the faces of one patch around it.
    values, _ = explored.shown(DESIGN).state(None)
    middle, cells = places[faces].mean(axis=1), explored.shown(DESIGN).found.cloud.points
    behind = values[cKDTree(cells).query(middle)[1], 0]
    at_corners = np.array(surface.values[0])
    assert np.abs(at_corners[faces].mean(axis=1) - behind).mean() < 0.2 * values[:, 0].std()
    assert (
        values[:, 0].min() - 1e-3 < at_corners.min() < at_corners.max() < values[:, 0].max() + 1e-3
    )
    place = {"x": section.x[40], "y": section.y[40]}
    for channel in (0, 1):
        parts = explored.contributions(at(**place, channel=channel))
        total = parts.offset + sum(parts.parts)
        assert total == pytest.approx(section.values[channel][40], abs=1e-3)
        assert parts.places == section.anchors and len(parts.parts) == len(parts.places)
    low, high = section.positions or (0.0, 0.0)
    assert low < section.position < high
    at_wall = explored.section(asked(position=high))
    assert at_wall.plane == f"y = {high:.3g} m"
    cells = np.flatnonzero(np.isclose(explored.shown(DESIGN).found.cloud.points[:, 1], high))
    assert len(at_wall.x) >= len(cells) > 50 and at_wall.values != section.values
    parts = explored.contributions(at(x=at_wall.x[9], y=at_wall.y[9], channel=0, position=high))
    total = parts.offset + sum(parts.parts)
    assert total == pytest.approx(at_wall.values[0][9], abs=1e-3)
    with pytest.raises(RequestError, match="is outside of"):
        explored.section(asked(position=2 * high))
    with pytest.raises(RequestError, match="step = 1"):
        explored.section(asked(step=1))
    with pytest.raises(RequestError, match="channel 7"):
        explored.contributions(at(**place, channel=7))


@pytest.mark.openfoam
@pytest.mark.filterwarnings("ignore:.*outside the training domain")
def test_a_transient_model_starts_from_the_nearest_solved_design(
    waves_run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    surrogate = courant.load(waves_run, device="cpu")
    dataset = surrogate.open_dataset()
    explored = explorer.Explored(surrogate, Limits(), dataset.url)
    near = {"radius": 1.55, "center_x": 0.0, "center_y": 0.0}
    section = explored.section(asked(parameters=near))
    first = explored.nearest(explorer.NearestRequest(parameters=near)).designs[0]
    case = dataset[first.case]
    assert case.parameters["radius"] == 1.5 and 0 < first.distance < 0.05
    begin = surrogate.problem.start(case)
    assert f"from the state at {begin:g} s of the nearest solved design, {case.id}" in section.start
    assert section.positions is None and not section.has_surface
    found = explored.shown(near).found
    cloud = transferred_state(surrogate.problem, case, found.cloud)
    frame = int(np.flatnonzero(np.asarray(case.time) == begin)[0])
    there = cKDTree(case.points).query(found.cloud.points[:5])[1]
    np.testing.assert_array_equal(cloud.fields["velocity"][-1][:5], case["velocity"][frame][there])
    assert section.times == found.times.tolist() and section.step == len(section.times) - 1
    early, shown = explored.section(asked(parameters=near, step=0)), explored.shown(near)
    there = found.values[0][shown.layer.cell].T
    np.testing.assert_allclose(early.values, there, atol=1e-3)
    assert section.values != early.values and section.other is None
    parts = explored.contributions(at(parameters=near, x=section.x[9], y=section.y[9], channel=0))
    total = parts.offset + sum(parts.parts)
    assert total == pytest.approx(section.values[0][9], abs=1e-3), "of the state that is shown"
    assert explored.section(asked(parameters=near, beside="solver")).other is None
    at_case = explored.section(asked(parameters=dict(case.parameters), beside="solver", step=0))
    assert f"of this design's own solution, {case.id}" in at_case.start
    design = dict(case.parameters)
    kept = explorer.ExportRequest(parameters=design, kind="csv", beside="solver", step=0)
    assert b"velocity.y_solver,velocity.x_error" in explored.export(kept)
    archive = ZipFile(BytesIO(explored.export(kept.model_copy(update={"kind": "zip"}))))
    archive.extractall(tmp_path)
    name, times = f"{surrogate.dataset['family']}-{at_case.design}", at_case.times
    files = [f"{name}/{name}_{number:05d}.vtu" for number in range(len(times))]
    assert {each for each in archive.namelist() if "." in each} == {f"{name}.pvd", *files}
    assert all(f'"{file}"' in (tmp_path / f"{name}.pvd").read_text() for file in files)
    meshes = [meshio.read(tmp_path / file) for file in files]
    assert [each.field_data["TimeValue"] for each in meshes] == times
    assert meshes[0].field_data["radius (m)"] == design["radius"]
    assert {"velocity", "velocity_solver", "velocity_error"} <= meshes[0].cell_data.keys()
    one = explored.export(kept.model_copy(update={"kind": "vtu"}))
    assert one == (tmp_path / files[0]).read_bytes(), "one step is the same file"
    truth = surrogate.problem.solution(case, at_case.times[0])
    nearest = cKDTree(case.points[:, :2]).query(np.transpose([at_case.x, at_case.y]))[1]
    away = np.array(at_case.other, float) - truth[nearest].T
    assert np.nanmean(np.abs(away)) < 0.2 * truth.std()
    with pytest.raises(RequestError, match="radius = 90"):
        explored.section(asked(parameters={**near, "radius": 90}))
    with pytest.raises(RequestError, match=explorer.NOT_OPENED):
        explorer.Explored(surrogate, Limits()).section(asked(parameters=near))


def test_a_transient_model_without_its_dataset_has_no_page_and_the_way_out_is_said(
    waves_run: str, tmp_path: Path
) -> None:
    run = RunDirectory(tmp_path / "run")
    for name in ("experiment.json", "dataset.json"):
        run.write_bytes(name, RunDirectory(waves_run).read_bytes(name).replace(b"waves", b"gone"))
    with pytest.raises(InputError, match="name its place with --dataset, or let the solver make"):
        explore_model(run.url, "127.0.0.1", 8000)


@pytest.fixture
def surrogate(pipes_run: str) -> Surrogate:
    return courant.load(pipes_run, device="cpu")


def solved_by(surrogate: Surrogate) -> explorer.Explored:
    return explorer.Explored(surrogate, Limits(), surrogate.open_dataset().url)


def nearest(solved: explorer.Explored, design: Any, **more: bool) -> Any:
    return solved.nearest(explorer.NearestRequest(parameters=design, **more))


def test_the_nearest_solved_designs_have_their_parameters_split_and_the_solvers_quantities(
    surrogate: Surrogate,
) -> None:
    solved, number = solved_by(surrogate), 3
    stored = surrogate.open_dataset()[number]
    design = {**stored.parameters, "inlet_velocity": stored.parameters["inlet_velocity"] * 0.9}
    answer = nearest(solved, design)
    assert (answer.version, answer.reason, len(answer.designs)) == ("v1", "", 5)
    first = answer.designs[0]
    assert (first.case, first.parameters, first.added) == (stored.id, stored.parameters, False)
    assert first.quantities["branch1_share"] == pytest.approx(share(number))
    assert first.quantities["pressure_loss"] is None, "it is not on record"
    assert first.split == surrogate.open_dataset().design.loc[stored.id, "split"]
    # The inlet's velocity has a range of 7 m/s and is one of five parameters.
    expected = 0.1 * stored.parameters["inlet_velocity"] / 7 / 5**0.5
    assert first.distance == pytest.approx(expected)
    distances = [each.distance for each in answer.designs]
    assert distances == sorted(distances)
    assert nearest(solved, dict(stored.parameters)).designs[0].distance == 0.0
    # How far the fields are off is known where they were not fitted to a case.
    dataset = surrogate.open_dataset()
    case = dataset[dataset.cases("validation")[0]]
    truth = surrogate.problem.solution(case, None)
    error = np.abs(surrogate.predict_case(case) - truth).sum() / np.abs(truth).sum()
    near = nearest(solved, dict(case.parameters), errors=True).designs
    found = {each.case: each.errors for each in near}
    assert found[case.id] == {"velocity": pytest.approx(error, rel=1e-5)}
    assert all(found[id_] is None for id_ in set(found) & set(dataset.cases("train")))


def test_cells_that_do_not_give_what_the_solver_recorded_are_known(surrogate: Surrogate) -> None:
    dataset = surrogate.open_dataset()
    cases = dataset.cases("train")[:5]
    wanted = [each for each in dataset.computed if each.name == "branch1_share"]
    of = [of_solved(wanted, dataset[case], None)["branch1_share"] for case in cases]
    away = np.median(np.abs(of / recorded(dataset, "branch1_share", cases) - 1))
    assert solved_by(surrogate)._off == {"branch1_share": pytest.approx(away)} and away > 0.05


def test_a_design_that_was_solved_since_is_found_once_it_is_looked_for(tmp_path: Path) -> None:
    surrogate = courant.load(trained_on_pipes(tmp_path), device="cpu")
    solved = solved_by(surrogate)
    before = nearest(solved, DESIGN)
    url, point = surrogate.open_dataset().url, FAMILY.point(DESIGN, SETTINGS)
    cloud = duct(60, SPACE.sample(1, "grid")[0], seed=9)
    added = CaseResult(point, "accepted", split="train")
    publish_cases(url, Schema.of(FAMILY), [(added, cloud)])
    assert nearest(solved, DESIGN) == before, "the table is kept"
    after = nearest(solved, DESIGN, newest=True)
    assert after.version == "v2"
    assert (after.designs[0].case, after.designs[0].distance) == (point.id, 0.0)
    assert after.designs[0].added and after.designs[0].split == "train"
    assert [each.added for each in after.designs[1:]] == [False] * 4


def test_a_dataset_out_of_reach_is_reported_without_a_folder(
    surrogate: Surrogate, tmp_path: Path
) -> None:
    gone = nearest(explorer.Explored(surrogate, Limits(), str(tmp_path / "gone")), DESIGN)
    assert gone.designs == []
    assert "--dataset URL" in gone.reason and str(tmp_path) not in gone.reason
    assert nearest(explorer.Explored(surrogate, Limits()), DESIGN).reason == explorer.NOT_OPENED
    with pytest.raises(RequestError, match="missing baffle_angle"):
        nearest(solved_by(surrogate), {"aperture": 28})


def test_a_curve_has_the_answers_and_bands_of_the_designs_along_it(
    surrogate: Surrogate, monkeypatch: pytest.MonkeyPatch
) -> None:
    explored, dataset = solved_by(surrogate), surrogate.open_dataset()
    answers = answers_of_shares()
    monkeypatch.setattr(surrogate, "answers", answers)
    stored = dataset[dataset.cases("train")[0]]
    of = {"quantity": "branch1_share", "parameters": dict(stored.parameters)}
    curve = explored.curve(explorer.CurveRequest(over="aperture", **of))
    assert (curve.at[0], curve.at[-1], len(curve.at)) == (20, 37, 41)
    assert curve.source == "regression"
    here = explored.curve(explorer.CurveRequest(over="aperture", here=True, **of))
    assert here.at == [stored.parameters["aperture"]] and len(here.widths) == 1
    design = surrogate.scaled({**stored.parameters, "aperture": curve.at[7]})
    value = float(answers.at(design[None], {})["branch1_share"][0])
    (band,) = quantity_bands(answers, None, design, {"branch1_share": value}).values()
    assert (curve.values[7], curve.widths[7]) == pytest.approx((value, band.half_width))
    ours = stored.parameters["aperture"], dataset.design.loc[stored.id, "branch1_share"]
    assert curve.solved == [pytest.approx(ours)], "the others differ in other parameters"
    with pytest.raises(RequestError, match="unknown"):
        explored.curve(explorer.CurveRequest(over="speed", **of))


@pytest.mark.openfoam
@pytest.mark.filterwarnings("ignore:.*outside the training domain")
def test_a_curve_of_the_fields_predicts_its_designs(explored: explorer.Explored) -> None:
    of = {"quantity": "branch1_share", "parameters": DESIGN}
    curve = explored.curve(explorer.CurveRequest(over="inlet_velocity", **of))
    assert curve.source == "fields" and curve.at == np.linspace(3, 10, 7).tolist()
    assert explored._kept.cache_info().currsize == 0, "designs that were looked at are kept"
    last = explored.section(asked(parameters={**DESIGN, "inlet_velocity": 10.0}))
    assert curve.values[-1] == last.quantities["branch1_share"] and curve.solved == []


def test_a_band_is_judged_by_the_value_and_by_how_designs_differ_also_around_zero() -> None:
    known = SimpleNamespace(quantities={"lift": SimpleNamespace(values=[0.0, 0.4, 0.8])})
    own: Any = SimpleNamespace(surrogate=SimpleNamespace(answers=known))

    def why(value: float, half_width: float) -> str:
        found: Any = SimpleNamespace(quantities={"lift": value})
        band: Any = SimpleNamespace(half_width=half_width)
        return explorer.Explored._too_wide(own, "lift", found, band)

    assert why(0.4, 0.1) == why(0.0, 0.0) == ""
    assert why(0.4, 0.25) == "wider than half of the value"
    assert why(0.0, 0.5).startswith("wider than designs differ, ± 0.33")
