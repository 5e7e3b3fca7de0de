"""Write a benchmark's results: Markdown, CSV, JSON and the figure."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

import pandas

from courant.benchmark.figure import draw
from courant.benchmark.markdown import FIGURE, markdown
from courant.benchmark.rows import Row, Table
from courant.benchmark.verdict import verdict
from courant.evaluation.interval import Interval

MARKDOWN, CSV, JSON = "table.md", "table.csv", "table.json"


def write_results(table: Table) -> str:
    """Write the table in all its forms into the benchmark's folder; return the page's URL."""
    folder = table.request.folder
    folder.write_bytes(FIGURE, draw(table))
    folder.write_bytes(CSV, _csv(table).encode())
    folder.write_json(JSON, _json(table))
    folder.write_bytes(MARKDOWN, markdown(table).encode())
    return f"{folder.url}/{MARKDOWN}"


def _csv(table: Table) -> str:
    """Return one line for each model and reference, with all of their numbers."""
    # As objects: a column of numbers with gaps would turn its whole numbers into floats.
    lines = pandas.DataFrame([_flat(row) for row in table.rows], dtype=object)
    return str(lines.to_csv(index=False))


def _flat(row: Row) -> dict[str, Any]:
    flat: dict[str, Any] = {
        "name": row.name,
        "reference": row.is_reference,
        "parameters": row.parameters,
        "learning_rate": row.rate,
        "rate_at_edge": row.rate_at_edge,
        "epochs": row.epochs,
        "paper_nmae": row.paper_nmae,
        "failed": "; ".join(row.failures),
    }
    if row.errors is not None:
        flat |= _spread("nmae", row.errors.nmae) | _spread("median case", row.errors.typical)
        flat |= _spread("rae", row.errors.rae) | _spread("relative_l2", row.errors.relative_l2)
        flat |= _spread("largest_error", row.errors.maximum) | {"seeds": row.errors.nmae.count}
        for name, (nmae, rae, relative) in row.errors.components.items():
            flat |= _spread(f"nmae {name}", nmae) | _spread(f"rae {name}", rae)
            flat |= _spread(f"relative_l2 {name}", relative)
        for step, (nmae, relative) in enumerate(row.errors.steps, start=1):
            flat |= _spread(f"nmae step {step}", nmae)
            flat |= _spread(f"relative_l2 step {step}", relative)
    if row.cost is not None:
        flat |= _spread("training_processor_s", row.cost.training_s)
        flat |= {"search_processor_s": row.cost.search_s, "memory_gb": row.cost.memory_gb}
        flat |= {"training_wall_s": row.cost.wall_s.mean}
        flat |= {f"prediction_s {num}": value for num, value in row.cost.prediction_s.items()}
    even = row.ledger.break_even if row.ledger else None
    if even is not None:
        flat |= {"break_even": even.expected, "break_even_low": even.low}
        flat |= {"break_even_high": even.high}
    return flat


def _spread(name: str, interval: Interval) -> dict[str, float | None]:
    return {name: interval.mean, f"{name} ±": interval.half_width}


def _json(table: Table) -> dict[str, Any]:
    """Return everything that the page says, in numbers; infinite ones are null."""
    request = table.request
    rows = []
    for row in table.rows:
        content = asdict(row)
        even = row.ledger.break_even if row.ledger else None
        rows.append({**content, "break_even": asdict(even) if even else None})
    content = {
        "dataset": request.dataset_url,
        "version": request.version,
        "snapshot": request.snapshot_id,
        "recipe": request.base.name,
        "budget": request.budget.text,
        "rates": list(request.rates),
        "cases": table.num_cases,
        "verdict": verdict(table),
        "paper": table.paper.words,
        "rows": rows,
        "quantities": [asdict(each) for each in table.quantities],
        "nulls": [asdict(each) for each in table.nulls],
    }
    return json.loads(json.dumps(_finite(content)))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
