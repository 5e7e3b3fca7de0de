"""Processes and what they have started."""

import os
import subprocess

from simgen.machine import descendants, start_of


def test_children_and_grandchildren_are_found_with_their_starts() -> None:
    shell = subprocess.Popen(
        ["sh", "-c", "sleep 300 & echo $!; wait"], stdout=subprocess.PIPE, text=True
    )
    assert shell.stdout is not None
    grandchild = int(shell.stdout.readline())
    try:
        expected = {(one, start_of(one)) for one in (shell.pid, grandchild)}
        assert expected <= descendants(os.getpid())
        assert {(grandchild, start_of(grandchild))} == descendants(shell.pid)
    finally:
        os.kill(grandchild, 15)
        shell.wait()
    assert descendants(shell.pid) == set()
    assert start_of(shell.pid) is None
