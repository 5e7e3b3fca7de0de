"""`make validate`: every study of this folder; tables on the screen, JSON and figures under
validation-out/.

A study is a module `study_<name>.py` with `main(out: Path, short: bool) -> None`. Name some to run
only those; `--short` takes small sizes that show that they work. Solved cases are kept under
OUT/cases: a study that was cut off goes on. What a study NEEDS lies in OUT/<name>; without it the
study is skipped.
"""

import importlib
import sys
from pathlib import Path

from bench.report import choose_modules
from simgen.errors import SimgenError
from simgen.foam.run import find_openfoam


def main() -> int:
    chosen = choose_modules(Path(__file__).parent, "study", "validation-out", __doc__)
    try:
        find_openfoam()
        for name in chosen.names:
            print(f"== {name} ==", flush=True)
            study = importlib.import_module(f"bench.validation.study_{name}")
            needed = getattr(study, "NEEDS", None)
            if needed and not (chosen.out / name).is_dir():
                print(f"skipped: {needed} in {chosen.out / name}")
            else:
                study.main(chosen.out, chosen.short)
    except SimgenError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
