"""A process that trains computes with zero where a number is below full precision."""

import subprocess
import sys

FOUND = """
import torch
from courant.training.workers import use_threads
{call}
print(torch.get_num_threads(), int((torch.full((4_000_000,), 1e-30) * 1e-9 != 0).sum()))
"""


def found(call: str) -> list[int]:
    command = [sys.executable, "-c", FOUND.format(call=call)]
    return [int(word) for word in subprocess.check_output(command, text=True).split()]


def test_no_thread_keeps_a_subnormal_number() -> None:
    assert found("torch.set_num_threads(2)") == [2, 4_000_000]
    assert found("use_threads(2)") == [2, 0]
