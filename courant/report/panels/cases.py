"""The cases of the dataset version: how each ended, pictures of some, and a mesh."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from courant.report.context import Context
from courant.report.panel import Cell, Column, Panel, PanelFigure, Table
from courant.report.wording import count, listed, number, place, with_unit
from simgen import dataset_figures
from simgen.design_space import Parameter
from simgen.field_plots import layer
from simgen.store.reader import Dataset, StoredCase

NUM_THUMBNAILS = 12
FIGURES = {"max_courant": "max Courant", "mass_imbalance": "mass imbalance"}
"""Figures of the acceptance that a column shows where any case has them"""


def panel(context: Context) -> Panel:
    """A table of all cases, the first modelled field of some, and the mesh of one."""
    dataset = context.dataset
    field, shown = context.channels[0].field, context.shown[0].case
    where = place(shown, layer(shown))
    accepted = [dataset[case] for case in dataset.cases()[:NUM_THUMBNAILS]]
    figures = (
        PanelFigure("cases.png", dataset_figures.sample_cases(accepted, field), _thumbnails(dataset, field)),
        PanelFigure(
            "mesh.png",
            draw_mesh(shown),
            f"Cell centres of case {shown.id}{where and f' in {where}'}, joined to triangles, "
            "and its boundary faces by patch kind.",
        ),
    )
    ended = dataset.design["status"].value_counts().to_dict()
    note = f"{listed([f'{total} {status}' for status, total in ended.items()])}."
    return Panel("cases", "Cases", figures, (table(dataset),), note)


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


def draw_mesh(case: StoredCase) -> Figure:
    """The case's cell centres as a triangulation, and its boundary by patch kind."""
    triangles, boundary = layer(case), case.boundary
    across, up = triangles.axes
    height = float(np.clip(11.5 * triangles.aspect, 3.5, 8)) + 0.6
    figure = Figure(figsize=(12, height), layout="constrained")
    axis = figure.subplots()
    axis.triplot(triangles.triangulation, lw=0.35, color="#8a8a8a")
    kinds, points = boundary.patch, boundary.points
    shown = np.ones(len(points), dtype=bool)
    if case.dataset.schema.dimension == 3:
        off_plane = np.abs(points[:, 3 - across - up] - triangles.position)
        shown = off_plane <= np.median(np.cbrt(case.volumes))
    for kind, name in enumerate(case.patch_kinds):
        chosen = points[(kinds == kind) & shown]
        label = f"{name} ({count(int((kinds == kind).sum()), 'face')})"
        axis.plot(chosen[:, across], chosen[:, up], ".", ms=4, label=label)
    axis.set(aspect="equal", xlabel=f"{'xyz'[across]} (m)", ylabel=f"{'xyz'[up]} (m)")
    columns = len(case.patch_kinds)
    figure.legend(loc="outside upper center", ncols=columns, frameon=False, fontsize=9)
    return figure


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
    """Those figures of the acceptance that are there and finite."""
    measured = case.provenance.get("figures", {})
    values = {name: measured.get(name) for name in FIGURES}
    return {name: value for name, value in values.items() if isinstance(value, float | int) and math.isfinite(value)}


def _thumbnails(dataset: Dataset, field: str) -> str:
    schema = dataset.schema
    components = next(each.components for each in schema.fields if each.name == field)
    name = field.replace("_", " ")
    what = name if len(components) == 1 else f"Magnitude of {name}"
    when = " at the last snapshot" if schema.transient else ""
    where = " in the middle plane" if schema.dimension == 3 else ""
    of = f" of the first {NUM_THUMBNAILS} accepted cases" if len(dataset) > NUM_THUMBNAILS else ""
    return f"{what[0].upper()}{what[1:]}{when}{where}{of}, on one colour scale."
