"""`make serve` says in one line where a Prefect server is missing."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_server_that_does_not_answer_is_named() -> None:
    done = subprocess.run(
        [ROOT / "infra/prefect/serve"],
        env={**os.environ, "PREFECT_API_URL": "http://127.0.0.1:1/api"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "error: no Prefect server answers at PREFECT_API_URL, http://127.0.0.1:1/api"
    ]
