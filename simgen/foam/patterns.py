"""Match names against the patterns that OpenFOAM's dictionaries may have as keys.

RE2 needs time that is linear in the length of both, whatever the pattern; Python's `re` never comes
back from `"(a+)+b"`. Both POSIX classes, such as `[[:alpha:]]`, and `(?i)` are known to it.
"""

from __future__ import annotations

from simgen.errors import CaseError


def matches(pattern: str, name: str) -> bool:
    """Return whether a pattern, without its quotes, matches all of a name.

    CaseError where the pattern is wrong, too large or refers back to a group.
    """
    import re2  # families without patterns are used on machines that lack it

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.fullmatch(pattern, name, options=options) is not None
    except re2.error as error:
        reason = error.args[0].decode(errors="replace")
        raise CaseError(f'the pattern "{pattern[:60]}" cannot be used: {reason[:60]}') from error
