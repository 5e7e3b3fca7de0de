"""Where the files of infra/ are, and how tests read them."""

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

from tests.declared import PROJECT as PROJECT
from tests.declared import ROOT as ROOT

INFRA = ROOT / "infra"


def scripts() -> list[Path]:
    """Shell scripts under infra/, which have no suffix: by their first line."""
    found = [path for path in INFRA.rglob("*") if path.is_file() and "__pycache__" not in str(path)]
    shells = re.compile(r"#!/bin/(ba)?sh\b")
    return sorted(path for path in found if shells.match(path.read_bytes()[:20].decode("latin-1")))


def load(path: Path) -> Any:
    """A Python file of infra/, which is no package, as a module."""
    spec = importlib.util.spec_from_file_location(f"infra_{path.stem}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
