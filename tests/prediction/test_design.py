"""A design that nobody has solved: meshed for real, predicted by a model of synthetic ducts."""

from pathlib import Path
from typing import Any

import meshio
import numpy as np
import pytest

import courant
from courant.prediction.surrogate import Surrogate, counted_from_s
from courant.serving.explorer import DesignRequest, Explored
from courant.serving.predictions import Limits, RequestError
from flows.cli.prediction_files import predict_to_files
from simgen.cases import get_family
from simgen.errors import InputError
from tests.world import DESIGN, SETTINGS


@pytest.fixture
def surrogate(pipes_run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Surrogate:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return courant.load(pipes_run, device="cpu")


@pytest.mark.openfoam
@pytest.mark.filterwarnings("ignore:.*outside the training domain")
def test_an_unseen_design_is_meshed_once_and_predicted_with_its_quantities(
    surrogate: Surrogate, pipes_run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = surrogate.predict_design(DESIGN)
    assert surrogate.dataset["settings"] == found.point.settings == SETTINGS
    assert found.values.shape == (found.cloud.num_points, 2) and np.isfinite(found.values).all()
    assert not found.known_geometry and found.seconds.meshing > found.seconds.solving == 0
    assert list(found.quantities) == ["branch1_share"]
    assert found.not_predicted == {
        "pressure_loss": "needs kinematic_pressure.p",
        "peak_speed": "needs velocity.y",
    }
    # The inlet's condition is that of the design: twice the velocity is another prediction.
    faster = surrogate.predict_design({**DESIGN, "inlet_velocity": 9.0})
    assert not np.allclose(faster.values, found.values)
    assert faster.known_geometry, "and has the same mesh"

    again = surrogate.predict_design(DESIGN)
    assert again.known_geometry
    np.testing.assert_allclose(again.values, found.values, rtol=1e-5, atol=1e-6)

    predict_to_files(pipes_run, DESIGN, tmp_path / "pipe.vtu")
    written = meshio.read(tmp_path / "pipe.vtu")
    assert {block.type for block in written.cells} != {"vertex"}
    shown = np.concatenate(written.cell_data["velocity.x"])
    np.testing.assert_allclose(np.sort(shown), np.sort(found.values[:, 0]), rtol=1e-4, atol=1e-5)
    assert (tmp_path / "pipe.png").read_bytes()[:4] == b"\x89PNG"
    assert f"{found.quantities['branch1_share']:.4g}" in capsys.readouterr().out

    revision = surrogate.dataset["family_revision"]
    surrogate.dataset["family_revision"] = revision - 1
    answer = Explored(surrogate, Limits()).design(DesignRequest(parameters=DESIGN))
    assert any(f"revision {revision - 1} of branched-pipe" in each for each in answer.warnings)
    assert answer.known_geometry
    np.testing.assert_allclose(answer.values, found.values, rtol=1e-4, atol=1e-5)
    assert answer.quantities["branch1_share"] == pytest.approx(found.quantities["branch1_share"])
    with pytest.raises(RequestError, match="cells, 100 are allowed"):
        Explored(surrogate, Limits(max_points=100)).design(DesignRequest(parameters=DESIGN))


@pytest.mark.parametrize(
    ("design", "options", "message"),
    [
        ({"aperture": 50.0}, {}, "aperture = 50"),
        ({"width": 1.0}, {}, "width"),
        ({}, {"from_solver_s": 10.0}, "steady"),
        ({}, {"steps": 3}, "steady"),
    ],
)
def test_what_cannot_be_predicted_is_refused_before_anything_is_meshed(
    surrogate: Surrogate, design: dict[str, float], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message) as refused:
        surrogate.predict_design({**DESIGN, **design}, **options)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("start", "steps", "since"),
    [(100.0, 40, 250.0), (300.0, 20, 250.0), (100.0, 10, 0.0), (100.0, 39, 0.0)],
)
def test_a_rollout_to_the_end_is_measured_like_the_datasets_cases(
    start: float, steps: int, since: float
) -> None:
    """Bands of quantities are of such rollouts: of the settled half of a run of 500 s."""
    cylinder = get_family("cylinder-flow")
    settings, times = cylinder.settings("trial"), start + 10.0 * np.arange(1, steps + 1)
    assert counted_from_s(cylinder, settings, 10.0, times) == since
