"""Print versions, differences, findings and cases as tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Column, Table

from flows.terminal import counted, print_line, print_markup, screen

if TYPE_CHECKING:
    from simgen.store.read import Dataset, StoredCase
    from simgen.store.verify import Difference, Verification, VersionSize
    from simgen.store.versions import Garbage

GIVEN = " (given)"
#: Least widths of columns: an id, `calibration`, and cells or seconds.
CASE_WIDTH, SPLIT_WIDTH, NUMBER_WIDTH = 12, 11, 5
#: Cases that a difference names before it only counts.
MAX_NAMED = 8


def print_dataset(dataset: Dataset) -> None:
    """Print a version: fields with statistics, all cases, and the command that makes it again."""
    from simgen.publish.card import how_to_make, left_out

    print_markup(
        f"[bold]{escape(f'{dataset.schema.family} {dataset.version}')}[/bold]"
        f"  {escape(dataset.url)}  snapshot {dataset.snapshot_id}"
    )
    print_line(f"{counted(len(dataset), 'accepted case')}: {dataset.splits}")
    names = [
        f"{each.name}{GIVEN if each.role == 'given' else ''}" for each in dataset.schema.fields
    ]
    fields = _table(
        Column("field", min_width=max(map(len, names))), "unit", "", "mean", "std", "min", "max"
    )
    for field, name in zip(dataset.schema.fields, names, strict=True):
        measured = dataset.statistics[field.name]
        titles = [name, *[""] * (len(field.components) - 1)]
        for number, (title, component) in enumerate(zip(titles, field.components, strict=True)):
            values = [f"{measured[each][number]:.3g}" for each in ("mean", "std", "min", "max")]
            _add(fields, title, field.unit if title else "", component, *values)
    screen.print(fields, "")
    for each in left_out(dataset):
        print_line(f"left out of these statistics, with nearly all of the variance: {each}")
    _print_quantities(dataset)
    screen.print(_cases(dataset), "")
    source = dataset.schema.source
    if source is not None:
        print_markup(f"imported from {escape(f'{source.name}, {source.url}, {source.licence}')}")
        return
    if commands := how_to_make(dataset):
        print_markup(f"make it again:\n  {escape(' && '.join(commands))}")


def _print_quantities(dataset: Dataset) -> None:
    """Print the training statistics of the quantities of interest, if the version has any."""
    if not dataset.schema.quantities:
        return
    table = _table("quantity", "unit", "mean", "std", "min", "max", "")
    for each in dataset.schema.quantities:
        measured = dataset.quantity_statistics[each.name]
        numbers = [f"{measured[name]:.3g}" for name in ("mean", "std", "min", "max")]
        _add(table, each.name, each.unit, *numbers, each.meaning)
    screen.print(table, "")


def print_case(case: StoredCase) -> None:
    """Print everything known of a case, except its arrays."""
    print_markup(f"[bold]{escape(case.id)}[/bold]  {escape(f'{case.status}  {case.reason}')}")
    for name, value in {**case.parameters, **case.settings}.items():
        print_line(f"  {name} = {value:g}")
    gates = _table("gate", "value", "limit", "passed")
    for gate in case.gates:
        _add(
            gates,
            gate["name"],
            f"{gate['value']} {gate['unit']}".strip(),
            gate["limit"],
            "yes" if gate["passed"] else "NO",
        )
    screen.print(gates)
    provenance = {name: value for name, value in case.provenance.items() if name != "residuals"}
    screen.print_json(json.dumps(provenance))
    if case.log_tail:
        screen.print(case.log_tail, markup=False, highlight=False)


def print_versions(lines: Sequence[VersionSize]) -> None:
    """Print a line per version, then the runs that made them."""
    from simgen.publish.card import run_command, size_text

    table = _table(
        "version",
        "published",
        "author",
        "cases",
        "new",
        "fields",
        "new on disk",
        Column("message", overflow="fold"),
    )
    for line in lines:
        _add(
            table,
            line.info.name,
            f"{line.info.time:%Y-%m-%d %H:%M}",
            line.info.author,
            str(line.num_cases),
            str(line.num_new),
            size_text(line.num_bytes),
            size_text(line.num_bytes_new),
            line.info.message,
        )
    screen.print(table)
    for line in lines:
        if command := run_command(line.info):
            print_markup(f"{line.info.name}  {escape(command)}")


def print_difference(found: Difference) -> None:
    """Print what changed, one line a kind."""
    from simgen.publish.card import size_text

    if found.is_empty:
        print_line(f"{found.before} and {found.after} hold the same cases")
        return
    rows = [
        ("cases added", _named(found.added)),
        ("cases removed", _named(found.removed)),
        (
            "status changed",
            _named([f"{case} {old} -> {new}" for case, (old, new) in found.changed_status.items()]),
        ),
        ("content changed", _named(found.changed_content)),
        (
            "moved between splits",
            _named([f"{case} {old} -> {new}" for case, (old, new) in found.moved_splits.items()]),
        ),
        (
            "newly accepted",
            ", ".join(f"{count} {split}" for split, count in found.new_splits.items() if count),
        ),
        ("added on disk", size_text(found.num_bytes_added)),
    ]
    table = _table(f"{found.before} -> {found.after}", "")
    for name, text in rows:
        if text:
            _add(table, name, text)
    screen.print(table)
    if found.statistics:
        moved = _table("statistic", "", found.before, found.after)
        for change in found.statistics:
            before, after = (
                ", ".join(f"{value:.4g}" for value in values)
                for values in (change.before, change.after)
            )
            _add(moved, change.field, change.figure, before, after)
        screen.print("", moved)


def print_findings(dataset: Dataset, found: Verification) -> None:
    """Print one line for an intact version, else a table of its problems."""
    where = f"{dataset.url} {dataset.version}"
    if found.findings:
        table = _table("case", "where", "what is wrong")
        for finding in found.findings:
            _add(table, finding.case or "(all)", finding.place, finding.problem)
        screen.print(table)
        cases = {finding.case for finding in found.findings if finding.case}
        print_markup(
            f"{escape(where)}: {len(found.findings)} findings in {len(cases)} of {found.num_cases}"
            " cases; restore the store from a copy"
        )
        return
    print_markup(
        f"{escape(where)}: all {found.num_chunks} chunks of"
        f" {counted(found.num_cases, 'case')} are intact"
    )


def print_garbage(found: Garbage, *, dry_run: bool) -> None:
    """Print what was, or would be, deleted."""
    from simgen.publish.card import size_text

    if not found.num_objects:
        print_line("nothing to delete: all that is old enough is referred to")
        return
    done = "would delete at least" if dry_run else "deleted"
    print_line(
        f"{done} {size_text(found.num_bytes)}: {found.num_chunks} chunks, {found.num_snapshots}"
        f" snapshots, {found.num_objects} objects in all"
    )


def _named(cases: Sequence[str]) -> str:
    """Format as `3: a, b, c`, and how many more."""
    if not cases:
        return ""
    more = f" and {len(cases) - MAX_NAMED} more" if len(cases) > MAX_NAMED else ""
    return f"{len(cases)}: {', '.join(cases[:MAX_NAMED])}{more}"


def _cases(dataset: Dataset) -> Table:
    """Return one line for each design, with as many parameters as the screen has room for."""
    # Long names take several lines.
    titles = [each.name.replace("_", "_\n") for each in dataset.schema.parameters]
    widths = [max(map(len, title.splitlines())) for title in titles]
    room = screen.width - CASE_WIDTH - SPLIT_WIDTH - 2 * NUMBER_WIDTH - 3
    shown = sum(sum(widths[: number + 1]) + number < room for number in range(len(widths)))
    names = [each.name for each in dataset.schema.parameters[:shown]]
    columns = [
        Column(escape(f"{title}\n({each.unit})" if each.unit else title), min_width=width)
        for title, width, each in zip(titles, widths, dataset.schema.parameters, strict=False)
    ][:shown]
    table = _table(
        Column("case", min_width=CASE_WIDTH),
        *columns,
        Column("split", min_width=SPLIT_WIDTH),
        Column("cells", min_width=NUMBER_WIDTH),
        Column("solve\n(s)", min_width=NUMBER_WIDTH),
    )
    table.pad_edge, table.collapse_padding = False, True
    if hidden := len(titles) - shown:
        table.caption = f"{counted(hidden, 'parameter')} more on a wider screen"
    for name, row in dataset.design.iterrows():
        accepted = row["status"] == "accepted"
        standing = f"{row['status']}: {row['reason']}" if row["reason"] else row["status"]
        split = row["split"] if isinstance(row["split"], str) else "not published"
        _add(
            table,
            str(name),
            *(f"{row[parameter]:.3g}" for parameter in names),
            split if accepted else standing,
            f"{row['num_points']:.0f}" if accepted else "",
            f"{row['wall_time_s']:.1f}",
        )
    return table


def _table(*columns: str | Column) -> Table:
    return Table(*columns, box=None, header_style="bold")


def _add(table: Table, *cells: str) -> None:
    """Add a row of plain text: brackets in a stranger's names are no markup."""
    table.add_row(*map(escape, cells))
