"""What is asked of a flow first: profiles along lines, the wall, forces."""

import numpy as np
from matplotlib import tri
from matplotlib.figure import Figure

from courant.report import drawing
from courant.report.context import Context, in_plane
from courant.report.fields import scale_of
from courant.report.page import Panel, Picture, listed, plain
from simgen.design_space import with_unit
from simgen.publish.figures import Triangles
from simgen.quantities import CaseFields
from simgen.store.read import StoredCase

STATIONS = (0.25, 0.5, 0.75)
"""Where profiles are taken that no family declares, as shares of the longer side"""
ON_LINE = 200
UPRIGHT = 0.25  # From this share of its area across x on, a wall is gone around
OPEN = ("inlet", "outlet", "open")  # Kinds of patches through which the fluid flows
CURVES: dict[str, drawing.Style] = {
    "solution": {"color": "k", "lw": 1.6},
    "prediction": {"color": drawing.MODEL_COLOR, "lw": 1.4, "ls": "--"},
}


def profiles_panel(context: Context) -> Panel | None:
    """Show components along lines across the first case; None in 1D."""
    shown = context.shown[0]
    plane = shown.layer
    if not isinstance(plane, Triangles):
        return None
    lines = sample_lines(shown.case, plane)
    unseen = f"{'xyz'[3 - sum(plane.axes)]} ("
    plotted = [of for of in context.plotted if len(of.columns) == 1 and unseen not in of.label]
    figure = Figure(figsize=(drawing.WIDTH, 2.5 * len(plotted) + 0.5))
    grid = figure.subplots(len(plotted), len(lines), squeeze=False, sharey="row")
    arrays, sums = dict[str, np.ndarray](), np.zeros((2, len(plotted)))  # Errors and sizes
    for column, (name, ends) in enumerate(lines.items()):
        line = np.linspace(ends[0], ends[1], ON_LINE)
        ways = np.flatnonzero(ends[0] != ends[1])
        # Over a coordinate, where it is the only one that changes.
        along = line[:, ways[0]] if len(ways) == 1 else np.linalg.norm(line - line[0], axis=1)
        over = f"{'xyz'[plane.axes[ways[0]]]} (m)" if len(ways) == 1 else "along the line (m)"
        arrays[f"{name}.points"] = line
        for axis, each, total in zip(grid[:, column], plotted, sums.T, strict=True):
            found = [along_line(plane, each.of(of), line) for of in (shown.truth, shown.predicted)]
            for values, (who, style) in zip(found, CURVES.items(), strict=True):
                axis.plot(along, values, label=shown.names[who], **style)
                arrays[f"{name}.{each.label.partition(' (')[0]}.{who}"] = values
            total += [np.nansum(np.abs(of)) for of in (found[1] - found[0], found[0])]
        grid[0, column].set_title(name)
        grid[-1, column].set_xlabel(over)
    for axis, each in zip(grid[:, 0], plotted, strict=True):
        axis.set_ylabel(each.label)
    drawing.legend_above(figure, grid[0, :1].tolist())
    when = "" if shown.end_s is None else f" at t = {shown.end_s:g} s"
    picture = Picture(
        "profiles.png",
        f"Case {shown.case.id}{when}{shown.inside}, linear between the cells' centres. At a wall"
        " the last value is the cell's. A gap is where there is no fluid.",
        figure,
        look_for="The dashed line should lie on the black one, in peaks too.",
        score="NMAE on these lines: "
        + ", ".join(
            f"{each.label.partition(' (')[0]} {e / (s or 1.0):.2g}"
            for each, e, s in zip(plotted, *sums, strict=True)
        ),
    )
    first = context.plotted[0]
    limits, colours = scale_of(first, shown.truth, plane.drawn)
    shape = drawing.FieldMap(plane, first.of(shown.truth), first.label, "", limits, colours)
    where = drawing.draw_maps([[shape]], "each", 6.6, ticks=True)
    where.set_dpi(drawing.PANE_DPI)
    for place, ends in enumerate(lines.values(), 1):
        where.axes[0].plot(*ends.T, color="k", lw=1.2)
        box = {"boxstyle": "circle,pad=0.2", "fc": "w"}
        where.axes[0].annotate(str(place), ends[-1], fontsize=7, bbox=box, ha="center", va="center")
    places = Picture(
        "profile_lines.png",
        f"Case {shown.case.id}{when}{shown.inside}: the solution, and the lines of the profiles.",
        where,
        panes=True,
        look_for="Profiles are along these lines.",
        score=listed([f"{place}: {name}" for place, name in enumerate(lines, 1)]),
    )
    return Panel("profiles", "Profiles", [places, picture], arrays=arrays)


def sample_lines(case: StoredCase, plane: Triangles) -> dict[str, np.ndarray]:
    """Return the ends (2, 2) of lines in a plane by their names, in m.

    They are the family's; of one that declares none, and of imported cases, three across the longer
    side of what is shown of the plane.
    """
    family = case.dataset.family
    if declared := family.lines(case.parameters) if family else {}:
        return {n: np.array(ends)[:, list(plane.axes)] for n, ends in declared.items()}
    low, high = plane.box
    main = int(np.argmax(high - low))
    lines = {}
    for share in STATIONS:
        ends = np.array([low, high])
        ends[:, main] = low[main] + share * (high - low)[main]
        lines[f"{'xyz'[plane.axes[main]]} = {ends[0, main] + 0.0:.3g} m"] = ends
    return lines


