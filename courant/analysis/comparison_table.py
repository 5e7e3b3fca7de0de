"""Hold the scores of several runs as one table, with each family's controls beside its rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from courant.analysis.decomposition.scores import SCORES
from courant.evaluation.interval import Interval


@dataclass(frozen=True)
class Row:
    """Runs that differ in their seed alone."""

    label: str
    runs: tuple[str, ...]
    scores: dict[str, Interval]
    """Mean over runs with its interval; of a single run without"""
    family: str = ""


@dataclass(frozen=True)
class Comparison:
    """Rows by family, in the order in which their first runs were named."""

    rows: tuple[Row, ...]
    controls: tuple[Row, ...] = ()
    """Of each family, the mean over its runs; the label names the control"""

    @property
    def families(self) -> list[str]:
        return list(dict.fromkeys(row.family for row in self.rows))

    @property
    def columns(self) -> list[Row]:
        """List each family's rows, and after them its controls."""
        every = [*self.rows, *self.controls]
        return [row for family in self.families for row in every if row.family == family]

    def of_family(self, family: str) -> Comparison:
        """Return the rows and controls of one family."""
        rows, controls = (
            tuple(row for row in each if row.family == family)
            for each in (self.rows, self.controls)
        )
        return Comparison(rows, controls)

    def heading(self, row: Row) -> str:
        """`baseline (3)`, of several families `cylinder-flow: baseline (3)`."""
        family = f"{row.family}: " if len(self.families) > 1 else ""
        return f"{family}{row.label}" + ("" if row in self.controls else f" ({len(row.runs)})")

    @property
    def keys(self) -> list[str]:
        """List the scores that any row has, in the order of all scores."""
        return [each.key for each in SCORES if any(each.key in row.scores for row in self.rows)]

    def to_json(self) -> dict[str, Any]:
        """Return means and half-widths of the intervals, by row and score."""
        return {
            "definitions": {each.key: vars(each) for each in SCORES if each.key in self.keys},
            "rows": [_row_json(row) for row in self.rows],
            "controls": [_row_json(row) for row in self.controls],
        }

    def to_csv(self) -> str:
        """Return one line for each row and score."""
        lines = ["family,row,score,mean,half_width,runs"]
        for row in self.columns:
            for key, each in row.scores.items():
                width = "" if each.half_width is None else f"{each.half_width:.6g}"
                lines.append(
                    f'{row.family},"{row.label}",{key},{each.mean:.6g},{width},{each.count}'
                )
        return "\n".join(lines) + "\n"

    def to_markdown(self) -> str:
        """Return a table with one line for each score."""
        names = {each.key: each for each in SCORES}
        columns = self.columns
        head = ["score", *(self.heading(row) for row in columns), "good is"]
        lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * len(columns) + " --- |"]
        for key in self.keys:
            cells = [row.scores[key].text() if key in row.scores else "" for row in columns]
            lines.append("| " + " | ".join([names[key].name, *cells, names[key].aim_text]) + " |")
        return "\n".join(lines) + "\n"


def _row_json(row: Row) -> dict[str, Any]:
    return {
        "family": row.family,
        "label": row.label,
        "runs": list(row.runs),
        "scores": {
            key: {"mean": each.mean, "half_width": each.half_width, "runs": each.count}
            for key, each in row.scores.items()
        },
    }
