"""Starting the solver from the page: only with the token, once for a design, and to an end."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from prefect.client.schemas.objects import FlowRun, State
from prefect.states import Completed, Failed, Scheduled

import simgen
from bench.synthetic_cases import publish_cases
from courant.runs.directory import RunDirectory
from courant.runs.record import read_dataset_record
from courant.serving.http_app import Solve, Solving
from flows import serving as offers
from flows.serving import DeploymentSolver, offer_solver
from simgen.case import CaseResult
from simgen.errors import InputError
from simgen.store.schema import Schema
from tests.serving.test_http_app import StandIn, ask, serving
from tests.world import DESIGN, FAMILY, SETTINGS, SPACE, duct, trained_on_pipes


class Started:
    """A solver that takes no time."""

    def begin(self, parameters: Mapping[str, float]) -> Solve:
        if parameters["aperture"] > 40:
            raise InputError("aperture = 50 mm is outside its range")
        if parameters["aperture"] < 0:
            raise RuntimeError("a secret of this machine")
        return Solve(id="one", state="Scheduled", ended=False, url="", reason="")

    def look(self, solve: str) -> Solve:
        return Solve(id=solve, state="Completed", ended=True, url="", reason="")


def test_only_who_has_the_token_starts_the_solver() -> None:
    offer = Solving(Started())
    design, token = b'{"parameters": {"aperture": 30.0}}', {"x-courant-token": offer.token}
    with serving(StandIn(), solving=offer) as port:
        assert ask(port, "/solving") == (
            200,
            {"available": True, "reason": "", "verdict": "", "commands": {}},
        )
        elsewhere = {**token, "origin": "http://elsewhere.example"}
        for headers in ({}, {"x-courant-token": "guessed"}, elsewhere, {**token, "origin": "null"}):
            assert ask(port, "/solves", design, headers)[0] == 403
            assert ask(port, "/solves/one", headers=headers)[0] == 403
        own = {**token, "origin": f"http://127.0.0.1:{port}"}
        assert ask(port, "/solves", design, own)[1]["state"] == "Scheduled"
        assert ask(port, "/solves/one", headers=own)[1]["ended"] is True
        assert ask(port, "/solves", b'{"parameters": {"aperture": 50}}', own)[0] == 422
        assert ask(port, "/solves", b'{"design": 1}', own)[0] == 422
        status, found = ask(port, "/solves", b'{"parameters": {"aperture": -1}}', own)
        assert status == 502 and "secret" not in found["detail"]
    with serving(StandIn()) as port:
        assert ask(port, "/solving")[1]["available"] is False
        assert ask(port, "/solves", b'{"parameters": {}}')[0] == 404


class StandInServer(DeploymentSolver):
    """A deployment whose runs are what a test says."""

    asked: list[Mapping[str, Any]]
    state: State = Scheduled()

    def _start(self, parameters: dict[str, Any]) -> FlowRun:
        self.asked = [*getattr(self, "asked", ()), parameters]
        return FlowRun(id=uuid4(), flow_id=uuid4(), state=self.state)

    def _read(self, run: str) -> FlowRun | None:
        return FlowRun(id=UUID(run), flow_id=uuid4(), state=self.state)


def test_a_design_is_solved_once_at_a_time_into_the_dataset_of_the_model(tmp_path: Path) -> None:
    trained_on_pipes(tmp_path)
    url = str(tmp_path / "store" / "branched-pipe")
    solver = StandInServer(uuid4(), url, "branched-pipe", SETTINGS)
    begun = solver.begin(DESIGN)
    assert solver.begin(DESIGN) == begun
    (asked,) = solver.asked  # a second click starts none
    assert asked["design_parameters"] == [DESIGN] and asked["settings"] == SETTINGS
    assert (asked["store"], asked["split"]) == (str(tmp_path / "store"), "train")
    assert begun.state == "Scheduled" and not begun.ended

    solver.state = Failed(message="no solver")
    assert "Failed: no solver" in solver.look(begun.id).reason
    solver.state = Scheduled()
    second = solver.begin({**DESIGN, "aperture": 25.0})
    assert second.id != begun.id
    solver.state = Completed()
    assert "has no such case" in solver.look(begun.id).reason
    points = [FAMILY.point({**DESIGN, "aperture": each}, SETTINGS) for each in (28.0, 25.0)]
    solved = CaseResult(points[0], "accepted"), duct(60, SPACE.sample(1, "grid")[0], seed=1)
    rejected = CaseResult(points[1], "rejected", "it swings"), None
    publish_cases(url, Schema.of(FAMILY), [solved, rejected])
    assert solver.look(begun.id).reason == ""
    assert solver.look(second.id).reason == "the case is rejected: it swings"

    with pytest.raises(InputError, match="no run that this server"):
        solver.look("another")
    with pytest.raises(InputError, match="aperture = 50"):
        solver.begin({**DESIGN, "aperture": 50.0})


@pytest.mark.parametrize(
    ("host", "api", "reason"),
    [
        ("0.0.0.0", "http://127.0.0.1:4200/api", "is on loopback alone"),
        ("127.0.0.1", None, "PREFECT_API_URL names no Prefect server"),
        ("127.0.0.1", "http://prefect.example/api", "do not see"),
        ("127.0.0.1", "http://127.0.0.1:9/api", "does not answer"),
    ],
)
def test_where_the_solver_cannot_be_started_the_reason_is_told(
    pipes_run: str, monkeypatch: pytest.MonkeyPatch, host: str, api: str | None, reason: str
) -> None:
    record = read_dataset_record(RunDirectory(pipes_run))
    monkeypatch.setattr(offers, "prefect_url", lambda: api)
    dataset = simgen.open_dataset(record["url"])
    offer = offer_solver(record, dataset, host)
    assert offer.solver is None and reason in offer.reason
    if api and host == "127.0.0.1":
        assert "cannot be read" in offer_solver(record, None, host).reason
        dataset.url = "s3://bucket/pipes-of-2024"
        assert "not at STORE/branched-pipe" in offer_solver(record, dataset, host).reason
