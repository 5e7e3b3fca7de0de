"""How many trials a fuzzed test makes: few beside all other tests, more by `make nightly`."""

import os

#: COURANT_TEST_TRIALS multiplies the trials of every fuzzed test.
_TIMES = int(os.environ.get("COURANT_TEST_TRIALS", "1"))


def trials(few: int) -> int:
    """The number for this run of the tests."""
    return few * _TIMES
