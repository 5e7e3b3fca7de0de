"""A plugin of pytest: what failed is told when it fails, and what still runs when it is stopped.

Whoever gives up on a run that takes too long reads there which test it was.
"""

import signal
import time
from types import FrameType

import pytest
from _pytest.terminal import TerminalReporter

#: Lines of a failure that are told at once; the end of the run shows all of it.
LINES = 40


class ToldByName:
    """Of the process that the user started; the workers run the tests."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._running: dict[str, float] = {}
        signal.signal(signal.SIGTERM, self._stop)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._running[nodeid] = time.monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._running.pop(nodeid, None)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            end = report.longreprtext.splitlines()[-LINES:]
            self._tell(f"FAILED {report.nodeid} ({report.when})", *end)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        self._tell(
            "stopped by SIGTERM; still running:",
            *(f"  {name} for {now - began:.0f} s" for name, began in self._running.items()),
        )
        raise KeyboardInterrupt

    def _tell(self, *lines: str) -> None:
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if isinstance(reporter, TerminalReporter):
            reporter.write_line("")
            for line in lines:
                reporter.write_line(line)
            reporter.flush()
