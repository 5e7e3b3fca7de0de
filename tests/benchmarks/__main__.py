"""`make bench`: every benchmark of this folder, one after another; tables on the screen, JSON under bench-out/.

A benchmark is a module `bench_<name>.py` with `main(out: Path, short: bool) -> None`. They run in processes of their own, so
that one's memory and threads do not weigh on the next one's figures. Name some to run only those; `--short` takes
the small sizes that show that it works.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def main() -> int:
    known = sorted(path.stem.removeprefix("bench_") for path in FOLDER.glob("bench_*.py"))
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(known)}; default all")
    parser.add_argument("--out", type=Path, default=Path("bench-out"), help="folder for the JSON files")
    parser.add_argument("--short", action="store_true", help="small sizes")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(known))
    if unknown:
        parser.error(f"no benchmark called {', '.join(unknown)}; there are {', '.join(known)}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    failed = []
    for name in arguments.names or known:
        print(f"== {name} ==", flush=True)
        call = f"from pathlib import Path; from tests.benchmarks.bench_{name} import main; main(Path({str(arguments.out)!r}), {arguments.short})"
        if subprocess.run([sys.executable, "-c", call]).returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
