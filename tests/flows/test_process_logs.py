"""A process begins its log as COURANT_LOG_FORMAT says, and gathers the lines of its Ray."""

import json
import logging
import time

import pytest
from typer.testing import CliRunner

from flows import ending, terminal
from flows.cli.app import app
from flows.cluster.process_logs import PrintedLines, know_submitter, relay_lines
from simgen import log_lines
from simgen.log_lines import Carried

pytestmark = pytest.mark.usefixtures("own_logs")


def test_an_unknown_format_is_one_line() -> None:
    done = CliRunner().invoke(app, ["recipes"], env={"COURANT_LOG_FORMAT": "xml"})
    assert done.exit_code == 1
    assert done.stderr == "error: COURANT_LOG_FORMAT is 'xml'; give text or json\n"


def test_what_a_person_is_told_becomes_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log_lines.start("json")
    monkeypatch.setattr(terminal.errors, "_file", PrintedLines())
    terminal.errors.print("case 00fc  accepted  16 s", highlight=False, soft_wrap=True)
    with pytest.raises(Exception, match="1"):
        terminal.fail("no dataset in store")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["level"], line["message"]) for line in lines] == [
        ("INFO", "case 00fc  accepted  16 s"),
        ("ERROR", "no dataset in store"),
    ]


def test_lines_of_processes_of_ray_come_out_where_it_was_started(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[object] = []
    monkeypatch.setattr("flows.cluster.process_logs.leave_nothing", left.append)
    monkeypatch.setattr("atexit.register", lambda call: call)
    log_lines.start("json")
    relay_lines()
    sent = log_lines.carried()
    assert sent.relay
    Carried("json", {"case": "00fc"}, sent.relay).take_up()
    logging.getLogger("simgen").info("solved")
    text, until = "", time.monotonic() + 60
    while not text and time.monotonic() < until:
        text += capsys.readouterr().err
    assert json.loads(text)["case"] == "00fc"
    (close,) = left
    close()
    # Its owner is gone: the line stays with the process itself.
    logging.getLogger("simgen").info("alone")
    assert json.loads(capsys.readouterr().err)["message"] == "alone"


def test_a_job_knows_the_flow_run_that_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"metadata": {"flow_run": "f-1", "job_submission_id": "j"}}
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", json.dumps(config))
    know_submitter()
    assert log_lines.fields_here() == {"flow_run": "f-1"}


def test_the_last_line_of_a_command_is_a_line_too(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    log_lines.start("json")
    monkeypatch.setattr("os.dup2", lambda *files: None)
    ending._say_last("error: Ray is lost", 2)
    assert json.loads(capfd.readouterr().err)["level"] == "ERROR"
