"""A trained run as an engineer uses it: physical units, as in training, and one line of error."""

import json
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from courant.data.normalisation import Normaliser
from courant.prediction.surrogate import Surrogate
from courant.problems.problem import collected_warnings
from courant.problems.transient import WindowReader, gather
from simgen.errors import InputError
from simgen.store.read import Dataset, StoredCase

PARAMETERS = {"radius": 2.0, "center_x": 1.0, "center_y": -1.0}


def inputs(num: int = 30) -> dict[str, Any]:
    points = np.random.default_rng(0).uniform((-19, 2), (39, 9), (num, 2))
    return {"points": points, "initial": np.ones((num, 2)), "parameters": PARAMETERS}


def test_predict_case_is_the_model_in_physical_units(
    surrogate: Surrogate, waves: Dataset, case: StoredCase
) -> None:
    prediction = surrogate.predict_case(case, start_s=4.0, steps=2)
    trajectories = WindowReader(waves, [case.id], surrogate.problem).read_all()
    batch = gather(trajectories, torch.tensor([[0, 3]]), surrogate.experiment.data)
    with torch.no_grad():
        expected = surrogate.model(*batch.for_model(surrogate.model.config), num_steps=2)
    assert prediction.shape == (2, case.num_points, 2)
    with pytest.raises(InputError, match=r"no snapshot at 4\.5 s; .* the nearest is 4 s"):
        surrogate.predict_case(case, start_s=4.5)
    expected = surrogate.normaliser.restore(expected[0].numpy())
    np.testing.assert_allclose(prediction, expected, atol=1e-5)
    problem, end = surrogate.problem, case.settings["end_time"]
    assert problem.step_s is not None
    assert problem.share_of_solve(case) == problem.num_steps * problem.step_s / end
    # An imported case has no settings, and ends at its last time.
    imported: Any = SimpleNamespace(settings={}, time=np.array([1.0, end]))
    assert problem.share_of_solve(imported) == problem.share_of_solve(case)


def test_predict_on_a_stored_cloud_is_predict_case(surrogate: Surrogate, case: StoredCase) -> None:
    given = {"initial": case["velocity"][3], "distance": (case.distance, case.direction)}
    prediction = surrogate.predict(case.points, **given, steps=3)
    expected = surrogate.predict_case(case, start_s=4.0, steps=3)
    np.testing.assert_allclose(prediction, expected, atol=1e-5)


def test_queries_may_lie_anywhere_and_do_not_disturb_one_another(surrogate: Surrogate) -> None:
    given = inputs()
    queries = np.array([[10.0, 5.0], [20.0, -5.0]])
    both = surrogate.predict(**given, queries=queries, steps=2)
    one = surrogate.predict(**given, queries=queries[1:], steps=2)
    assert both.shape == (2, 2, 2)
    np.testing.assert_allclose(both[:, 1:], one, atol=1e-5)


def test_offset_and_contributions_add_up_to_the_prediction(
    surrogate: Surrogate, case: StoredCase
) -> None:
    offset, contributions, anchors = surrogate.decompose_case(case, start_s=4.0, steps=2)
    prediction = surrogate.predict_case(case, start_s=4.0, steps=2)
    assert contributions.shape == (2, 8, case.num_points, 2)
    assert anchors.shape == (8, 3)
    scale = np.abs(prediction).max()
    np.testing.assert_allclose(offset + contributions.sum(axis=1), prediction, atol=1e-5 * scale)
    gaps = np.linalg.norm(anchors[:, None] - case.points[None], axis=-1)
    assert gaps.min(axis=1).max() < 1e-4, "anchors are points of the case, in metres"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parameters": {**PARAMETERS, "diameter": 1.0}}, "unknown diameter"),
        ({"parameters": {"radius": 2.0}}, "missing center_x, center_y"),
        ({"parameters": {**PARAMETERS, "radius": float("nan")}}, "radius = nan is not a finite"),
        ({"parameters": None}, "or distance="),
        ({"initial": np.ones((29, 2))}, r"has shape \(29, 2\), expected \(30, 2\)"),
        ({"initial": np.full((30, 2), np.nan)}, "holds 60 values that are not finite"),
        ({"initial": None}, "give initial, the state"),
        ({"given": {"permeability": np.ones(30)}}, "have no given: leave it out"),
        ({"steps": 0}, "steps = 0"),
        ({"distance": 5, "parameters": None}, "distance is a pair"),
        ({"queries": np.array([[1.0, -1.0]])}, "1 of 1 points lie outside the channel"),
    ],
)
def test_bad_input_is_answered_in_one_line(
    surrogate: Surrogate, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        surrogate.predict(**{**inputs(), **change})
    assert "\n" not in str(caught.value)


def test_warnings_are_collected_of_one_request_alone(surrogate: Surrogate) -> None:
    """Requests of a server are prepared in threads of one process."""
    far = {**inputs(), "parameters": {"radius": 4.5, "center_x": -8.0, "center_y": -5.0}}
    other_is_done = threading.Event()

    def collect(parts: dict[str, Any], meanwhile: Callable[[], object]) -> list[str]:
        with collected_warnings() as collected:
            meanwhile()
            surrogate.predict(**parts)
        return collected

    with ThreadPoolExecutor(2) as pool, warnings.catch_warnings():
        warnings.simplefilter("error")
        ordinary = pool.submit(collect, inputs(), lambda: other_is_done.wait(60))
        extreme = pool.submit(collect, far, lambda: None)
        assert len(extreme.result()) == 1 and "radius = 4.5 m" in extreme.result()[0]
        other_is_done.set()
        assert ordinary.result() == []


def test_exported_programs_predict_without_the_surrogate(
    surrogate: Surrogate, case: StoredCase, tmp_path: Path
) -> None:
    files = surrogate.export(tmp_path / "exported")
    names = ("encoder.pt2", "processor.pt2", "decoder.pt2", "normaliser.json")
    assert tuple(path.name for path in files) == names
    encode, advance, decode = (torch.export.load(path).module() for path in files[:3])
    known = surrogate.problem.case_inputs(case, 4.0, None)
    inputs, queries = known.for_model(surrogate.model.config)
    mask = torch.ones(inputs.points.shape[:2], dtype=torch.bool)
    Z = advance(encode(inputs.points, inputs.features, mask, inputs.anchors, inputs.parameters))
    field = decode(Z, queries.points, queries.features, None)
    normaliser = Normaliser.from_json(json.loads(files[3].read_text()))
    expected = surrogate.predict_case(case, start_s=4.0, steps=1)
    found = normaliser.restore(field.detach().numpy())
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
