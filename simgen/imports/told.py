"""Make foreign values safe to show in one line of a message."""

from __future__ import annotations

MOST_SHOWN, MOST_TOLD = 60, 300


def shown(value: object) -> str:
    """Show the value in a few printable characters on one line."""
    return " ".join(ascii(value).split())[:MOST_SHOWN]


def as_utf8(text: str) -> str:
    """Replace what UTF-8 cannot hold, as names of files may have: no store takes it."""
    return text.encode(errors="replace").decode()


def told(error: Exception) -> str:
    """Show an error's text on one line without control characters."""
    printable = (each if each.isprintable() else " " for each in str(error))
    return " ".join("".join(printable).split())[:MOST_TOLD]
