"""`result.json` in a case's directory: how the case ended. It is written last.

A directory without it was cut off.
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
    """Mark the case as ended; the file is there whole or not at all."""
    record = asdict(result)
    record.pop("point")
    temporary = directory / f"{NAME}.part"
    temporary.write_text(json.dumps(record))
    temporary.replace(directory / NAME)


def read_result(point: DesignPoint, directory: Path) -> CaseResult | None:
    """How the case in `directory` ended; None where it was cut off."""
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
