"""Run the shell lines of a page in bash as they are pasted, `courant` and `python` in this process.

A process of the command line takes seconds to start. So bash finds small programs of these names,
which send their arguments and variables to this process and print what it answers.
"""

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Client, Listener
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli.app import app

PROGRAM = """#!{python} -IS
import os, sys
from multiprocessing.connection import Client
with Client({address!r}) as asked:
    asked.send((os.path.basename(sys.argv[0]), sys.argv[1:], dict(os.environ)))
    code, printed = asked.recv()
sys.stdout.write(printed)
sys.exit(code)
"""
#: Variables of bash's own and of these programs.
OURS = {"PATH", "SHLVL", "PWD", "OLDPWD", "_"}
ASSIGNED = re.compile(r"(?<!\S)([A-Z][A-Z_]*)=")


class Shell:
    """Bash in a folder, which keeps the variables of a page from one block to the next."""

    def __init__(self, folder: Path, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._files, self._monkeypatch = folder, files, monkeypatch
        self._variables, self._listener = "", Listener(family="AF_UNIX")
        (files / "bin").mkdir()
        for name in ("courant", "python"):
            program = files / "bin" / name
            address = self._listener.address
            program.write_text(PROGRAM.format(python=sys.executable, address=address))
            program.chmod(0o700)

    def run(self, script: str) -> None:
        """Run a block. AssertionError where a line of it ends with an error."""
        state, errors = self._files / "state", list[str]()
        names = " ".join(dict.fromkeys(ASSIGNED.findall(script)))
        ending = f"declare -p {names} > {state}\n" if names else ""
        with ThreadPoolExecutor(1) as pool:
            bash = pool.submit(
                subprocess.run,
                ["/bin/bash", "-euo", "pipefail", "-c", f"{self._variables}\n{script}\n{ending}"],
                cwd=self._folder,
                env={**os.environ, "PATH": f"{self._files}/bin:/usr/bin:/bin"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            bash.add_done_callback(lambda _: Client(self._listener.address).close())
            with contextlib.suppress(EOFError):  # that of the connection at the end
                while True:
                    with self._listener.accept() as asked:
                        program, arguments, variables = asked.recv()
                        code, printed, error = self._answer(program, arguments, variables)
                        errors += [f"$ {program} {' '.join(arguments)}\n{error}"] if code else []
                        asked.send((code, printed))
        done = bash.result()
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{''.join(errors)}"
        self._variables += state.read_text() if names else ""

    def _answer(
        self, program: str, arguments: Sequence[str], variables: Mapping[str, str]
    ) -> tuple[int, str, str]:
        with self._monkeypatch.context() as patched:
            for name, value in variables.items():
                if name not in OURS and os.environ.get(name) != value:
                    patched.setenv(name, value)
            for place in variables.get("PYTHONPATH", "").split(":"):
                patched.syspath_prepend(self._folder / place)
            if program == "courant":
                ran = CliRunner().invoke(app, arguments)
                if ran.exception is not None and not isinstance(ran.exception, SystemExit):
                    raise ran.exception
                return ran.exit_code, ran.stdout, ran.stderr
            assert arguments[0] == "-c", arguments
            return 0, run_python(arguments[1], {}), ""


def run_python(code: str, namespace: dict[str, object]) -> str:
    """Execute code in the namespace; what it printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "page", "exec"), namespace)
    return printed.getvalue()
