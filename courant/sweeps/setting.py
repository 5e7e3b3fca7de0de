"""Format a setting, a value for each key of a search space, for tables and figures."""

from __future__ import annotations

Value = bool | int | float | str | None
Setting = dict[str, Value]
"""Such as {"model.num_anchors": 16}; the key `choice` holds the name of a choice."""

CHOICE = "choice"
BASELINE = "baseline"
"""The choice that changes nothing."""


def label(key: str) -> str:
    """Return the name of a key's column: `num_anchors` for `model.num_anchors`."""
    return key.rpartition(".")[2]


def describe(setting: Setting) -> str:
    """`num_anchors 16, num_levels 3`"""
    return ", ".join(f"{label(key)} {show(value)}" for key, value in setting.items())


def show(value: Value) -> str:
    """Format a value for figures and tables."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def as_number(value: object) -> object:
    """Parse numbers that YAML takes for words, such as 1e-4 without a point."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value
