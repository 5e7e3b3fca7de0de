"""Start the `courant` command, which handles Ctrl-C before anything else is imported."""

import os
import sys

from flows.ending import INTERRUPTED_CODE, answer_interrupts, exit_code
from flows.settings import keep_loopback_direct


def main() -> None:
    """Run the command line and end with its exit code."""
    answer_interrupts()
    keep_loopback_direct()
    # Threads of torch that spin while they wait cost twice the time where others use the cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        from flows.cli.app import app

        app()
        code = 0
    except KeyboardInterrupt:
        code = INTERRUPTED_CODE
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
    sys.exit(exit_code(code))


if __name__ == "__main__":
    main()
