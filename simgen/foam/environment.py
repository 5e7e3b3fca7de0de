"""Find OpenFOAM and set the environment that its applications need.

A site install that was sourced (WM_PROJECT_DIR set, applications on PATH) is used as it is.
Debian's package puts the applications into /usr/bin without an environment; the three variables
below are all that they and PyFoam lack.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from simgen.errors import InputError

DEBIAN_PROJECT_DIR = Path("/usr/share/openfoam")
INSTALL_HINT = (
    "install it (Debian: apt-get install openfoam) or source your site's etc/bashrc first"
)


class MissingSolverError(InputError):
    """A machine on which no case can be solved."""


@dataclass(frozen=True)
class OpenFoam:
    """A usable installation: its version (as in v1912) and its environment variables."""

    version: str
    environment: dict[str, str]

    def activate(self) -> None:
        """Set the variables in this process, where PyFoam and the applications read them."""
        os.environ.update(self.environment)


def find_openfoam(applications: Iterable[str] = ("checkMesh", "gmshToFoam")) -> OpenFoam:
    """Find the installation on this machine; MissingSolverError says how to get one."""
    for application in applications:
        if shutil.which(application) is None:
            raise MissingSolverError(f"OpenFOAM's {application} is not on PATH: {INSTALL_HINT}")
    project = Path(os.environ.get("WM_PROJECT_DIR", DEBIAN_PROJECT_DIR))
    if not (project / "etc" / "controlDict").is_file():
        raise MissingSolverError(
            f"OpenFOAM's etc/controlDict is not under {project} (WM_PROJECT_DIR): {INSTALL_HINT}"
        )
    version = os.environ.get("WM_PROJECT_VERSION") or _version_of(project)
    return OpenFoam(
        version,
        {
            "WM_PROJECT_DIR": str(project),
            "WM_PROJECT_VERSION": version,
            "FOAM_ETC": str(project / "etc"),
            # Cases are the unit of parallelism: a threaded BLAS inside each would only
            # oversubscribe the cores.
            "OMP_NUM_THREADS": "1",
        },
    )


def _version_of(project: Path) -> str:
    """Return the release of an installation that was not sourced, with PyFoam's leading v."""
    for source in (project / "etc" / "bashrc", project / "META-INFO" / "api-info"):
        if source.is_file():
            found = re.search(
                r"(?:WM_PROJECT_VERSION=v?|api=)(\d{4})", source.read_text(errors="replace")
            )
            if found:
                return f"v{found[1]}"
    raise InputError(
        f"the OpenFOAM version of {project} cannot be told:"
        " set WM_PROJECT_VERSION (for example v1912)"
    )
