"""Write the page of a search: what was predicted and solved, the best so far, and its fields."""

import numpy as np
from matplotlib.figure import Figure

from courant.optimisation import BEST, TABLE, Search, table_text
from courant.prediction.surrogate import Surrogate
from courant.report import drawing
from courant.report import page as pages
from courant.report.context import ShownCase, plotted_fields
from courant.report.fields import draw_prediction
from courant.runs.directory import RunDirectory
from simgen.design_space import with_unit
from simgen.publish.figures import axes_grid
from simgen.store.read import Dataset


def write_search_page(
    folder: RunDirectory, search: Search, surrogate: Surrogate, dataset: Dataset
) -> None:
    """Write index.html with its pictures, optimum.csv and best.csv into the search's folder."""
    folder.write_bytes(TABLE, table_text(search).encode())
    names = [each.name for each in dataset.schema.parameters]
    best = [dataset.records[case]["parameters"] for case in search.front(search.solved)]
    rows = [names, *([f"{design[name]:g}" for name in names] for design in best)]
    folder.write_bytes(BEST, "".join(f"{','.join(row)}\n" for row in rows).encode())
    panels = [_candidates(search, dataset)]
    if (shown := _best(search, surrogate, dataset)) is not None:
        panels.append(shown)
    ended = [each for each in search.candidates if each.status != "chosen"]
    meta = (
        f"run {search.run}",
        f"dataset {dataset.url} {dataset.version}",
        f"{pages.count(len(search.known), 'case')} known before,"
        f" {pages.count(len(ended), 'candidate')}",
    )
    title = pages.plain(search.title).capitalize()
    pages.write_page(folder, title, meta, pages.Lead("", search.verdict), {"": panels})


def _candidates(search: Search, dataset: Dataset) -> pages.Panel:
    """Show every candidate: its design, its predicted and solved values, and the course."""
    units, front = {q.name: q.unit for q in dataset.schema.quantities}, search.front(search.solved)
    labels = {name: with_unit(pages.plain(name), units[name]) for name in search.names}
    named = {p.name: with_unit(pages.plain(p.name), p.unit) for p in dataset.schema.parameters}
    rows: list[dict[str, str | pages.Cell]] = []
    for place, each in enumerate(search.candidates, 1):
        state = "best" if each.case in front else each.status
        row: dict[str, str | pages.Cell] = {"solve": str(place), "case": each.case, "state": state}
        for name, label in labels.items():
            row[f"{label}, predicted"] = each.answer([name])
            row[f"{label}, solved"] = pages.Cell.judged(
                pages.number(each.solved.get(name)), each.inside(name)
            )
        row["limits"] = ("kept" if search.is_feasible(each.solved) else "not kept") * bool(
            each.solved
        )
        row |= {named[name]: f"{value:.4g}" for name, value in each.design.items()}
        rows.append({**row, "reason": each.reason} if each.reason else row)
    many = len(search.goals) > 1
    picture = pages.Picture(
        "course.png",
        "Grey points are cases known before the search, open ones do not keep the limits."
        + (
            " The line joins designs that no other one is better than."
            if many
            else " Bars are bands of the predicted values, the line is the best value so far."
        ),
        _draw_front(search, labels) if many else _draw_course(search, labels),
        look_for="Solved values should lie in the bars, and candidates beyond what was known."
        if not many
        else "Candidates should lie beyond the front of what was known.",
        score=search.verdict.rpartition(". ")[2].rstrip("."),
    )
    bands = (band for each in search.candidates for band in each.bands.values())
    kinds = "; ".join(dict.fromkeys(f"{band.level:.0%} {band.kind}" for band in bands))
    note = f"Green values lie in the band ({kinds}) around the predicted one, red ones do not."
    tables = [pages.PanelTable(rows, words=("case", "state", "limits", "reason"), sortable=True)]
    return pages.Panel("candidates", "Candidates", [picture], tables, note)


