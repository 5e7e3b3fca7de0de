"""Show the cases of the dataset version: how each ended, pictures of some, and a mesh."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from courant.report.context import Context
from courant.report.drawing import place
from courant.report.panel import Cell, Column, Panel, PanelFigure, Table
from courant.report.wording import count, listed, number, with_unit
from simgen.design_space import Parameter
from simgen.publish import dataset_figures
from simgen.publish.field_plots import Triangles, layer, point_spacing
from simgen.store.read import Dataset, StoredCase

NUM_THUMBNAILS = 12
FIGURES = {"max_courant": "max Courant", "mass_imbalance": "mass imbalance"}
"""Acceptance figures that get a column where any case has them"""


def panel(context: Context) -> Panel:
    """Show a table of all cases, the first modelled field of some, and the mesh of one."""
    dataset = context.dataset
    field, shown = context.channels[0].field, context.shown[0].case
    accepted = [dataset[case] for case in dataset.cases()[:NUM_THUMBNAILS]]
    pictures = dataset_figures.sample_cases(accepted, field)
    ended = dataset.design["status"].value_counts().to_dict()
    outcomes = listed([f"{total} {status}" for status, total in ended.items()])
    figures = [
        PanelFigure(
            "cases.png",
            pictures,
            _thumbnails(dataset, field),
            look_for="This is what the solver made of the designs: an odd one stands out here.",
            score=f"{outcomes} of {count(len(dataset.design), 'case')}",
            arrays=("shown",),
        )
    ]
    triangles = layer(shown)
    if isinstance(triangles, Triangles):
        where = place(shown, triangles)
        caption = (
            f"Cell centres of case {shown.id}{where and f' in {where}'}, joined to triangles"
            f"{', and its boundary faces by patch kind' if dataset.schema.boundary else ''}."
        )
        figures.append(
            PanelFigure(
                "mesh.png",
                draw_mesh(shown, triangles),
                caption,
                look_for="Errors count every point alike: where points are dense, they count most.",
                score=f"{shown.num_points:,} cells",
                arrays=("mesh_points",),
            )
        )
    note = f"Outcomes of all cases: {outcomes}."
    arrays = {
        "shown": np.array([each.id for each in accepted]),
        "mesh_points": np.asarray(shown.points),
    }
    return Panel("cases", "Cases", tuple(figures), (table(dataset),), note, arrays=arrays)


def table(dataset: Dataset) -> Table:
    """One row for each case, rejected and failed ones included."""
    cases = [dataset[name] for name in dataset.design.index]
    found = {case.id: _figures(case) for case in cases}
    shown = [name for name in FIGURES if any(name in figures for figures in found.values())]
    parameters = dataset.schema.parameters
    columns = (
        Column("case", is_number=False),
        *(Column(with_unit(each.name, each.unit)) for each in parameters),
        Column("status", is_number=False),
        Column("split", is_number=False),
        Column("cells"),
        Column("gates passed"),
        *(Column(FIGURES[name]) for name in shown),
        Column("solve (s)"),
    )
    rows = []
    for case in cases:
        measured = tuple(Cell(number(found[case.id].get(name))) for name in shown)
        solve = Cell(number(case.provenance.get("wall_time_s", {}).get("solve")))
        rows.append((*_row(case, parameters), *measured, solve))
    return Table(columns, tuple(rows))


def draw_mesh(case: StoredCase, triangles: Triangles) -> Figure:
    """Draw the case's cell centres as a triangulation, and its boundary, if any, by patch kind."""
    across, up = triangles.axes
    height = float(np.clip(11.5 * triangles.aspect, 3.5, 8)) + 0.6
    figure = Figure(figsize=(12, height), layout="constrained")
    axis = figure.subplots()
    axis.triplot(triangles.triangulation, lw=0.35, color="#8a8a8a")
    axis.set(aspect="equal", xlabel=f"{'xyz'[across]} (m)", ylabel=f"{'xyz'[up]} (m)")
    if case.dataset.schema.boundary:
        _draw_faces(axis, case, triangles)
        columns = len(case.patch_kinds)
        figure.legend(loc="outside upper center", ncols=columns, frameon=False, fontsize=9)
    return figure


def _draw_faces(axis: Axes, case: StoredCase, triangles: Triangles) -> None:
    """Draw the boundary's faces by patch kind; of a 3D case those at the drawn plane."""
    across, up = triangles.axes
    kinds, points = case.boundary.patch, case.boundary.points
    shown = np.ones(len(points), dtype=bool)
    if case.dataset.schema.dimension == 3:
        off_plane = np.abs(points[:, 3 - across - up] - triangles.position)
        shown = off_plane <= np.median(point_spacing(case))
    for kind, name in enumerate(case.patch_kinds):
        chosen = points[(kinds == kind) & shown]
        label = f"{name} ({count(int((kinds == kind).sum()), 'face')})"
        axis.plot(chosen[:, across], chosen[:, up], ".", ms=4, label=label)


def _row(case: StoredCase, parameters: tuple[Parameter, ...]) -> tuple[Cell, ...]:
    is_accepted = case.status == "accepted"
    passed = sum(bool(gate["passed"]) for gate in case.gates)
    ended = f"{case.status}: {case.reason}" if case.reason else case.status
    return (
        Cell(case.id),
        *(Cell(number(case.parameters[each.name])) for each in parameters),
        Cell(ended, "" if is_accepted else "bad"),
        Cell(case.split or ""),
        Cell(f"{case.num_points:,}" if is_accepted else ""),
        Cell(f"{passed} of {len(case.gates)}" if case.gates else ""),
    )


def _figures(case: StoredCase) -> Mapping[str, float]:
    """Return the acceptance figures that are present and finite."""
    measured = case.provenance.get("figures", {})
    values = {name: measured.get(name) for name in FIGURES}
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, float | int) and math.isfinite(value)
    }


def _thumbnails(dataset: Dataset, field: str) -> str:
    schema = dataset.schema
    components = next(each.components for each in schema.fields if each.name == field)
    name = field.replace("_", " ")
    what = name if len(components) == 1 else f"Magnitude of {name}"
    when = " at the last snapshot" if schema.transient else ""
    where = " in the middle plane" if schema.dimension == 3 else ""
    of = f" of the first {NUM_THUMBNAILS} accepted cases" if len(dataset) > NUM_THUMBNAILS else ""
    return f"{what[0].upper()}{what[1:]}{when}{where}{of}, on one colour scale."
