"""Name components, units and numbers in reports, in the same words everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from courant.evaluation.metrics import ALL
from courant.evaluation.record import DMD, PERSISTENCE, POD_GP, POD_RBF, Evaluation, Split

if TYPE_CHECKING:
    from courant.data.normalisation import Channel, Normaliser

#: Units of dimensionless numbers.
_PURE = ("", "1", "-")
_SEEN: dict[Split, str] = {
    "train": "which the model was trained on",
    "validation": "which the weights were chosen by",
    "test": "never seen in training",
}


def with_unit(name: str, unit: str) -> str:
    """`speed (m/s)`; the name alone where the unit is that of a plain number."""
    return name if unit in _PURE else f"{name} ({unit})"


def component_name(name: str) -> str:
    """`velocity x` for `velocity.x`, `all components` for all."""
    return "all components" if name == ALL else name.replace("_", " ").replace(".", " ")


def plain(name: str) -> str:
    """`mean drag` for `mean_drag`"""
    return name.replace("_", " ")


def channel_label(channel: Channel) -> str:
    """`velocity x (m/s)`"""
    return with_unit(component_name(channel.name), channel.unit)


def count(number: int, noun: str) -> str:
    """`1 case`, `2 cases`"""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def number(value: object) -> str:
    """Format three digits of a number; a missing one is empty."""
    if isinstance(value, float | int):
        return f"{value:.3g}"
    return "" if value is None else str(value)


def listed(words: Sequence[str]) -> str:
    """`a, b and c`"""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def reference(name: str) -> str:
    """`the training mean`, `persistence`"""
    return name if name in (PERSISTENCE, DMD, POD_GP, POD_RBF) else f"the {name}"


def known_parts(normaliser: Normaliser) -> list[str]:
    """List `geometry`, `boundary conditions`, and what else is known of a steady case."""
    parts = {
        "geometry": True,
        "boundary conditions": normaliser.has_boundary,
        "design parameters": bool(normaliser.parameters),
    }
    given = dict.fromkeys(component_name(channel.field) for channel in normaliser.given)
    return [*(name for name, is_there in parts.items() if is_there), *given]


def of_split(split: Split) -> str:
    """`of the test split, never seen in training`"""
    return f"of the {split} split, {_SEEN[split]}"


def windows(evaluation: Evaluation) -> str:
    """`12 windows of 2 test cases, one beginning every 10 s`"""
    cases = count(len(evaluation.cases), f"{evaluation.split} case")
    if evaluation.step_s is None:
        return cases
    begun = f"one beginning every {evaluation.step_s:g} s"
    return f"{count(evaluation.num_windows, 'window')} of {cases}, {begun}"