def along_line(plane: Triangles, values: np.ndarray, line: np.ndarray) -> np.ndarray:
    """Interpolate values (N,) of the cells at points (M, 2): (M,), NaN where there is no fluid."""
    found = tri.LinearTriInterpolator(plane.triangulation, values[plane.cell])(*line.T)
    return np.ma.asarray(found).filled(np.nan)


def wall_panel(context: Context) -> Panel | None:
    """Show pressure and shear along the walls of a 2D case, and the pressure's force over time.

    None without a pressure, and in 3D, where the surface is shown.
    """
    schema, shown = context.dataset.schema, context.shown[0]
    pressures = [n for n, each in enumerate(context.channels) if "pressure" in each.field]
    if schema.dimension != 2 or not schema.boundary or not pressures:
        return None
    fields = CaseFields(shown.case.parameters, shown.case.settings, shown.case.cloud({}))
    kinds = [kind for kind in shown.case.patch_kinds if kind not in (*OPEN, "symmetry")]
    of_kinds = {kind: fields.faces(kind) for kind in kinds}
    walls = {kind: faces for kind, faces in of_kinds.items() if len(faces.cells)}
    if not walls:
        return None
    channel = context.channels[pressures[0]]
    velocity = in_plane(context.channels, (0, 1))
    rollout = context.rollout
    rows = 1 + (velocity is not None) + (rollout is not None)
    figure = Figure(figsize=(drawing.WIDTH, 2.7 * rows + 0.4))
    grid = figure.subplots(rows, len(walls), squeeze=False)
    arrays, sums = dict[str, np.ndarray](), {"pressure": np.zeros(2), "shear": np.zeros(2)}
    for column, (kind, faces) in enumerate(walls.items()):
        # Where much of a wall is upright, as of a body and of a box, it is gone around.
        x, y = (faces.points - 0.5 * (faces.points.min(axis=0) + faces.points.max(axis=0)))[:, :2].T
        tangent = np.stack([faces.normals[:, 1], -faces.normals[:, 0]], axis=1)
        place, label, forward = faces.points[:, 0], "x (m)", tangent[:, 0]
        if faces.mean(np.abs(faces.normals[:, 0])) > UPRIGHT:
            place, label = np.degrees(np.arctan2(y, x)) % 360, "angle around the middle (deg)"
            forward = x * tangent[:, 1] - y * tangent[:, 0]
        tangent *= np.where(forward < 0, -1, 1)[:, None]
        order = np.argsort(place)
        grid[0, column].set_title(plain(kind))
        arrays[f"{kind}.place"] = place[order]
        found = []
        for (who, style), of in zip(CURVES.items(), (shown.truth, shown.predicted), strict=True):
            dots: drawing.Style = {"color": style["color"], "ls": "", "marker": "."}
            dots |= {"ms": 5 if who == "solution" else 3, "label": shown.names[who]}
            values = {"pressure": of[faces.cells, pressures[0]]}
            if velocity is not None:
                along = (of[faces.cells][:, velocity] * tangent).sum(axis=1)
                values["shear"] = along / faces.depth
            found.append(values)
            for axis, (name, curve) in zip(grid[:, column], values.items(), strict=False):
                axis.plot(place[order], curve[order], **dots)
                axis.set_xlabel(label)
                arrays[f"{kind}.{name}.{who}"] = curve[order]
        for name, truth in found[0].items():
            sums[name] += np.abs(found[1][name] - truth).sum(), np.abs(truth).sum()
        if rollout is not None:
            axis = grid[-1, column]
            pushes = faces.normals[:, :2] * faces.areas[:, None]
            for (who, style), of in zip(
                CURVES.items(), (rollout.truth, rollout.predicted), strict=True
            ):
                force = of[:, faces.cells, pressures[0]] @ pushes
                axis.set_prop_cycle(color=("k", drawing.PALETTE[1]))
                names = [f"{shown.names[who]}, {way}" for way in "xy"]
                axis.plot(rollout.times, force, style.get("ls", "-"), label=names)
                arrays[f"{kind}.force.{who}"] = force
            axis.set_xlabel("time from the start (s)")
            axis.legend(**drawing.ABOVE, ncols=2)
    grid[0, 0].set_ylabel(with_unit(plain(channel.field), channel.unit))
    if velocity is not None:
        grid[1, 0].set_ylabel("velocity along the wall\nover its distance (1/s)")
    if rollout is not None:
        grid[-1, 0].set_ylabel(
            "force of the pressure"
            + ("\nover density (m⁴/s²)" if "kinematic" in channel.field else "")
        )
        arrays["time"] = rollout.times
    drawing.legend_above(figure, grid[0, :1].tolist())
    when = "" if shown.end_s is None else f" at t = {shown.end_s:g} s"
    picture = Picture(
        "wall.png",
        f"Case {shown.case.id}{when}: pressure, and the velocity along the wall over its distance,"
        " in the cells at the walls. At walls at rest the latter is the rate of shear in"
        " laminar flow; with wall functions it is less."
        + ("" if rollout is None else " Forces are those of the pressure alone, without friction."),
        figure,
        look_for="Compare the extremes of the pressure, and where the shear changes its sign:"
        " there the flow separates.",
        score="NMAE at the walls: "
        + ", ".join(f"{name} {e / (s or 1.0):.2g}" for name, (e, s) in sums.items() if s),
    )
    return Panel("wall", "At the walls", [picture], arrays=arrays)
