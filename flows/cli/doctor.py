"""`courant doctor`: show what works on this machine, and how to get the rest."""

from __future__ import annotations

import os
import platform
import shutil
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import typer
from rich.markup import escape
from rich.table import Column, Table

from flows.deployments import answers
from flows.settings import absolute, load_settings
from flows.terminal import one_line_errors, screen
from simgen.errors import InputError, SimgenError
from simgen.machine import memory_gb, usable_cores

OWN_RAY = ("local", "auto")
"""Addresses that name no host: Ray starts a cluster, or looks for one on this machine"""
ANSWER_S = 5.0
FREE_GB = 5.0
"""Less free space on a disk is reported: a paper-sized case writes a few GB before it is read"""

doctor_app = typer.Typer()


@dataclass(frozen=True)
class Finding:
    """The result of a check: usable or not, and what was found or how to get it."""

    usable: bool
    text: str


@doctor_app.command(epilog="Example: courant doctor")
def doctor() -> None:
    """Show what works on this machine: OpenFOAM, gmsh, storage, Ray, GPU, disk.

    Ends with exit code 0 whatever it finds: models are trained without OpenFOAM.
    """
    with one_line_errors():
        table = Table(
            Column("", no_wrap=True),
            Column("", no_wrap=True),
            Column("", overflow="fold"),
            box=None,
            show_header=False,
        )
        found = {}
        for name, check in CHECKS.items():
            found[name] = _carry_out(check)
            mark = "[green]ok[/green]" if found[name].usable else "[yellow]missing[/yellow]"
            table.add_row(name, mark, escape(found[name].text))
        screen.print(table, "")
        screen.print(_verdict({name for name, finding in found.items() if finding.usable}))


def _verdict(usable: set[str]) -> str:
    """Say in one line what all findings together allow."""
    solves = {"OpenFOAM", "gmsh", "scratch"} <= usable
    if "store" not in usable:
        cases = "can be solved but not stored" if solves else "cannot be solved"
        return f"The store cannot be used: no dataset read, no model trained on it; cases {cases}."
    if solves:
        return "Cases can be solved here; datasets read, models trained and asked."
    return "Datasets can be read here, models trained and asked; cases cannot be solved."


def _carry_out(check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except SimgenError as error:
        return Finding(False, str(error))
    except (ImportError, OSError) as error:
        return Finding(False, f"{type(error).__name__}: {error}")


def _python() -> Finding:
    text = f"{platform.python_version()} on {platform.system()}, {usable_cores()} cores"
    memory = memory_gb()
    return Finding(True, text if memory is None else f"{text}, {memory:.0f} GB")


def _openfoam() -> Finding:
    from simgen.cases import FAMILIES
    from simgen.foam.environment import find_openfoam

    solvers = {family.application for family in FAMILIES.values()}
    openfoam = find_openfoam(("checkMesh", "gmshToFoam", *sorted(solvers)))
    return Finding(True, f"v{openfoam.version.removeprefix('v')}, {', '.join(sorted(solvers))}")


def _gmsh() -> Finding:
    from importlib.metadata import version

    # The wheel loads libGLU and libXrender, which a bare machine does not have.
    from simgen.meshing import load_gmsh

    load_gmsh()
    return Finding(True, version("gmsh"))


def _gpu() -> Finding:
    import torch

    if not torch.cuda.is_available():
        return Finding(False, f"none that torch {torch.__version__} sees; training uses the CPU")
    names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return Finding(True, f"{', '.join(names)} (torch {torch.__version__})")


def _ray() -> Finding:
    from importlib.metadata import version

    address = load_settings().ray_address
    if not address:
        return Finding(True, f"{version('ray')}; no RAY_ADDRESS, work is done here")
    if address in OWN_RAY:
        return Finding(True, f"{version('ray')}, RAY_ADDRESS is {address}")
    if _listens(address):
        return Finding(True, f"{version('ray')}, {address} (RAY_ADDRESS) answers")
    return Finding(False, f"{address} (RAY_ADDRESS) does not answer; start it or unset the name")


def _listens(address: str) -> bool:
    """Tell whether anything takes connections at host:port or at a URL."""
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        port = parts.port or {"http": 80, "https": 443, "ray": 10001}[parts.scheme]
        socket.create_connection((parts.hostname or "", port), ANSWER_S).close()
    except (OSError, ValueError, KeyError):  # nobody there, or no address
        return False
    return True


def _prefect() -> Finding:
    from importlib.metadata import version

    url = os.environ.get("PREFECT_API_URL")
    if not url:
        return Finding(True, f"{version('prefect')}; no PREFECT_API_URL, no command needs a server")
    if answers(url):
        return Finding(True, f"{version('prefect')}, {url} answers")
    return Finding(False, f"{url} (PREFECT_API_URL) does not answer; start it or unset the name")


def _store() -> Finding:
    from simgen.cases import FAMILIES
    from simgen.store.repository import repository_exists

    where = absolute(load_settings().store)
    there = [family for family in FAMILIES if repository_exists(f"{where}/{family}")]
    return Finding(True, f"{where}: {', '.join(there) or 'no dataset yet'}")


def _scratch() -> Finding:
    folder = Path(load_settings().scratch)
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = shutil.disk_usage(there).free / 1e9
    text = f"{folder}: {free:.0f} GB free"
    if not there.is_dir():
        return Finding(False, f"{there} is a file; set COURANT_SCRATCH to a folder")
    if not os.access(there, os.W_OK):
        return Finding(False, f"{folder}: not writable; set COURANT_SCRATCH to a folder that is")
    try:
        if there == folder:
            from simgen.solving.case_lock import check_private  # needs Unix

            check_private(folder)
    except InputError as error:
        return Finding(False, str(error))
    if free < FREE_GB:
        return Finding(False, f"{text}; set COURANT_SCRATCH to a disk with {FREE_GB:g} GB or more")
    return Finding(True, text)


CHECKS: dict[str, Callable[[], Finding]] = {
    "Python": _python,
    "OpenFOAM": _openfoam,
    "gmsh": _gmsh,
    "GPU": _gpu,
    "Ray": _ray,
    "Prefect": _prefect,
    "store": _store,
    "scratch": _scratch,
}
