"""Write case directories from editable dictionaries, in which only `|-name-|` is replaced."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def write_dictionaries(templates: Path, directory: Path, values: Mapping[str, float | str]) -> None:
    """Fill every file under `templates` into the same place under `directory`.

    Words and whole numbers are written as they are, other numbers with all their digits. An unknown
    name is an error.
    """
    # Where something is written: a family can be asked for its quantities without PyFoam.
    from PyFoam.Basics.TemplateFile import TemplateFile

    written = {
        name: str(value) if isinstance(value, str | int) else repr(float(value))
        for name, value in values.items()
    }
    for source in sorted(path for path in templates.rglob("*") if path.is_file()):
        target = directory / source.relative_to(templates)
        target.parent.mkdir(parents=True, exist_ok=True)
        template = TemplateFile(name=str(source), expressionDelimiter="|-", encoding="utf-8")
        template.writeToFile(str(target), written)
