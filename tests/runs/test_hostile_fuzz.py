"""Input that somebody else wrote, changed at random: the right answer or one line."""

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import courant
from courant.evaluation.record import read_evaluation
from courant.experiment import parse_experiment
from courant.prediction.surrogate import Surrogate
from courant.runs.checkpoint import read_latest_checkpoint
from courant.runs.directory import RunDirectory
from courant.runs.summary import list_runs
from courant.serving.predictions import Limits, RequestError, answer, parse_request
from courant.sweeps.search_space import MAX_SETTINGS, parse_space
from simgen.errors import InputError, SimgenError
from tests.serving import test_http_app
from tests.trials import trials
from tests.world import tiny_experiment

pytestmark = pytest.mark.nightly

RECORDS = ("experiment", "dataset", "normaliser", "evaluation", "status", "environment")
JSON = [f"{name}.json" for name in RECORDS]
FILES = [*JSON, "model.safetensors", "metrics.jsonl", "checkpoints/epoch-000001.pt"]
FUZZ = settings(
    max_examples=trials(40),
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)

EXTREME = [10**400, -(10**30), 1e308, "../../x", "/etc/passwd", "a\0b", "\x1b[2J", 2**63]
TEXT = st.text(max_size=8)
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXT, st.sampled_from(EXTREME)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


def places(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value inside."""
    listed = enumerate(value) if isinstance(value, list) else ()
    inside = value.items() if isinstance(value, dict) else listed
    return [here, *(place for key, child in inside for place in places(child, (*here, key)))]


@st.composite
def changed(draw: st.DrawFn, content: Any) -> Any:
    """The content with one to three values inside replaced, removed or doubled."""
    content = copy.deepcopy(content)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.sampled_from(places(content)[:2000]))
        if not place:
            return draw(json_values)
        parent = content
        for key in place[:-1]:
            parent = parent[key]
        if draw(st.booleans()):
            parent[place[-1]] = draw(json_values)
        else:
            del parent[place[-1]]
    return content


CASE = {
    **test_http_app.CASE,
    "distance": {"distance": [[1.0] * 4] * 6, "direction": [[[1.0, 0.0, 0.0]] * 4] * 6},
    "queries": [[1.0, 5.0]],
    "query_distance": {"distance": [[1.0] * 4], "direction": [[[1.0, 0.0, 0.0]] * 4]},
}


def use_everything(run: Path) -> None:
    """Load, list, read back; whatever is refused is refused in one line."""

    def predict() -> None:
        asked = {name: np.asarray(CASE[name]) for name in ("points", "initial")}
        asked |= {"parameters": CASE["parameters"], "steps": 1}
        assert np.isfinite(courant.load(run, device="cpu").predict(**asked)).all()

    directory = RunDirectory(run)
    reads = (lambda: list_runs(str(run.parent)), lambda: read_evaluation(directory))
    for use in (predict, *reads, lambda: read_latest_checkpoint(directory)):
        try:
            use()
        except SimgenError as error:
            assert "\n" not in str(error) and "weights_only" not in str(error)


@FUZZ
@given(data=st.data())
def test_any_byte_of_a_run_directory_may_be_changed(data: st.DataObject, run: Path) -> None:
    name = data.draw(st.sampled_from(FILES))
    original = (run / name).read_bytes()
    content = bytearray(original)
    at = data.draw(st.integers(0, len(content) - 1) | st.integers(0, min(200, len(content) - 1)))
    if data.draw(st.booleans()):
        content[at] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del content[at:]
    (run / name).write_bytes(content)
    use_everything(run)
    (run / name).write_bytes(original)


@FUZZ
@given(data=st.data())
def test_any_value_of_a_run_directory_may_be_another(data: st.DataObject, run: Path) -> None:
    name = data.draw(st.sampled_from(JSON))
    original = (run / name).read_text()
    (run / name).write_text(json.dumps(data.draw(changed(json.loads(original)))))
    use_everything(run)
    (run / name).write_text(original)


@FUZZ
@given(content=changed(tiny_experiment().model_dump(mode="json")))
def test_an_experiment_is_valid_or_refused(content: Any) -> None:
    try:
        experiment = parse_experiment(content)
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert parse_experiment(experiment.model_dump_json()) == experiment


VARIED = {"model.num_anchors": [4, 8], "training.learning_rate": {"values": [1e-4, 1e-3]}}
SPACE = {"about": "x", "design": "grid", "parameters": VARIED}


@FUZZ
@given(
    text=changed(SPACE).map(yaml.safe_dump)
    | st.text(max_size=60)
    | st.text("{}[]&*!:,-? a1\n", max_size=60)
)
def test_a_search_space_is_valid_or_refused(text: str) -> None:
    try:
        space = parse_space("fuzzed", text)
        space.count(tiny_experiment())
    except InputError as error:
        assert "\n" not in str(error)


def test_a_grid_beyond_any_budget_is_refused_before_it_is_laid_out() -> None:
    keys = ("width", "num_anchors", "num_levels", "num_loops", "num_heads", "ffn_multiple")
    grid = {f"model.{key}": list(range(1, 101)) for key in keys}
    text = yaml.safe_dump({"design": "grid", "parameters": grid})
    with pytest.raises(InputError, match=f"1,000,000,000,000 settings, {MAX_SETTINGS:,} at most"):
        parse_space("grid", text).count(tiny_experiment())


LIMITS = Limits(max_points=1000, max_steps=4, max_point_steps=2000)


@FUZZ
@given(content=changed(CASE))
def test_a_request_is_answered_with_numbers_or_refused(content: Any, surrogate: Surrogate) -> None:
    status, body = answer(json.dumps(content).encode(), surrogate, LIMITS)
    found = json.loads(body)
    if status == 200:
        assert np.isfinite(np.asarray(found["values"])).all()
    else:
        assert status == 422 and "\n" not in found["detail"] and len(found["detail"]) <= 500


def test_a_body_of_brackets_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(RequestError, match="values"):
        parse_request(b"[" + b"[]," * 100_000 + b"[]]", LIMITS)
