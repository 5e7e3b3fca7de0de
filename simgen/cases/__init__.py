"""List the case families by name; a new family is one more folder here, with its dictionaries.

A family of one's own needs no fork: COURANT_FAMILIES names modules with commas between them, or a
package has the entry point `courant.families`; each concrete `CaseFamily` in the module is a
family. A template case (`template`) is one as well, where its dataset lies.
"""

import importlib
import inspect
import os
import re
import tempfile
from collections import UserDict
from collections.abc import Iterator, Sequence
from functools import cached_property
from importlib.metadata import entry_points
from pathlib import Path

import fsspec

from simgen.case import CaseFamily
from simgen.cases.branched_pipe.family import BranchedPipe
from simgen.cases.centrifugal_pump.family import CentrifugalPump
from simgen.cases.cylinder.family import CylinderFlow
from simgen.errors import InputError, StoreError, did_you_mean

MODULES, TEMPLATES = "COURANT_FAMILIES", "COURANT_TEMPLATES"
"""Variables: modules, and unpacked templates for the processes that this one starts"""
GROUP = "courant.families"


class Families(UserDict[str, CaseFamily]):
    """The families by name; those from outside are imported when one is first looked up."""

    def __init__(self) -> None:  # which would make an empty `data`
        pass

    @cached_property
    def data(self) -> dict[str, CaseFamily]:  # type: ignore[override]
        known: dict[str, CaseFamily] = {
            family.name: family for family in (CylinderFlow(), BranchedPipe(), CentrifugalPump())
        }
        modules = [name.strip() for name in os.environ.get(MODULES, "").split(",")]
        for module in filter(None, [*modules, *(each.value for each in entry_points(group=GROUP))]):
            known |= {family.name: family for family in _families_of(module)}
        for folder in filter(None, os.environ.get(TEMPLATES, "").split(os.pathsep)):
            from simgen.cases.template import read_template

            family = read_template(Path(folder))
            known[family.name] = family
        return known


FAMILIES = Families()


def _families_of(module: str) -> Iterator[CaseFamily]:
    """Make the families that a module defines; InputError where it cannot be imported."""
    try:
        found = importlib.import_module(module)
        classes = [
            each
            for each in vars(found).values()
            if inspect.isclass(each)
            and issubclass(each, CaseFamily)
            and each.__module__ == found.__name__
            and not inspect.isabstract(each)
        ]
        made = [each() for each in classes]
    except Exception as error:
        raise InputError(
            f"{MODULES}: {module} cannot be imported ({type(error).__name__}: {error})"
        ) from error
    if not made:
        raise InputError(f"{MODULES}: {module} defines no class of CaseFamily")
    yield from made


def find_family(name: str, dataset: str | None = None) -> CaseFamily | None:
    """Return the family called `name`, or the template beside a dataset's URL; None without one.

    Two stores may have templates of one name: cases are solved by the one that was found last.
    """
    known = FAMILIES.get(name)
    if dataset is None:
        return known
    try:
        from simgen.cases.template import TemplateFamily, find
    except ImportError:  # what solves needs POSIX, and cases are readable without
        return known
    if known is None or isinstance(known, TemplateFamily):
        found = find(name, dataset.rstrip("/").rpartition("/")[0])
        if found is not None and (known is None or known.record != found.record):
            FAMILIES[name] = found
            others = filter(None, [os.environ.get(TEMPLATES)])
            os.environ[TEMPLATES] = os.pathsep.join([*others, str(found.folder)])
        return found
    return known


def get_family(name: str, dataset: str | None = None) -> CaseFamily:
    """Return what `find_family` finds; InputError lists the known ones."""
    if (family := find_family(name, dataset)) is None:
        known = [*FAMILIES, *(templates_in(dataset.rpartition("/")[0]) if dataset else [])]
        raise InputError(
            f"family '{name}' is unknown; {did_you_mean(name, known)}choose one of"
            f" {', '.join(known)}, name the module of your own in {MODULES}, or give a case:"
            " --template CASE"
        )
    return family


def templates_in(store: str) -> list[str]:
    """List the names of a store's templates; StoreError where it cannot be read."""
    from botocore.exceptions import BotoCoreError  # not where models are only trained

    try:
        files, path = fsspec.core.url_to_fs(f"{store}/templates/*.tar.gz", skip_instance_cache=True)
        return sorted(Path(each).name.removesuffix(".tar.gz") for each in files.glob(path))
    except (OSError, BotoCoreError) as error:
        raise StoreError(f"{store} cannot be read: {error}") from error


def add_template(
    case: Path,
    name: str,
    vary: Sequence[str],
    fields: Sequence[str] | None,
    quantities: Sequence[str] | None,
    dataset: str,
    *,
    is_used: bool,
) -> CaseFamily:
    """Make a case the family `name` beside a dataset's URL; see `template.make_template`.

    `vary` has a parameter each, as NAME=FILE:ENTRY=LOW:HIGH:UNIT, `quantities` one each, as
    NAME=EXPRESSION:UNIT (None: the usual ones). Another template of that name is
    replaced, unless it `is_used`: its dataset has a version or an accepted case.
    """
    from simgen.cases import expressions, template

    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name):
        raise InputError(f"'{name}' is no name of a family: use a-z, 0-9 and -, such as my-step")
    known = FAMILIES.get(name)
    if known is not None and not isinstance(known, template.TemplateFamily):
        raise InputError(f"{name} is a family already: give the template another name")
    varied = [*map(template.Varied.parse, vary)]
    if not varied:
        raise InputError("--vary names no parameter; add --vary NAME=FILE:ENTRY=LOW:HIGH:UNIT")
    asked = None if quantities is None else [*map(expressions.AskedQuantity.parse, quantities)]
    with tempfile.TemporaryDirectory(prefix="courant-template-") as folder:
        made = template.make_template(case, name, varied, fields, Path(folder) / name, asked)
        template.keep(made, dataset.rstrip("/").rpartition("/")[0], is_used=is_used)
    return get_family(name, dataset)
