"""Read and write `result.json` in a case's directory: the case's result, written last.

A directory without it belongs to an interrupted case.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from simgen.case import CaseResult, Gate
from simgen.design_space import DesignPoint
from simgen.whole_file import whole_file

NAME = "result.json"


def write_result(result: CaseResult, directory: Path) -> None:
    """Mark the case as ended; the file appears complete or not at all."""
    record = asdict(result)
    record.pop("point")
    with whole_file(directory / NAME) as part:
        part.write_text(json.dumps(record))


def read_result(point: DesignPoint, directory: Path) -> CaseResult | None:
    """Read the result of the case in `directory`; None if it was interrupted.

    So is one whose result cannot be read, as a machine leaves it that lost its power.
    """
    if not (directory / NAME).is_file():
        return None
    try:
        record: Mapping[str, Any] = json.loads((directory / NAME).read_text())
        return CaseResult(
            point,
            record["status"],
            record["reason"],
            tuple(Gate(**gate) for gate in record["gates"]),
            record["log_tail"],
            record["provenance"],
        )
    except (ValueError, KeyError, TypeError):
        return None
