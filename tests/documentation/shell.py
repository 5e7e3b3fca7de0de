"""Run the shell lines of a page in bash as they are pasted, `courant` and `python` in this process.

A process of the command line takes seconds to start. So bash gets functions of these names, which
hand their arguments and exported variables to this process and print what it answers.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import pytest
from typer.testing import CliRunner

from flows.cli.app import app

FUNCTIONS = r"""
set -eu -o pipefail
ask() {
    local code
    { printf '%s\0' "$@"; printf '\0'; env -0; printf '\0'; } >&"$QUESTIONS"
    read -r code <&"$ANSWERS"
    cat "$PRINTED"
    return "$code"
}
courant() { ask courant "$@"; }
python() { ask python "$@"; }
"""
#: Variables of bash's own and of these functions.
OURS = {"QUESTIONS", "ANSWERS", "PRINTED", "PATH", "SHLVL", "PWD", "OLDPWD", "_"}
ASSIGNED = re.compile(r"(?<!\S)([A-Z][A-Z_]*)=")


class Shell:
    """Bash in a folder, which keeps the variables of a page from one block to the next."""

    def __init__(self, folder: Path, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._files = files
        self._monkeypatch = monkeypatch
        self._variables = ""

    def run(self, script: str) -> str:
        """Run a block; what it printed. AssertionError where a line of it ends with an error."""
        from_bash, to_us = os.pipe()
        from_us, to_bash = os.pipe()
        state, printed, output = (self._files / name for name in ("state", "printed", "output"))
        names = " ".join(dict.fromkeys(ASSIGNED.findall(script)))
        ending = f"declare -p {names} > {state}\n" if names else ""
        errors: list[str] = []
        with output.open("wb") as out:
            bash = subprocess.Popen(
                ["/bin/bash", "-c", f"{FUNCTIONS}\n{self._variables}\n{script}\n{ending}"],
                cwd=self._folder,
                env={
                    **os.environ,
                    "PATH": "/usr/bin:/bin",
                    "QUESTIONS": str(to_us),
                    "ANSWERS": str(from_us),
                    "PRINTED": str(printed),
                },
                pass_fds=(to_us, from_us),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        os.close(to_us)
        os.close(from_us)
        with os.fdopen(from_bash, "rb") as questions, os.fdopen(to_bash, "w") as answers:
            while words := _read_words(questions):
                variables = dict(pair.split("=", 1) for pair in _read_words(questions))
                code, told, error = self._answer(words, variables)
                printed.write_text(told)
                if code:
                    errors.append(f"$ {' '.join(words)}\n{told}{error}")
                answers.write(f"{code}\n")
                answers.flush()
        code, told = bash.wait(), output.read_text()
        assert code == 0, f"{script}\n{told}\n{''.join(errors)}"
        if names:
            self._variables += state.read_text()
        return told

    def _answer(self, words: Sequence[str], variables: Mapping[str, str]) -> tuple[int, str, str]:
        program, *arguments = words
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
            assert arguments[0] == "-c", words
            return 0, run_python(arguments[1], {}), ""


def _read_words(source: BinaryIO) -> list[str]:
    """Words that end with a zero byte each, up to an empty one."""
    words = [bytearray()]
    while byte := source.read(1):
        if byte != b"\0":
            words[-1] += byte
        elif words[-1]:
            words.append(bytearray())
        else:
            break
    return [word.decode() for word in words[:-1]]


def run_python(code: str, namespace: dict[str, object]) -> str:
    """Execute code in the namespace; what it printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "page", "exec"), namespace)
    return printed.getvalue()
