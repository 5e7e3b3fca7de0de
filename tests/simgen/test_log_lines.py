"""Log lines as JSON: each carries the ids of what it is about, none carries a secret."""

import json
import logging
import pickle

import pytest

from simgen import log_lines
from simgen.log_lines import JsonLines, LogContext, about, log_context, parse_line, set_field, start

logger = logging.getLogger("simgen.test")

pytestmark = pytest.mark.usefixtures("own_logs")


def printed(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_a_line_has_the_ids_of_the_process_of_every_block_and_of_the_sender(
    capsys: pytest.CaptureFixture[str],
) -> None:
    start("json")
    set_field("flow_run", "f-1")
    with about(dataset="s3://bucket/store/cylinder-flow"), about(case="00fc"):
        logger.info("%d cells", 812)
        sent = pickle.dumps(log_context())
    logger.info("after")
    log_lines._here = LogContext()  # as in a new process
    pickle.loads(sent).apply()
    logger.info("there")
    inside, after, there = printed(capsys)
    expected = {"dataset": "s3://bucket/store/cylinder-flow", "case": "00fc", "flow_run": "f-1"}
    assert inside.items() >= {**expected, "message": "812 cells"}.items()
    assert there.items() >= expected.items()
    assert "case" not in after and after["flow_run"] == "f-1"


def test_no_line_holds_a_secret_whatever_is_logged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", 'planted/"aws+secret0123')
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "admin:planted-password")
    start("json")
    url = "postgresql://prefect:planted-too@db:5432/prefect"
    try:
        raise ValueError('key planted/"aws+secret0123, admin:planted-password')
    except ValueError:
        logger.exception("cannot reach %s", url)
    text = capsys.readouterr().err
    assert "planted" not in text
    assert json.loads(text)["message"] == "cannot reach postgresql://***@db:5432/prefect"


def test_a_line_is_read_back_as_message_and_ids() -> None:
    with about(case="00fc"):
        line = JsonLines().format(logging.makeLogRecord({"msg": "meshed", "levelname": "INFO"}))
    assert parse_line(line) == ({"case": "00fc"}, "meshed")
    for other in ("plain words", '{"time": broken'):
        assert parse_line(other) == ({}, other)
