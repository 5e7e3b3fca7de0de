"""Entry point of the `courant` command, which answers Ctrl-C before anything else is imported."""

from __future__ import annotations

import sys

from flows.ending import INTERRUPTED_CODE, answer_interrupts, finish


def main() -> None:
    """Run the command line and end with its exit code."""
    answer_interrupts()
    try:
        from flows.cli import app

        app()
        code = 0
    except KeyboardInterrupt:
        code = INTERRUPTED_CODE
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
    sys.exit(finish(code))


if __name__ == "__main__":
    main()
