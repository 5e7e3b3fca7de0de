"""A process begins its log as COURANT_LOG_FORMAT says."""

import json
import logging

import pytest
from typer.testing import CliRunner

from flows import terminal
from flows.cli.app import app
from simgen import log_lines

pytestmark = pytest.mark.usefixtures("own_logs")


def test_an_unknown_format_is_one_line() -> None:
    done = CliRunner().invoke(app, ["recipes"], env={"COURANT_LOG_FORMAT": "xml"})
    assert done.exit_code == 1
    assert done.stderr == "error: COURANT_LOG_FORMAT is 'xml'; give text or json\n"


def test_what_a_person_is_told_becomes_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COURANT_LOG_FORMAT", "json")
    monkeypatch.setattr(terminal.errors, "quiet", False)
    terminal.start_logs()
    terminal.announce("case 00fc  accepted  16 s")
    with pytest.raises(Exception, match="1"):
        terminal.fail("no dataset in store")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["level"], line["message"]) for line in lines] == [
        ("INFO", "case 00fc  accepted  16 s"),
        ("ERROR", "no dataset in store"),
    ]


def test_a_worker_writes_lines_with_the_ids_of_who_gave_it_work(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log_lines.start("json")
    with log_lines.about(case="00fc"):
        sent = log_lines.log_context()
    sent.apply()
    logging.getLogger("simgen").info("solved")
    assert json.loads(capsys.readouterr().err)["case"] == "00fc"
