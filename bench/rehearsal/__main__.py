"""`make rehearse`: the cluster's shape on one machine, a whole job on it, and what it has left.

    python -m bench.rehearsal                 ends with a table of what was checked
    python -m bench.rehearsal --keep FOLDER   keeps logs and databases there

Needs root and Debian's postgresql beside what `make setup` installs. Whatever it starts it ends, by
process ids, also after Ctrl-C. Exit code 1 where something was not as it should be, with one line.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from bench.chaos.schedule import KINDS, unavailable
from bench.rehearsal.cluster import (
    RehearsalError,
    Steps,
    check,
    ending_all,
    living,
    rehearse,
    start_cluster,
)
from bench.report import show
from simgen.errors import SimgenError
from simgen.foam.run import find_openfoam

screen = Console(highlight=False)


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="make rehearse", description=__doc__.split("\n")[0])
    parser.add_argument("--keep", type=Path, help="folder for logs and databases, kept")
    kept: Path | None = parser.parse_args().keep
    steps = Steps(screen)
    try:
        # What this machine lacks is an error before anything is started.
        find_openfoam(("icoFoam", "gmshToFoam", "checkMesh"))
        missing = unavailable(KINDS["PostgreSQL restarted"])
        check(missing is None, f"this {missing}: apt-get install postgresql, as root")
        is_new = kept is None or not kept.exists() or not any(kept.iterdir())
        check(is_new, f"{kept} is not empty: give --keep a new folder")
        # PostgreSQL's user enters it, and the paths of Ray's sockets are short.
        folder = kept.absolute() if kept else Path(tempfile.mkdtemp(prefix="rehearse-", dir="/tmp"))
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)
        try:
            with ending_all(), contextlib.ExitStack() as until:
                rehearse(start_cluster(folder, steps, until), folder, steps)
            check(not living(), f"still running: {sorted(living())}")
        finally:
            if not kept:
                shutil.rmtree(folder, ignore_errors=True)
    except KeyboardInterrupt:
        screen.print("interrupted; everything that was started has ended")
        return 130
    except (RehearsalError, SimgenError, RuntimeError, AssertionError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        hint = "" if kept else " (--keep FOLDER keeps the logs)"
        screen.print(f"[red]error:[/red] {lines[0]}{hint}", soft_wrap=True)
        return 1
    show([{"checked": e.what, "found": e.found, "seconds": round(e.seconds)} for e in steps.done])
    print(f"together {sum(each.seconds for each in steps.done) / 60:.1f} min")
    return 0


if __name__ == "__main__":
    sys.exit(main())
