"""What the explorer's page asks for: sections of designs, and the sum that makes a value."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import courant
from courant.recipes import get_recipe
from courant.runs.directory import RunDirectory
from courant.serving import explorer
from courant.serving.explorer import (
    Contributions,
    Explored,
    Section,
    answer_contributions,
    answer_section,
)
from courant.serving.http_app import PAGE
from courant.serving.requests import Limits, Refusal
from courant.serving.surface import Surface, answer_surface
from flows.cli.serving.server import explore_model
from simgen.errors import InputError
from tests.training.pipes import DESIGN


@pytest.fixture
def explored(pipes_run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Explored]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield Explored.open(courant.load(pipes_run, device="cpu"), Limits())


def asked(**more: Any) -> bytes:
    return json.dumps({"parameters": DESIGN, **more}).encode()


@pytest.mark.openfoam
@pytest.mark.filterwarnings("ignore:.*outside the training domain")
def test_a_section_has_the_field_in_the_plane_and_a_place_is_a_sum(
    explored: Explored, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = answer_section(asked(anchors=True), explored)
    assert isinstance(section, Section)
    bare = answer_section(asked(), explored)
    assert isinstance(bare, Section) and bare == section.model_copy(update={"anchors": []})
    corners = np.array(section.triangles)
    assert corners.max() < len(section.x) == len(section.y) and len(corners) > 100
    assert section.plane.startswith("y = ") and (section.across, section.up) == ("x", "z")
    assert [len(values) for values in section.values] == [len(section.x)] * 2
    assert section.widths is None and section.bands is None
    assert list(section.quantities) == ["branch1_share"]
    assert len(section.anchors) == explored.surrogate.experiment.model.num_sampled_anchors

    monkeypatch.setattr(explorer, "predicted", lambda *_: pytest.fail("predicted again"))
    surface = answer_surface(asked(), explored)
    assert isinstance(surface, Surface) and section.has_surface and surface.widths is None
    places, faces = np.array(surface.points), np.array(surface.triangles)
    boundary = explored.of(DESIGN).found.cloud.boundary
    one, two = (places[faces[:, n]] - places[faces[:, 0]] for n in (1, 2))
    area = np.linalg.norm(np.cross(one, two), axis=1).sum() / 2
    assert area == pytest.approx(boundary.areas.sum(), rel=1e-3), "all of the boundary"
    assert [len(values) for values in surface.values] == [len(faces)] * 2
    place = {"x": section.x[40], "y": section.y[40]}
    for channel in (0, 1):
        parts = answer_contributions(asked(**place, channel=channel), explored)
        assert isinstance(parts, Contributions)
        total = parts.offset + sum(each.value for each in parts.anchors) + parts.rest
        assert total == pytest.approx(parts.value, abs=1e-4)
        assert parts.value == pytest.approx(section.values[channel][40], abs=1e-3)
        sizes = [abs(each.value) for each in parts.anchors]
        assert sizes == sorted(sizes, reverse=True)
        numbers = [each.anchor for each in parts.anchors]
        assert [(each.x, each.y) for each in parts.anchors] == [
            section.anchors[number] for number in numbers
        ]
    refused = answer_contributions(asked(**place, channel=7), explored)
    assert isinstance(refused, Refusal) and "channel 7" in refused.detail


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b"{", "not valid JSON"),
        (b'{"parameters": {"aperture": 50}}', "missing"),
        (json.dumps({"parameters": {**DESIGN, "aperture": 50}}).encode(), "aperture = 50"),
        (b" " * 20_000, "more than 10,000 bytes"),
        (b'{"parameters": {}, "plane": 1}', "plane"),
    ],
)
def test_a_request_that_is_none_is_refused_in_one_line(
    explored: Explored, body: bytes, detail: str
) -> None:
    answer = answer_section(body, explored)
    assert isinstance(answer, Refusal)
    assert detail in answer.detail and "\n" not in answer.detail


def test_the_page_loads_nothing_from_elsewhere() -> None:
    folder = Path(explorer.__file__).parent / "page"
    assert {file.name for file in folder.iterdir()} == set(PAGE)
    for name in PAGE:
        assert "//" not in (folder / name).read_text().replace("// ", "")


def test_a_transient_model_has_no_page_and_that_is_said_before_anything_starts(
    tmp_path: Path,
) -> None:
    experiment = get_recipe("cylinder-flow-demo")
    RunDirectory(tmp_path).write_json("experiment.json", experiment.model_dump(mode="json"))
    with pytest.raises(InputError, match="is a transient model, which needs a state to start"):
        explore_model(str(tmp_path), "127.0.0.1", 8000)
