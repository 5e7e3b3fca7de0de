"""Render the text of a dataset card: `templates/card.md.j2` with the figures of a version.

Names, units, reasons and messages may be a stranger's. Whatever the template inserts is plain text
in Markdown, one line long, unless it was marked as code here.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import jinja2
import pandas
from markupsafe import Markup

from simgen.case import Field
from simgen.publish.remake import how_to_make
from simgen.store.read import Dataset
from simgen.store.schema import Schema
from simgen.store.split import RATIOS, counts_of
from simgen.store.verify import stored_bytes

Rows = list[tuple[Any, ...]]


def card_text(dataset: Dataset, physics: tuple[str, str], license: str) -> str:
    """Render the whole card, below its mark; `physics` is a title and a description."""
    title, description = physics
    table, schema = dataset.design, dataset.schema
    refused = table[table["status"] != "accepted"]
    reasons = Counter(zip(refused["status"], refused["reason"], strict=True)).most_common(10)
    return _template().render(
        dataset=dataset,
        shown=shown_field(dataset),
        schema=schema,
        title=title,
        description=description,
        summary=_summary(dataset),
        facts=_facts(dataset, license),
        parameters=[
            (_code(each.name), each.unit, f"{each.low:g} to {each.high:g}", each.description)
            for each in schema.parameters
        ],
        splits=[
            (split, count, _aim(schema, split)) for split, count in counts_of(dataset.cases).items()
        ],
        statuses=list(table["status"].value_counts().items()),
        refused=[(status, reason, count) for (status, reason), count in reasons],
        arrays=_arrays(dataset),
        statistics=_statistics(dataset),
        left_out=left_out(dataset),
        quantities=_quantities(dataset),
        sobol=_sobol(dataset),
        sizes=_sizes(dataset),
        bytes_of_fields=size_text(table["num_bytes"].sum()),
        bytes_on_disk=size_text(stored_bytes(dataset, dataset.cases())),
        gates=[
            (gate["name"], f"{gate['limit']} {gate['unit']}".strip()) for gate in dataset[0].gates
        ],
        solver=dataset[0].provenance.get("solver", "an unknown solver"),
        duration=duration_text(float(table["wall_time_s"].sum())),
        hosts=_hosts(dataset),
        settings=", ".join(f"{name} {value:g}" for name, value in dataset[0].settings.items()),
        commands=_block(" && \\\n    ".join(how_to_make(dataset))),
        source_revision=str(dataset.info.metadata.get("source_revision", "")),
    )


def shown_field(dataset: Dataset) -> Field:
    """Choose the field that pictures are of: the first solved one."""
    return dataset.schema.of_role("solved")[0]


def _aim(schema: Schema, split: str) -> str:
    if schema.splits == "published":
        return "as published"
    return f"{RATIOS[split]:.0%}" if split in RATIOS else "as asked for"


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("simgen.publish"),
        undefined=jinja2.StrictUndefined,
        autoescape=True,  # what is no Markup goes through `finalize`
        finalize=_text,
        keep_trailing_newline=True,
    )
    environment.filters |= {"text": _text, "code": _block}
    return environment.get_template("card.md.j2")


def _text(value: object) -> Markup:
    """Escape what Markdown would take for structure: links, pictures, code, cells, tags, lines."""
    if isinstance(value, Markup):
        return value
    return Markup(re.sub(r"[\\`|\[]|<(?=[A-Za-z/!?])", r"\\\g<0>", _one_line(str(value))))


def _code(name: str) -> Markup:
    """Return a name as code inside of a line, or of a cell."""
    return Markup("`" + _one_line(name).replace("`", "'").replace("|", "\\|") + "`")


def _block(text: str) -> Markup:
    """Return text for a block of code, which it cannot end."""
    return Markup("\n".join(map(_one_line, text.replace("`", "'").split("\n"))))


def _one_line(text: str) -> str:
    return "".join(each if each.isprintable() else " " for each in text)


def _summary(dataset: Dataset) -> str:
    table, transient = dataset.design, dataset.schema.transient
    snapshots = f", {_range(table['num_snapshots'].dropna())} snapshots" if transient else ""
    return (
        f"{len(dataset)} {'transient' if transient else 'steady'} simulations ({dataset.splits}) on"
        f" point clouds of {_range(table['num_points'].dropna())} points each{snapshots}."
    )


def _facts(dataset: Dataset, license: str) -> Rows:
    info, metadata = dataset.info, dataset.info.metadata
    published = f"{info.time:%Y-%m-%d %H:%M} UTC by {info.author or 'unknown'}: {info.message}"
    release = metadata.get("generator_version", "unknown")
    revision = metadata.get("source_revision", "unknown")
    solver, source = ", ".join(metadata.get("solver_versions", [])), dataset.schema.source
    return [
        ("licence", license or (source.licence if source else "") or "not stated"),
        ("published", published),
        ("snapshot", _code(info.snapshot_id)),
        ("generator", f"{release}, source revision {revision}"),
        ("source", f"{source.name}, {source.url}") if source else ("solver", solver or "unknown"),
    ]


def _arrays(dataset: Dataset) -> Rows:
    schema = dataset.schema
    frames = "T, " if schema.transient else ""
    volume = "m3" if schema.dimension == 3 or schema.source else "m3, of a slab one cell thick"
    kinds = len(schema.measured_kinds)
    distance = [
        (_code("distance"), "m", ", ".join(schema.measured_kinds), f"(N, {kinds})"),
        (_code("direction"), "", "unit vector to the nearest face of each", f"(N, {kinds}, 3)"),
    ]
    return [
        (_code("points"), "m", "x, y, z", "(N, 3)"),
        *([(_code("volumes"), volume, "", "(N,)")] if schema.volumes else []),
        *([(_code("time"), "s", "", "(T,)")] if schema.transient else []),
        *(
            (
                Markup(f"{_code(field.name)}{' (given)' if field.role == 'given' else ''}"),
                field.unit,
                ", ".join(field.components),
                f"({frames}N, {len(field.components)})",
            )
            for field in schema.fields
        ),
        *(distance if kinds else []),
    ]


def _statistics(dataset: Dataset) -> Rows:
    return [
        (
            Markup(f"{_code(field.name)} {_text(component)}")
            if len(field.components) > 1
            else _code(field.name),
            field.unit,
            *(
                f"{dataset.statistics[field.name][figure][number]:.4g}"
                for figure in ("mean", "std", "min", "max")
            ),
        )
        for field in dataset.schema.fields
        for number, component in enumerate(field.components)
    ]


def left_out(dataset: Dataset) -> list[str]:
    """Tell by field what its statistics leave out besides the start-up; empty where nothing."""
    told = []
    for field in dataset.schema.fields:
        of = dataset.left_out(field.name)
        parts = []
        if of.snapshots:
            parts.append(f"{_counted(of.snapshots, 'snapshot')} of {_counted(of.of_cases, 'case')}")
        if parts:
            told.append(f"{field.name}, {' and '.join(parts)}")
    if cases := dataset.left_out_cases:
        told.append(f"the whole of {', '.join(cases)}, in training and validation too")
    return told


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _quantities(dataset: Dataset) -> Rows:
    from simgen.publish.sensitivity import shown_quantities  # imports much of scipy

    of_training = dataset.quantity_statistics
    return [
        (
            _code(each.name),
            each.unit,
            *(f"{of_training[each.name][name]:.4g}" for name in ("mean", "std", "min", "max")),
            each.meaning,
        )
        for each in shown_quantities(dataset)
    ]


def _sobol(dataset: Dataset) -> Rows:
    """List first and total index by parameter, of the quantities that designs explain."""
    from simgen.publish.sensitivity import sensitivities

    return [
        (
            _code(name),
            *(
                f"{first:.2f}, {total:.2f}"
                for first, total in zip(found.first, found.total, strict=True)
            ),
            f"{found.fit:.2f}",
        )
        for name, found in sensitivities(dataset).items()
        if found is not None
    ]


def _sizes(dataset: Dataset) -> Rows:
    table = dataset.design
    asked: list[tuple[str, pandas.Series, int]] = [("points of a case", table["num_points"], 0)]
    if dataset.schema.transient:
        asked.append(("snapshots", table["num_snapshots"], 0))
    asked.append(("MB of its fields", table["num_bytes"] / 1e6, 1))
    return [
        (name, _range(values.dropna(), digits), f"{values.median():.{digits}f}")
        for name, values, digits in asked
    ]


def _hosts(dataset: Dataset) -> str:
    first = [dataset[position].provenance for position in range(min(5, len(dataset)))]
    return " and ".join(sorted({str(each.get("host_class", "unknown")) for each in first}))


def size_text(num_bytes: float) -> str:
    """Write bytes in the unit that suits them."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= scale:
            return f"{num_bytes / scale:.3g} {unit}"
    return f"{num_bytes:.0f} B"


def duration_text(seconds: float) -> str:
    """Write a duration in the unit that suits it."""
    for unit, scale in (("h", 3600.0), ("min", 60.0)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds:.3g} s"


def _range(values: pandas.Series, digits: int = 0) -> str:
    low, high = (f"{value:,.{digits}f}" for value in (values.min(), values.max()))
    return low if low == high else f"{low} to {high}"
