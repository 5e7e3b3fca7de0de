"""Write a trained model as files for serving without this package.

These are programs that need only torch, and the numbers that convert physical units to the model's.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch

from courant.data.normalisation import Normaliser
from courant.field_model import Exports, FieldModel
from simgen.errors import InputError

NORMALISER = "normaliser.json"


def write_programs(model: FieldModel, normaliser: Normaliser, folder: str | Path) -> list[Path]:
    """Write <part>.pt2 for each part of the model, and normaliser.json; return the files.

    InputError for a model that cannot be exported, and a folder that cannot be written.
    """
    if not isinstance(model, Exports):
        raise InputError(f"a model of kind {model.config.kind} has no export to programs")
    try:
        programs = model.export()
    except ValueError as error:
        raise InputError(f"the model cannot be exported: {error}") from error
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
        for part, program in programs.items():
            torch.export.save(program, place / f"{part}.pt2")
        (place / NORMALISER).write_text(json.dumps(normaliser.to_json(), indent=1))
    except OSError as error:
        raise InputError(f"{place} cannot be written: {error.strerror}") from error
    return [*(place / f"{part}.pt2" for part in programs), place / NORMALISER]
