"""The command line that benchmarks and validation studies share: which modules of a folder to run,
where to, on how many cores.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Chosen:
    """Names of modules without their prefix, the folder for what they write (it exists), and
    whether sizes are small.
    """

    names: list[str]
    out: Path
    short: bool


def choose_modules(folder: Path, prefix: str, out: str, description: str | None) -> Chosen:
    """Parse this process's arguments against the modules `<prefix>_<name>.py` of the folder; ends
    the process where they are wrong.
    """
    known = sorted(path.stem.removeprefix(f"{prefix}_") for path in folder.glob(f"{prefix}_*.py"))
    program = ".".join(folder.relative_to(Path(__file__).parents[1]).parts)
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=description)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(known)}; default all")
    parser.add_argument("--out", type=Path, default=Path(out), help="folder for what is written")
    parser.add_argument("--short", action="store_true", help="small sizes")
    parser.add_argument(
        "--cores", type=int, help="use so many of this machine's cores; default all"
    )
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(known))
    if unknown:
        parser.error(
            f"no module {prefix}_{unknown[0]} in {folder.name}/; there are {', '.join(known)}"
        )
    usable = sorted(os.sched_getaffinity(0))
    if arguments.cores is not None:
        if not 1 <= arguments.cores <= len(usable):
            parser.error(f"--cores {arguments.cores}: this machine gives 1 to {len(usable)}")
        os.sched_setaffinity(0, usable[-arguments.cores :])
    arguments.out.mkdir(parents=True, exist_ok=True)
    return Chosen(arguments.names or known, arguments.out.absolute(), arguments.short)
