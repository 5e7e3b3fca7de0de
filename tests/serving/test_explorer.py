"""What the explorer's page asks for: sections of designs, and the sum that makes a value."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial import cKDTree

import courant
from courant.prediction.surrogate import transferred_state
from courant.runs.directory import RunDirectory
from courant.serving import explorer
from courant.serving.predictions import Limits, RequestError
from flows.serving import explore_model
from simgen.errors import InputError
from tests.world import DESIGN


@pytest.fixture
def explored(
    pipes_run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[explorer.Explored]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield explorer.Explored(courant.load(pipes_run, device="cpu"), Limits())


def at(**place: Any) -> explorer.ContributionRequest:
    return explorer.ContributionRequest(parameters=DESIGN, **place)


def asked(**more: Any) -> explorer.SectionRequest:
    return explorer.SectionRequest(parameters=DESIGN, **more)


@pytest.mark.openfoam
@pytest.mark.filterwarnings("ignore:.*outside the training domain")
def test_a_section_has_the_field_in_the_plane_and_a_place_is_a_sum(
    explored: explorer.Explored, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = explored.section(asked(anchors=True))
    bare = explored.section(asked())
    assert bare == section.model_copy(update={"anchors": []})
    corners = np.array(section.triangles)
    assert corners.max() < len(section.x) == len(section.y) and len(corners) > 100
    assert section.plane.startswith("y = ") and (section.across, section.up) == ("x", "z")
    assert section.widths is None and section.bands is None
    assert len(section.anchors) == explored.surrogate.experiment.model.num_sampled_anchors

    monkeypatch.setattr(explored, "predict", lambda *_: pytest.fail("predicted again"))
    surface = explored.surface(asked())
    assert section.has_surface and surface.widths is None
    places, faces = np.array(surface.points), np.array(surface.triangles)
    boundary = explored.shown(DESIGN).found.cloud.boundary
    one, two = (places[faces[:, n]] - places[faces[:, 0]] for n in (1, 2))
    area = np.linalg.norm(np.cross(one, two), axis=1).sum() / 2
    assert area == pytest.approx(boundary.areas.sum(), rel=1e-3), "all of the boundary"
    assert [len(values) for values in surface.values] == [len(faces)] * 2
    place = {"x": section.x[40], "y": section.y[40]}
    for channel in (0, 1):
        parts = explored.contributions(at(**place, channel=channel))
        total = parts.offset + sum(each["value"] for each in parts.anchors) + parts.rest
        assert total == pytest.approx(parts.value, abs=1e-4)
        assert parts.value == pytest.approx(section.values[channel][40], abs=1e-3)
        sizes = [abs(each["value"]) for each in parts.anchors]
        assert sizes == sorted(sizes, reverse=True)
        for each in parts.anchors:
            assert (each["x"], each["y"]) == section.anchors[each["anchor"]]
    assert section.positions is not None
    low, high = section.positions
    assert low < section.position < high
    at_wall = explored.section(asked(position=high))
    assert at_wall.plane == f"y = {high:.3g} m"
    cells = np.flatnonzero(np.isclose(explored.shown(DESIGN).found.cloud.points[:, 1], high))
    assert len(at_wall.x) >= len(cells) > 50 and at_wall.values != section.values
    parts = explored.contributions(at(x=at_wall.x[9], y=at_wall.y[9], channel=0, position=high))
    assert parts.value == pytest.approx(at_wall.values[0][9], abs=1e-3)
    with pytest.raises(RequestError, match="is outside of"):
        explored.section(asked(position=2 * high))
    with pytest.raises(RequestError, match="channel 7"):
        explored.contributions(at(**place, channel=7))


def test_the_page_loads_nothing_from_elsewhere() -> None:
    folder = Path(explorer.__file__).parent / "page"
    for file in folder.iterdir():
        assert "//" not in file.read_text().replace("// ", "")


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
    section = explored.section(explorer.SectionRequest(parameters=near))
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
    assert found.times is not None and section.start.endswith(f"t = {found.times[-1]:g} s")
    middle = len(section.x) // 2
    place = {"x": section.x[middle], "y": section.y[middle], "channel": 0}
    parts = explored.contributions(explorer.ContributionRequest(parameters=near, **place))
    total = parts.offset + sum(each["value"] for each in parts.anchors) + parts.rest
    assert total == pytest.approx(parts.value, abs=1e-4), "of the state that is shown"
    with pytest.raises(RequestError, match="radius = 90"):
        explored.section(explorer.SectionRequest(parameters={**near, "radius": 90}))
    with pytest.raises(RequestError, match=explorer.NOT_OPENED):
        explorer.Explored(surrogate, Limits()).section(explorer.SectionRequest(parameters=near))


def test_a_transient_model_without_its_dataset_has_no_page_and_the_way_out_is_said(
    waves_run: str, tmp_path: Path
) -> None:
    run = RunDirectory(tmp_path / "run")
    for name in ("experiment.json", "dataset.json"):
        run.write_bytes(name, RunDirectory(waves_run).read_bytes(name).replace(b"waves", b"gone"))
    with pytest.raises(InputError, match="name its place with --dataset, or let the solver make"):
        explore_model(run.url, "127.0.0.1", 8000)
