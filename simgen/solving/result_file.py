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

NAME = "result.json"


def write_result(result: CaseResult, directory: Path) -> None:
    """Mark the case as ended; the file appears complete or not at all."""
    record = asdict(result)
    record.pop("point")
    temporary = directory / f"{NAME}.part"
    temporary.write_text(json.dumps(record))
    temporary.replace(directory / NAME)


def read_result(point: DesignPoint, directory: Path) -> CaseResult | None:
    """Read the result of the case in `directory`; None if it was interrupted."""
    if not (directory / NAME).is_file():
        return None
    record: Mapping[str, Any] = json.loads((directory / NAME).read_text())
    return CaseResult(
        point,
        record["status"],
        record["reason"],
        tuple(Gate(**gate) for gate in record["gates"]),
        record["log_tail"],
        record["provenance"],
    )