def _draw_course(search: Search, labels: dict[str, str]) -> Figure:
    """Draw each quantity by solve: predicted with bands, solved, limits, and the best so far."""
    figure, axes = axes_grid(len(labels), 3, 4.6, 3.4)
    for axis, (name, label) in zip(axes, labels.items(), strict=True):
        for feasible, fill in ((False, "none"), (True, "#9a9a9a")):
            shown = [of for of in search.known.values() if search.is_feasible(of) is feasible]
            values = [value for of in shown if (value := of[name]) is not None]
            axis.plot(np.zeros(len(values)), values, "o", mfc=fill, mec="#9a9a9a", ms=3)
        for place, each in enumerate(search.candidates, 1):
            value, band = each.predicted.get(name), each.bands.get(name)
            width = None if band is None else band.half_width
            if value is not None:
                axis.errorbar(
                    [place], [value], width, fmt="_", capsize=3,
                    color=drawing.PALETTE[1], label="predicted" if place == 1 else None,
                )  # fmt: skip
            if (solved := each.solved.get(name)) is not None:
                fill = drawing.MODEL_COLOR if search.is_feasible(each.solved) else "none"
                axis.plot([place], [solved], "o", mfc=fill, color=drawing.MODEL_COLOR, ms=6)
        for limit in search.limits:
            if limit.quantity == name:
                axis.axhline(limit.bound, color="k", ls=":", lw=1)
        if name in search.goals:
            solved_so_far, best = dict(search.known), list[float]()
            for one in (None, *search.candidates):
                if one is not None and one.status == "accepted":
                    solved_so_far[one.case] = one.solved
                front = search.front(solved_so_far)
                best.append(solved_so_far[front[0]][name] or 0.0 if front else np.nan)
            axis.step(range(len(best)), best, where="post", color=drawing.MODEL_COLOR, lw=1)
        axis.set(title=label, xlabel="solve", xticks=range(len(search.candidates) + 1))
    return figure


def _draw_front(search: Search, labels: dict[str, str]) -> Figure:
    """Draw the first two objectives of all cases, with the front."""
    figure, (axis,) = axes_grid(1, 1, 6.0, 4.6)
    first, second = list(search.goals)[:2]
    for case, of in search.solved.items():
        color = "#9a9a9a" if case in search.known else drawing.MODEL_COLOR
        if (x := of.get(first)) is not None and (y := of.get(second)) is not None:
            fill = color if search.is_feasible(of) else "none"
            axis.plot([x], [y], "o", mfc=fill, color=color, ms=5)
    front = [search.solved[case] for case in search.front(search.solved)]
    points = sorted((of[first] or 0.0, of[second] or 0.0) for of in front)
    axis.plot(*np.array(points).reshape(-1, 2).T, "-", color=drawing.PALETTE[1], lw=1)
    axis.set(xlabel=labels[first], ylabel=labels[second])
    return figure


def _best(search: Search, surrogate: Surrogate, dataset: Dataset) -> pages.Panel | None:
    """Show the solved and predicted fields of the best design, or of the first on the front."""
    front = search.front(search.solved)
    if not front:
        return None
    shown = ShownCase(surrogate, "best", dataset[front[0]])
    case, solution = shown.case, surrogate.problem.solution(shown.case, shown.end_s)
    design = [
        f"{with_unit(pages.plain(each.name), each.unit)} {case.parameters[each.name]:.4g}"
        for each in dataset.schema.parameters
    ]
    picture = pages.Picture(
        "best.png",
        f"Case {case.id}: {pages.listed(design)}.",
        draw_prediction(
            shown.layer, solution, shown.predicted, plotted_fields(surrogate.normaliser, dataset)
        ),
        look_for="The solver's fields of the best design, what was predicted, and the difference.",
        score="Solved by the solver and accepted by its gates",
    )
    return pages.Panel("best", "The best design", [picture])
