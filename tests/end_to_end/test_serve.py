"""`courant serve` as a client meets it: the predictor's own numbers, limits, a clean end."""

import json
import os
import signal
import subprocess
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import courant
from tests.conftest import free_ports
from tests.end_to_end.conftest import BIN, ROOT, wait_for
from tests.end_to_end.processes import listeners, tree

pytestmark = pytest.mark.end_to_end

LIMITS = {"max-points": 500, "max-steps": 20, "max-megabytes": 0.05, "max-point-steps": 5000}
PARAMETERS = {"radius": 2.0, "center_x": 1.0, "center_y": -1.0}

CROWD = {"points": [[0.1 * x - 15, 5.0] for x in range(400)], "initial": [[1.0, 0.0]] * 400}


@pytest.fixture(scope="module")
def server(waves_run):
    """The address of the command as a person starts it, ended as a person ends it."""
    (port,) = free_ports(1)
    limits = [f"--{name}={value}" for name, value in LIMITS.items()]
    process = subprocess.Popen(
        [str(BIN / "courant"), "serve", waves_run, "--port", str(port), *limits],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
    )
    told: list[str] = []
    reader = threading.Thread(target=lambda: told.extend(process.stdout), daemon=True)
    reader.start()

    def begun() -> bool:
        return any(line.startswith("serving") for line in told)

    try:
        wait_for(lambda: begun() or process.poll() is not None, 300, lambda: "".join(told))
        assert process.poll() is None, "".join(told)
        assert not [one for one in listeners(tree(process.pid)) if not one.on_loopback]
        yield f"http://127.0.0.1:{port}"
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 130, "".join(told)
        reader.join(60)
        words = [line.replace(";", " ").split()[0] for line in told]
        assert words == ["serving", "interrupted"], told
    finally:
        process.kill()


def ask(url: str, body=None) -> tuple[int, dict]:
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answered:
            return answered.status, json.load(answered)
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)


def case(num: int = 30, steps: int = 3, seed: int = 0) -> dict:
    points = np.random.default_rng(seed).uniform((-19, 2), (39, 9), (num, 2))
    return {
        "points": points.tolist(),
        "initial": np.ones((num, 2)).tolist(),
        "parameters": PARAMETERS,
        "steps": steps,
    }


def expected(run_url: str, request: dict) -> np.ndarray:
    given = {name: np.array(request[name]) for name in ("points", "initial")}
    return courant.load(run_url).predict(**given, parameters=PARAMETERS, steps=request["steps"])


def test_the_server_says_what_it_is_and_that_it_is_well(server, waves_run):
    assert ask(f"{server}/health") == (200, {"status": "ready"})
    status, card = ask(f"{server}/model")
    assert status == 200
    assert card["channels"] == ["velocity.x", "velocity.y"]
    assert [parameter["name"] for parameter in card["parameters"]] == list(PARAMETERS)
    assert card["limits"]["max_points"] == 500
    assert (card["run"], card["dataset"], card["version"]) == ("tiny", "cylinder-flow", "v1")
    folder = waves_run.rsplit("/", 2)[0]
    for path in ("/model", "/openapi.json", "/docs"):
        with urllib.request.urlopen(f"{server}{path}", timeout=60) as answered:
            page = answered.read().decode()
        assert folder not in page and "/tmp" not in page, "nothing of the machine's folders"


def test_concurrent_requests_get_the_predictors_own_numbers(server, waves_run):
    requests = [case(num, seed=number) for number, num in enumerate([30, 30, 20, 30, 20, 30])]
    with ThreadPoolExecutor(len(requests)) as pool:
        answers = list(pool.map(lambda request: ask(f"{server}/predict", request), requests))
    for (status, answer), request in zip(answers, requests, strict=True):
        assert status == 200, answer
        np.testing.assert_allclose(answer["values"], expected(waves_run, request), atol=1e-5)
        assert answer["times_s"] == [3.0, 6.0, 9.0]
        assert answer["warnings"] == []
    outside = {**case(), "parameters": {"radius": 4.5, "center_x": -8.0, "center_y": -5.0}}
    status, answer = ask(f"{server}/predict", outside)
    assert status == 200
    assert "radius = 4.5 m is outside the design space" in answer["warnings"][0]


@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        ({"points": [[float(x), 5.0] for x in range(501)]}, 422, "this server takes 500"),
        ({"steps": 21}, 422, "steps = 21: this server takes 20 at most"),
        ({**CROWD, "steps": 20}, 422, "8,000, this server predicts 5,000 at a time"),
        ({"initial": [[3e38, -3e38]] * 30}, 422, "the prediction is not finite"),
        (b"[" * 20_000 + b"]" * 20_000, 422, "nested too deeply"),
        ({"initial": [[0.123456789, 1.0]] * 5000}, 413, "more than 0.05 MB"),
    ],
)
def test_what_cannot_be_answered_is_refused_with_the_reason(server, change, status, message):
    body = change if isinstance(change, bytes) else {**case(), **change}
    found, answer = ask(f"{server}/predict", body)
    assert found == status and message in json.dumps(answer)
