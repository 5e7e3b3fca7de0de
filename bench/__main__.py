"""`make bench`: every benchmark of this folder, one after another; tables on the screen, JSON under
bench-out/.

A benchmark is a module `bench_<name>.py` with `main(out: Path, short: bool) -> None`. They run in
processes of their own, so that one's memory and threads do not weigh on the next one's figures.
Name some to run only those; `--short` takes the small sizes that show that it works.
"""

import subprocess
import sys
from pathlib import Path

from bench.report import choose_modules


def main() -> int:
    chosen = choose_modules(Path(__file__).parent, "bench", "bench-out", __doc__)
    failed = []
    for name in chosen.names:
        print(f"== {name} ==", flush=True)
        call = (
            f"from pathlib import Path; from bench.bench_{name} import main;"
            f" main(Path({str(chosen.out)!r}), {chosen.short})"
        )
        if subprocess.run([sys.executable, "-c", call]).returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
