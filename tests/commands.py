"""Commands as a person gives them, in the test's process, on a screen that is wide enough."""

from unittest.mock import patch

from click.testing import Result
from typer.testing import CliRunner

from flows.cli.app import app


def called(*words: object, exit_code: int = 0) -> Result:
    """Run `courant WORDS`; it ends with this exit code."""
    typed = list(map(str, words))
    with patch("sys.argv", ["courant", *typed]):
        done = CliRunner(env={"COLUMNS": "250"}).invoke(app, typed)
    assert done.exit_code == exit_code, done.output
    return done


def refused(*words: object) -> str:
    """Run a command that cannot do what is asked, and return the one line that says why."""
    done = called(*words, exit_code=1)
    assert isinstance(done.exception, SystemExit), done.exception
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ") and "Traceback" not in done.stdout
    return line
