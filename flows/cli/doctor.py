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
from rich.table import Column, Table

from flows.request_models import argument
from flows.settings import absolute, load_settings, prefect_answers, prefect_url
from flows.terminal import add_row, plain_table, print_line, screen
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
    """Show what works on this machine: OpenFOAM, gmsh, storage, Ray, GPU, disk.

    Ends with exit code 0 whatever it finds: models are trained without OpenFOAM.
    """
    names = Column("", no_wrap=True), Column("", no_wrap=True), Column("", overflow="fold")
    table, usable = Table(*names, box=None, show_header=False), set()
    for name, check in CHECKS.items():
        try:
            text, mark = check(), "[green]ok[/green]"
            usable.add(name)
        except SimgenError as error:
            text, mark = str(error), "[yellow]missing[/yellow]"
        except (ImportError, OSError) as error:
            text, mark = f"{type(error).__name__}: {error}", "[yellow]missing[/yellow]"
        table.add_row(name, mark, escape(text))
    screen.print(table, "")
    solves = {"OpenFOAM", "gmsh", "scratch"} <= usable
    if "store" not in usable:
        cases = "can be solved but not stored" if solves else "cannot be solved"
        lacking = "no dataset read, no model trained on it"
        screen.print(f"The store cannot be used: {lacking}; cases {cases}.")
    elif solves:
        screen.print("Cases can be solved here; datasets read, models trained and asked.")
    else:
        screen.print("Datasets can be read here, models trained and asked; cases cannot be solved.")


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
        raise InputError(
            f"{address} (RAY_ADDRESS) does not answer; start it or unset the name"
        ) from None
    return f"{version('ray')}, {address} (RAY_ADDRESS) answers"


def _prefect() -> str:
    url = prefect_url()
    if url is None:
        return f"{version('prefect')}; no PREFECT_API_URL, no command needs a server"
    if prefect_answers(url):
        return f"{version('prefect')}, {url} answers"
    raise InputError(f"{url} (PREFECT_API_URL) does not answer; start it or unset the name")


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
    if not there.is_dir():
        raise InputError(f"{there} is a file; set COURANT_SCRATCH to a folder")
    if not os.access(there, os.W_OK):
        raise InputError(f"{folder}: not writable; set COURANT_SCRATCH to a folder that is")
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
        table = plain_table("family", "", "solver", "presets")
        for each in FAMILIES.values():
            add_row(table, each.name, each.title, each.application, ", ".join(each.presets))
        screen.print(table)
        return
    family = get_family(name)
    kind = "transient" if family.transient else "steady"
    screen.print(
        f"[bold]{family.name}[/bold]  {family.title}; {kind}, {family.application},"
        f" revision {family.revision}\n",
        highlight=False,
    )
    screen.print(_table_of("parameter", family.design_space, {}), "")
    screen.print(_table_of("setting", family.settings_space, family.presets), "")
    fields = plain_table(Column("field", style="bold"), "unit", "components")
    for field in family.fields:
        add_row(fields, field.name, field.unit, ", ".join(field.components))
    screen.print(fields, "")
    header = ",".join(family.design_space.names)
    print_line(f"First line of a file for --designs: {header}")


def _table_of(title: str, space: DesignSpace, presets: Mapping[str, Mapping[str, float]]) -> Table:
    table = plain_table(Column(title, style="bold"), "unit", "range", *presets, "")
    for each in space.parameters:
        values = [f"{preset[each.name]:g}" for preset in presets.values()]
        ends = f"{each.low:g} to {each.high:g}"
        add_row(table, each.name, each.unit, ends, *values, each.description)
    return table
