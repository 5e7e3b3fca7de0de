"""`make validate`: every study of this folder; tables on the screen, JSON and figures under validation-out/.

A study is a module `study_<name>.py` with `main(out: Path, short: bool) -> None`. Name some to run only those; `--short` takes
small sizes that show that they work. Solved cases are kept under OUT/cases: a study that was cut off goes on.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from pathlib import Path

from simgen.errors import SimgenError
from simgen.foam.environment import find_openfoam

FOLDER = Path(__file__).parent


def main() -> int:
    known = sorted(path.stem.removeprefix("study_") for path in FOLDER.glob("study_*.py"))
    parser = argparse.ArgumentParser(prog="python -m tests.validation", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(known)}; default all")
    parser.add_argument("--out", type=Path, default=Path("validation-out"), help="folder for JSON files and figures")
    parser.add_argument("--short", action="store_true", help="small sizes")
    parser.add_argument("--cores", type=int, help="run on so many of this machine's cores; default all")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(known))
    if unknown:
        parser.error(f"no study called {', '.join(unknown)}; there are {', '.join(known)}")
    if arguments.cores:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-arguments.cores :])
    arguments.out.mkdir(parents=True, exist_ok=True)
    try:
        find_openfoam().activate()
        for name in arguments.names or known:
            print(f"== {name} ==", flush=True)
            importlib.import_module(f"tests.validation.study_{name}").main(arguments.out.absolute(), arguments.short)
    except SimgenError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
