"""The command line as a person meets it: help at once, with examples, and what it prints."""

import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer
from typer.testing import CliRunner

from courant.experiment import parse_experiment
from courant.recipes import RECIPES, get_recipe
from flows import terminal
from flows.cli.app import app
from flows.settings import keep_loopback_direct
from simgen import log_lines
from simgen.cases import FAMILIES, get_family
from tests.commands import called

COURANT = Path(sys.executable).parent / "courant"


def courant(*arguments, **environment):
    return subprocess.run(
        [str(COURANT), *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "COLUMNS": "200", **environment},
    )


def test_help_needs_none_of_the_heavy_libraries():
    code = (
        "import sys, flows.cli.app;"
        "print(sorted({'torch', 'ray', 'prefect', 'zarr', 'gmsh'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout.strip() == "[]", found.stderr


def test_the_version_is_the_packages():
    assert courant("--version").stdout == f"courant {version('courant-surrogate')}\n"


def test_a_family_is_shown_with_all_that_can_be_asked_of_it():
    shown, family = called("families", "cylinder-flow").stdout, get_family("cylinder-flow")
    for named in (*family.design_space.names, *family.settings_space.names, *family.presets):
        assert named in shown
    header = shown.strip().splitlines()[-1].rpartition(" ")[2]
    assert header == "radius,center_x,center_y"
    listed = called("families").stdout
    assert all(name in listed for name in FAMILIES)


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_a_recipe_is_printed_as_the_experiment_that_it_is(name):
    shown = parse_experiment(called("recipes", "show", name).stdout)
    assert shown == get_recipe(name) and shown.name == name


def test_an_output_without_room_is_one_line():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [str(COURANT), "recipes", "show", "cylinder-flow-demo"],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=600,
        )  # fmt: skip
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "error: No space left on device" in done.stderr


def commands(group: Any, *names: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All commands, also of groups, with the words that call them."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, *names, name)
        else:
            yield (*names, name), command


def test_every_command_explains_itself_with_an_example():
    found = dict(commands(typer.main.get_command(app)))
    assert len(found) > 30
    for words, command in found.items():
        example = f"Example: courant {words[0]} "
        assert command.help and example in f"{command.epilog} ", words


@pytest.mark.usefixtures("own_logs")
def test_an_unknown_format_of_logs_is_one_line() -> None:
    done = CliRunner().invoke(app, ["recipes"], env={"COURANT_LOG_FORMAT": "xml"})
    assert done.exit_code == 1
    assert done.stderr == "error: COURANT_LOG_FORMAT is 'xml'; give text or json\n"


@pytest.mark.usefixtures("own_logs")
def test_what_a_person_reads_becomes_lines_of_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COURANT_LOG_FORMAT", "json")
    monkeypatch.setattr(terminal.errors, "quiet", False)
    terminal.start_logs()
    terminal.announce("case 00fc  accepted  16 s")
    with pytest.raises(typer.Exit):
        terminal.fail("no dataset in store")
    with log_lines.about(case="00fc"):
        sent = log_lines.log_context()
    sent.apply()  # as in a worker
    terminal.announce("solved")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["level"], line["message"], line.get("case")) for line in lines] == [
        ("INFO", "case 00fc  accepted  16 s", None),
        ("ERROR", "no dataset in store", None),
        ("INFO", "solved", "00fc"),
    ]


def test_this_machines_own_servers_are_reached_without_a_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "example.com")
    monkeypatch.delenv("no_proxy", raising=False)
    keep_loopback_direct()
    assert os.environ["NO_PROXY"].startswith("example.com,")
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    threading.Thread(target=server.handle_request, daemon=True).start()
    with httpx.Client() as client:
        assert client.head(f"http://127.0.0.1:{server.server_port}/").status_code == 200
    server.server_close()
