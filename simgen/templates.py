"""Case directories from dictionaries that an engineer can open and edit: `|-name-|` is replaced, nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from PyFoam.Basics.TemplateFile import TemplateFile


def write_dictionaries(templates: Path, directory: Path, values: Mapping[str, float]) -> None:
    """Fill every file under `templates` into the same place under `directory`; an unknown name is an error."""
    for source in sorted(path for path in templates.rglob("*") if path.is_file()):
        target = directory / source.relative_to(templates)
        target.parent.mkdir(parents=True, exist_ok=True)
        template = TemplateFile(name=str(source), expressionDelimiter="|-", encoding="utf-8")
        template.writeToFile(str(target), {name: repr(float(value)) for name, value in values.items()})
