"""The door for cases that were solved elsewhere: what comes in, what does not, and what is left
behind.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zarr

import simgen
from simgen.errors import InputError
from simgen.imports import (
    BoundaryCloud,
    Field,
    Parameter,
    Source,
    SourceCase,
    grid_points,
    import_cases,
    imported_schema,
)
from simgen.publish.card import write_card
from simgen.publish.export import export, export_vtu
from simgen.store.verify import verify
from simgen.store.write import DatasetWriter
from tests.imports import darcy, heat

SOURCE = Source("Somewhere", "https://example.org", "CC0")
U = Field("u", "K", ("value",))


@pytest.fixture
def url(tmp_path: Path) -> str:
    return str(tmp_path / "store/imported")


def schema_of(dimension: int, **more):
    return imported_schema("imported", dimension=dimension, source=SOURCE, **more)


def block_schema():
    return schema_of(
        3,
        fields=(Field("velocity", "m/s", ("x", "y", "z")), replace(U, on_boundary=False)),
        patch_kinds=("wall", "inlet"),
        distance_kinds=("inlet",),
        boundary=True,
        volumes=True,
        splits="drawn",
    )


def block_cases(num: int) -> Iterator[SourceCase]:
    axis = np.linspace(0, 1, 4)
    points = grid_points(axis, axis, axis)
    faces = points[:16]
    for number in range(num):
        towards = np.tile([-1.0, 0, 0], (64, 1, 1))
        yield SourceCase(
            f"block-{number}",
            points,
            {"velocity": np.full((64, 3), number), "u": points[:, 0]},
            grid_shape=(4, 4, 4),
            volumes=np.full(64, 1 / 64),
            distance=points[:, :1],
            direction=towards,
            boundary=BoundaryCloud(
                points=faces,
                normals=towards[:16, 0],
                areas=np.ones(16),
                patch=np.array(["inlet"] * 16),
                fields={"velocity": np.ones((16, 3))},
            ),
        )


KINDS = {
    "a plane without boundary": (lambda: darcy.SCHEMA, lambda num: darcy.read_cases(num - 1, 1)),
    "a line in time": (lambda: heat.SCHEMA, heat.read_cases),
    "a block with all there can be": (block_schema, block_cases),
}


@pytest.fixture(params=KINDS)
def imported(request, url):
    schema, cases = KINDS[request.param]
    import_cases(url, schema(), cases(4))
    return simgen.open_dataset(url)


def test_an_imported_version_is_an_ordinary_one(imported, tmp_path):
    assert verify(imported).findings == []
    assert len(imported) == 4
    card = write_card(imported, tmp_path / "card").read_text()
    assert imported.schema.source.licence in card
    exported = export(imported, tmp_path / "exported")
    root = zarr.open_group(exported.target, mode="r")
    case = imported[0]
    field = imported.schema.of_role("solved")[0].name
    np.testing.assert_array_equal(root[f"cases/{case.id}/{field}"][:], case[field][:])
    exports = {name for name, _ in root[f"cases/{case.id}"].members(max_depth=None)}
    labels = {name for name in exports if name in ("axis", "patch_kind") or "component" in name}
    assert set(case.read()) == exports - labels - {"boundary", "provenance"}
    assert all(path.exists() for path in export_vtu(imported, tmp_path / "vtu", [case.id]))
    case.write(tmp_path / "case.vtu")
    assert field in case.to_xarray()
    assert ("distance" in case.to_xarray()) == bool(imported.schema.measured_kinds)
    assert case.provenance["source"]["name"] == imported.schema.source.name


def test_what_a_source_does_not_have_is_absent_and_said_so(url):
    darcy.import_darcy(url, 2, 1)
    dataset = simgen.open_dataset(url)
    case = dataset["darcy-0001"]
    assert case.grid_shape == (darcy.SIZE, darcy.SIZE)
    np.testing.assert_allclose(
        case["pressure"][:, 0].reshape(case.grid_shape), darcy.solve(darcy.permeability(1)), 1e-6
    )
    with pytest.raises(InputError, match="no boundary"):
        _ = case.boundary
    with pytest.raises(InputError, match="no array distance_field"):
        _ = case.distance


def test_cases_of_an_abandoned_import_are_not_published_with_another(url, monkeypatch):
    monkeypatch.setattr("simgen.imports.importing.CASES_A_COMMIT", 1)
    stray = replace(next(darcy.read_cases(1, 0)), name="stray")
    wrong = replace(stray, name="wrong", split=None)
    with pytest.raises(InputError, match="split is None"):
        import_cases(url, darcy.SCHEMA, [stray, wrong])
    with pytest.raises(InputError, match="stray and 0 more cases"):
        darcy.import_darcy(url, 2, 1)


def test_another_schema_is_not_taken_into_a_dataset(url):
    darcy.import_darcy(url, 2, 1)
    other = replace(darcy.SCHEMA, source=SOURCE)
    with pytest.raises(InputError, match="with another source"):
        import_cases(url, other, darcy.read_cases(2, 1))
    assert DatasetWriter.open(url, darcy.SCHEMA).schema == darcy.SCHEMA


GOOD = SourceCase("a", [[0, 0], [1, 0]], {"u": [1.0, 2.0]}, split="train")
WRONG_CASES = {
    "case '../../escape' needs a name": replace(GOOD, name="../../escape"),
    "points has shape": replace(GOOD, points=[[0.0], [1.0]]),
    "zeros behind": replace(GOOD, points=[[0, 0, 1], [1, 0, 0]]),
    "no array of real numbers": replace(GOOD, fields={"u": ["a", "b"]}),
    "u has shape": replace(GOOD, fields={"u": [1.0, 2.0, 3.0]}),
    "not finite": replace(GOOD, fields={"u": [1.0, float("nan")]}),
    "unknown 'v'": replace(GOOD, fields={"u": [1.0, 2.0], "v": [1.0, 2.0]}),
    "lacks u": replace(GOOD, fields={}),
    "cannot have time": replace(GOOD, time=[0.0], fields={"u": [[1.0, 2.0]]}),
    "unknown speed": replace(GOOD, parameters={"speed": 1.0}),
}


@pytest.mark.parametrize("says", WRONG_CASES)
def test_a_wrong_case_is_one_line_and_nothing_is_written(says, url):
    with pytest.raises(InputError, match=f"^[^\n]*{says}[^\n]*$"):
        import_cases(url, schema_of(2, fields=(U,)), [WRONG_CASES[says]])
    assert not Path(url).exists()


WRONG_SCHEMAS = {
    "small letters": {"name": "../escape"},
    "is generated here": {"name": "cylinder-flow"},
    "at least one field must be solved": {"fields": (replace(U, role="given"),)},
    "field '../u'": {"fields": (replace(U, name="../u"),)},
    "field points is named twice": {"fields": (replace(U, name="points"),)},
    "expected low < high": {"parameters": (Parameter("p", "", 1, 1),)},
    "parameter status": {"parameters": (Parameter("status", "", 0, 1),)},
    "a boundary needs patch_kinds": {"boundary": True},
}


@pytest.mark.parametrize("says", WRONG_SCHEMAS)
def test_a_wrong_schema_is_one_line(says):
    asked = {"name": "mine", "dimension": 2, "fields": (U,), "source": SOURCE}
    with pytest.raises(InputError, match=f"^[^\n]*{says}[^\n]*$"):
        imported_schema(**asked | WRONG_SCHEMAS[says])
