"""Read from a refused commit that this machine's clock is wrong.

Icechunk orders snapshots by the clocks of those who commit. It takes none that is older than its
parent, and none that is minutes away from the store's own time. The clocks of two machines differ
by fractions of a second, so that the first passes by itself.
"""

from __future__ import annotations

import re
from datetime import datetime

import icechunk

#: How far the clock may be behind the newest commit for the next one to wait.
TOLERANCE_S = 30.0

_EARLIER = re.compile(r"snapshot timestamp ordering. parent: `(.+?) UTC`, child: `(.+?) UTC`")
_DRIFTED = re.compile(r"object store clock: `([-\d]+ [:\d]+)")
_LOCAL = re.compile(r"local clock: `([-\d]+ [:\d]+)")


def seconds_behind(error: BaseException) -> float | None:
    """Return how far this machine's clock is behind the newest commit; None for other errors."""
    refused = _EARLIER.search(str(error)) if isinstance(error, icechunk.IcechunkError) else None
    if refused is None:
        return None
    newest, ours = map(datetime.fromisoformat, refused.groups())
    return (newest - ours).total_seconds()


def explain_clock(url: str, error: BaseException) -> str | None:
    """Explain in one line that a commit was refused for its time; None for other errors."""
    wrong = _wrong_by(error)
    return wrong and (
        f"store {url} cannot be written: this machine's clock is {wrong}; set the clock right and"
        " run again, what was committed stays"
    )


def _wrong_by(error: BaseException) -> str | None:
    behind = seconds_behind(error)
    if behind is not None:
        return f"{behind:.0f} s behind that of the newest commit"
    theirs, ours = _DRIFTED.search(str(error)), _LOCAL.search(str(error))
    if theirs is None or ours is None:
        return None
    there, here = (datetime.fromisoformat(found[1]) for found in (theirs, ours))
    seconds = (here - there).total_seconds()
    return f"{abs(seconds):.0f} s {'ahead of' if seconds > 0 else 'behind'} the store's"
