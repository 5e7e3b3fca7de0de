"""`courant doctor` and `courant families`: what works on this machine, and what can be solved."""

from __future__ import annotations

import os
import platform
import shutil
import socket
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from flows.request_models import argument
from flows.settings import absolute, check_prefect, load_settings, prefect_url
from flows.terminal import print_line, print_markup, print_table, screen
from simgen.cases import FAMILIES, get_family
from simgen.design_space import DesignSpace
from simgen.errors import InputError, SimgenError
from simgen.machine import memory_gb, usable_cores

OWN_RAY = ("local", "auto")
"""Addresses that name no host: Ray starts a cluster, or looks for one on this machine"""
ANSWER_S = 5.0
FREE_GB = 5.0
"""Less free space on a disk is reported: a paper-sized case writes a few GB before it is read"""

doctor_app = typer.Typer()


@doctor_app.command(epilog="Example: courant doctor")
def doctor() -> None:
    """Show what works on this machine: OpenFOAM, gmsh, storage, Ray, GPU, disk."""
    usable, table = set(), Table(box=None, show_header=False)
    for name, check in CHECKS.items():
        try:
            text, mark = check(), Text("ok", "green")
            usable.add(name)
        except (SimgenError, ImportError, OSError) as error:
            kind = "" if isinstance(error, SimgenError) else f"{type(error).__name__}: "
            text, mark = f"{kind}{error}", Text("missing", "yellow")
        table.add_row(name, mark, escape(text))
    screen.print(table, "")
    solves = {"OpenFOAM", "gmsh", "scratch"} <= usable
    if "store" not in usable:
        cases = "can be solved but not stored" if solves else "cannot be solved"
        line = f"The store cannot be used: no dataset read, no model trained on it; cases {cases}."
    else:
        cases = "be" if solves else "not be"
        line = f"Datasets can be read, models trained and asked here; cases can {cases} solved."
    print_line(line)


def _python() -> str:
    text = f"{platform.python_version()} on {platform.system()}, {usable_cores()} cores"
    memory = memory_gb()
    return text if memory is None else f"{text}, {memory:.0f} GB"


def _openfoam() -> str:
    from simgen.foam.run import find_openfoam

    solvers = sorted({family.application for family in FAMILIES.values()})
    openfoam = find_openfoam(("checkMesh", "gmshToFoam", *solvers))
    return f"v{openfoam.version.removeprefix('v')}, {', '.join(solvers)}"


def _gmsh() -> str:
    # The wheel loads libGLU and libXrender, which a bare machine does not have.
    from simgen.meshing import load_gmsh

    load_gmsh()
    return version("gmsh")


def _gpu() -> str:
    import torch

    if not torch.cuda.is_available():
        raise InputError(f"none that torch {torch.__version__} sees; training uses the CPU")
    names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return f"{', '.join(names)} (torch {torch.__version__})"


def _ray() -> str:
    address = load_settings().ray_address
    if not address:
        return f"{version('ray')}; no RAY_ADDRESS, work is done here"
    if address in OWN_RAY:
        return f"{version('ray')}, RAY_ADDRESS is {address}"
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        port = parts.port or {"http": 80, "https": 443, "ray": 10001}[parts.scheme]
        socket.create_connection((parts.hostname or "", port), ANSWER_S).close()
    except (OSError, ValueError, KeyError):  # nobody there, or no address
        raise InputError(f"{address} (RAY_ADDRESS) does not answer; start it or unset it") from None
    return f"{version('ray')}, {address} (RAY_ADDRESS) answers"


def _prefect() -> str:
    url = prefect_url()
    if url is None:
        return f"{version('prefect')}; no PREFECT_API_URL, no command needs a server"
    check_prefect(url)
    return f"{version('prefect')}, {url} answers"


def _store() -> str:
    from simgen.store.versions import repository_exists

    where = absolute(load_settings().store)
    there = [family for family in FAMILIES if repository_exists(f"{where}/{family}")]
    return f"{where}: {', '.join(there) or 'no dataset yet'}"


def _scratch() -> str:
    folder = Path(load_settings().scratch)
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = shutil.disk_usage(there).free / 1e9
    text = f"{folder}: {free:.0f} GB free"
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise InputError(f"{folder} cannot be written; set COURANT_SCRATCH to a folder that can")
    if there == folder:
        from simgen.solving.case_lock import check_private  # needs Unix

        check_private(folder)
    if free < FREE_GB:
        raise InputError(f"{text}; set COURANT_SCRATCH to a disk with {FREE_GB:g} GB or more")
    return text


CHECKS: dict[str, Callable[[], str]] = {
    "Python": _python,
    "OpenFOAM": _openfoam,
    "gmsh": _gmsh,
    "GPU": _gpu,
    "Ray": _ray,
    "Prefect": _prefect,
    "store": _store,
    "scratch": _scratch,
}
"""Each returns what it found, and raises for what cannot be used, with the way to get it"""


@doctor_app.command(epilog="Example: courant families cylinder-flow")
def families(
    name: Annotated[
        str | None, argument("A family, for its parameters, presets and settings.")
    ] = None,
) -> None:
    """List the case families; or show one with its parameters, presets and settings."""
    if name is None:
        every = FAMILIES.values()
        rows = (
            (each.name, each.title, each.application, ", ".join(each.presets)) for each in every
        )
        print_table(("family", "", "solver", "presets"), rows)
        return
    family = get_family(name)
    kind = "transient" if family.transient else "steady"
    title = f"{family.title}; {kind}, {family.application}, revision {family.revision}"
    print_markup(f"[bold]{family.name}[/bold]  {title}\n")
    _print_space("parameter", family.design_space, {})
    _print_space("setting", family.settings_space, family.presets)
    fields = ((each.name, each.unit, ", ".join(each.components)) for each in family.fields)
    print_table(("field", "unit", "components"), fields)
    header = ",".join(family.design_space.names)
    print_line(f"\nFirst line of a file for --designs: {header}")


def _print_space(
    title: str, space: DesignSpace, presets: Mapping[str, Mapping[str, float]]
) -> None:
    rows = []
    for each in space.parameters:
        values = [f"{preset[each.name]:g}" for preset in presets.values()]
        rows.append(
            [each.name, each.unit, f"{each.low:g} to {each.high:g}", *values, each.description]
        )
    print_table((title, "unit", "range", *presets, ""), rows)
    print_line("")
