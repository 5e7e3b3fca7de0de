"""Figures of what each anchor does: contributions, maps, scores, and its part of the error."""

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from PIL import Image

from courant.analysis import scores as measures
from courant.report import drawing
from courant.report.context import Context
from courant.report.drawing import FieldMap, draw_map, draw_maps
from courant.report.page import Cell, Panel, PanelTable, Picture, data_url, number, webp
from simgen.publish.colours import MAGNITUDES
from simgen.publish.figures import Triangles, spanning

TOP_ANCHORS, COLUMNS = 8, 4


def decomposition_panel(context: Context) -> Panel | None:
    """Show the largest contributions to the first prediction; None for a model that has none."""
    if not context.surrogate.decomposes:
        return None
    shown, surrogate, fields = context.shown[0], context.surrogate, context.scores.fields
    plane, places, energies = shown.layer, fields.anchors, fields.energies
    anchors = np.argsort(-energies, kind="stable")[:TOP_ANCHORS]
    start = surrogate.problem.shown_start(shown.case)
    parts = surrogate.decomposition(shown.case, start_s=start)
    found = measures.contributions_of(surrogate, shown.case, parts, anchors)
    std = surrogate.normaliser.at(shown.case.parameters).std
    network = surrogate.predict_last(shown.case, start_s=start)
    deviation = float((np.abs(found["total"] - network) / std).max())
    share = energies[anchors].sum() / (float(energies.sum()) or 1.0)
    names, magnitudes = [f"anchor {anchor}" for anchor in anchors], fields.magnitudes[anchors]
    at = [None if places is None else places[anchor] for anchor in anchors]
    limits, style = drawing.top_limits(magnitudes[:, plane.drawn]), "|contribution| (std)"
    strongest = [
        FieldMap(plane, values, name, style, limits, MAGNITUDES, place)
        for name, values, place in zip(names, magnitudes, at, strict=True)
    ]
    circles = (
        "These anchors are abstract: they have no position."
        if places is None
        else "The circle is the position of the anchor; a cross marks one outside the picture."
    )
    pictures = [
        Picture(
            "decomposition.png",
            f"The network's prediction for case {shown.case.id}{_when(start)} is exactly an offset"
            f" u₀ plus one field δₖ for each of the {fields.num_anchors} anchors. Here are the"
            f" magnitudes of the {len(names)} of most energy{shown.inside}. {circles}",
            draw_maps(
                [strongest[at : at + COLUMNS] for at in range(0, len(strongest), COLUMNS)], "all"
            ),
            look_for="Each picture shows what one anchor adds to the prediction, and where.",
            score=f"These {len(anchors)} anchors have {share:.0%} of the energy of all",
        )
    ]
    return Panel(
        "decomposition",
        "What each anchor contributes",
        pictures,
        note=f"The sum u₀ + Σ δₖ differs from the prediction by at most {deviation:.1e}"
        " standard deviations. Arrays are in physical units, of"
        f" {', '.join(surrogate.channels)}.",
        arrays={
            "points": shown.case.points,
            "contributions": found["contributions"],
            "offset": found["offset"],
            "largest": anchors,
        },
    )


def _when(start_s: float | None) -> str:
    """` from t = 200 s on`; empty for a steady case."""
    return "" if start_s is None else f" from t = {start_s:g} s on"


def maps_panel(context: Context) -> Panel | None:
    """Show maps of three anchors; None for a model without weights."""
    surrogate, shown = context.surrogate, context.shown[0]
    if not surrogate.decomposes or (scores := context.scores).dominant is None:
        return None
    chosen = measures.representative_anchors(scores.fields.energies, scores.temporal_variance)
    start = surrogate.problem.shown_start(shown.case)
    found = measures.map_anchors(surrogate, shown.case, chosen, start)
    plotted = context.plotted[0]
    predicted = surrogate.predict_case(shown.case, start_s=start)
    flow = plotted.of(predicted.reshape(-1, *predicted.shape[-2:]))
    plane = shown.layer
    # The flow, the partition and the chosen anchors' weights, a row each, at four steps.
    steps = np.unique(np.linspace(0, len(found.dominant) - 1, 4).round().astype(int))
    # A steady case has one of each, side by side.
    limits, speeds = drawing.top_limits(found.weights[steps]), spanning(flow[steps][:, plane.cell])
    when = ["" if found.times is None else f", t = {found.times[step]:g} s" for step in steps]
    rows = [
        [
            FieldMap(plane, flow[step], f"network{at}", plotted.label, speeds)
            for step, at in zip(steps, when, strict=True)
        ],
        [FieldMap(plane, found.dominant[step], "dominant anchor") for step in steps],
    ]
    for place, anchor in enumerate(found.chosen):
        at = None if found.places is None else found.places[anchor]
        name, weights = f"anchor {anchor}", found.weights[steps, place]
        rows.append([FieldMap(plane, of, name, "weight", limits, MAGNITUDES, at) for of in weights])
    flat, across = [of[0] for of in rows], 2 if plane.aspect < drawing.FLAT else 5
    side_by_side = [flat[at : at + across] for at in range(0, len(flat), across)]
    used = f"{len(np.unique(found.dominant))} of {scores.fields.num_anchors}"
    pictures = [
        Picture(
            "anchor_maps.png",
            "First the network's prediction; then the dominant anchor of each point; the weights"
            " of three anchors, of a rollout two whose fields vary most in time and a steady one,"
            " else the strongest.",
            draw_maps(rows, "row") if len(steps) > 1 else draw_maps(side_by_side, "each"),
            look_for="Compare the dark regions of an anchor with the flow: there it decides"
            " the prediction.",
            score=f"{used} anchors are dominant somewhere",
        )
    ]
    return Panel(
        "anchor_maps",
        "Where anchors have weight",
        pictures,
        note=f"`courant analyse maps {context.run.url!r} --anchor 14` writes these arrays"
        " for any anchors of any case.",
        arrays={**found.arrays(), "flow": flow},
    )


def anchor_table_panel(context: Context) -> Panel | None:
    """Show a row for each anchor; None for models that do not decompose."""
    if not context.surrogate.decomposes:
        return None
    found, plane, dynamics = context.scores, context.shown[0].layer, context.dynamics
    fields, errors = found.fields, found.addresses
    # Of each number: its column, its values (L,), NaN where an anchor has none, and its format.
    numbers: list[tuple[str, np.ndarray | None, str]] = [
        ("share of the energy", _shares(fields.energies), "{:.1%}"),
        ("90 % of it in", fields.supports, "{:.1%}"),
        ("field is away by (m)", measures.anchor_distances(fields), "{:.3g}"),
        ("varies in time", found.temporal_variance, "{:.1%}"),
        ("frequency (Hz)", None if dynamics is None else dynamics.anchor_hz, "{:.3g}"),
    ]
    if errors is not None:
        ratio = errors.densities / (errors.total or 1.0)
        numbers += [
            ("part of the volume", errors.governed, "{:.1%}"),
            ("part of the error", _shares(errors.errors), "{:.1%}"),
            ("error there, over the mean", ratio, "{:.2f}×"),
        ]
    rows = []
    raster = plane.raster(96) if isinstance(plane, Triangles) and plane.pixels else None
    for anchor, magnitudes in enumerate(fields.magnitudes):
        row: dict[str, str | Cell] = {"anchor": str(anchor)}
        if raster is not None:
            field = raster.image(magnitudes / drawing.top_limits(magnitudes[plane.cell])[1])
            icon = Image.fromarray(colormaps[MAGNITUDES](field[::-1], bytes=True))
            row["its field"] = Cell("", picture=data_url(webp(icon)))
        if fields.anchors is not None:
            # A 2D case has no third coordinate.
            place = fields.anchors[anchor, : context.dataset.schema.dimension].astype(float)
            place = np.round(place, 6) + 0.0
            row["place (m)"] = ", ".join(f"{each:.3g}" for each in place)
        for column, values, style in numbers:
            if values is not None:
                row[column] = style.format(values[anchor]) if np.isfinite(values[anchor]) else "–"
        rows.append(row)
    note = (
        "A click on a column's head sorts the rows by it. Each picture has a colour scale of its"
        " own. 90 % of a field's energy lies in the given part of the volume. A steady field varies"
        " by 0 % in time, one that swings around zero by 100 %. Anchors tile the domain at"
        f" distances of about {found.spacing_m:.3g} m."
    )
    if dynamics is not None:
        note += f" The solution's frequency is {dynamics.reference_hz:.3g} Hz."
    return Panel(
        "anchor_table",
        "All anchors, one by one",
        tables=[PanelTable(rows, words=("its field", "place (m)"), sortable=True)],
        note=note,
    )


def _shares(values: np.ndarray) -> np.ndarray:
    return values / (float(values.sum()) or 1.0)


def anchor_scores_panel(context: Context) -> Panel | None:
    """Show scores, where fields lie, and how few the prediction needs; None without fields."""
    if not context.surrogate.decomposes:
        return None
    found, start = context.scores, context.surrogate.problem.shown_start(context.shown[0].case)
    gram = found.fields.gram
    figure = Figure(figsize=(drawing.WIDTH, 3.8))
    energy, errors = figure.subplots(1, 2)
    for name, each in {"model": found.fields, **found.controls}.items():
        energy.plot(measures.energy_curve(each.energies), label=name)
    energy.set(xlabel="number of the strongest fields", ylabel="share of the energy")
    energy.set(xlim=(0, found.fields.num_anchors), ylim=(0, 1.03))
    energy.legend(loc="lower right")
    errors.set(xlabel="number of anchors", ylabel="relative squared error")
    if gram.sum() > 0:
        order = measures.by_energy(gram)
        curves = (
            ("with only the strongest", measures.insertion_curve(gram, order), "-", 0),
            ("with only any (mean)", measures.random_deletion(gram)[::-1], ":", 0),
            ("without the strongest", measures.deletion_curve(gram, order), "-", 1),
            ("without any (mean)", measures.random_deletion(gram), ":", 1),
        )
        for name, curve, style, place in curves:
            errors.plot(curve, style, color=drawing.PALETTE[place], label=name)
        errors.set(xlim=(0, len(gram)), ylim=(0, None))
        errors.legend(**drawing.ABOVE, ncols=2)
    picture = Picture(
        "anchor_scores.png",
        "Left: the energy in the strongest fields, beside the controls. Right: the error of a"
        " prediction from some of the fields, dotted in random order.",
        figure,
        look_for="A steep blue curve on the right is a prediction that depends on few anchors.",
        score=f"The strongest {measures.TOP} have {found.scores['top_share']:.0%} of the energy",
    )
    rows: list[dict[str, str | Cell]] = [
        {
            "score": each.name,
            "model": Cell.judged(number(value), each.reached(value)),
            **{name: number(of.get(each.key)) for name, of in found.control_scores.items()},
            "range": each.range,
            "good is": each.aim_text,
        }
        for each in measures.SCORES
        if (value := found.scores.get(each.key)) is not None
    ]
    return Panel(
        "anchor_scores",
        "How local, economical and steady the anchors are",
        [picture],
        [PanelTable(rows, words=("score", "range", "good is"))],
        note="Controls divide the same field in other ways: among anchors at random, by nearest"
        " anchor, and by POD (proper orthogonal decomposition) of the case's own snapshots. A score"
        " means little unless it is better than that of the random partition. The numbers are for"
        f" case {found.case}{_when(start)}; `courant analyse {context.run.url!r}` scores all"
        " test cases. docs/analysis.md defines every score.",
        arrays={**found.arrays(), "energy_curve": measures.energy_curve(found.fields.energies)},
    )


WIDTH_OF_MAP = 4.5  # inches, of the map that has their numbers
NAMED = 8  # Anchors that are named, the one with the largest part of the error first


def addresses_panel(context: Context) -> Panel | None:
    """Show a map of the error and of its parts by anchor; None for a model without weights."""
    if not context.surrogate.decomposes or (found := context.scores.addresses) is None:
        return None
    shown, dominant, total = context.shown[0], context.scores.dominant, found.total or 1.0
    assert dominant is not None
    plane, parts = shown.layer, found.errors / total
    height = float(np.clip(4.2 * plane.aspect + 0.3, 2.6, 4.6))
    figure = Figure(figsize=(drawing.WIDTH, height + 0.3))
    error, part, curve = figure.subplots(1, 3, width_ratios=(1.4, 1.4, 1))
    maps = {
        "|error| (std)": (error, np.sqrt(found.squared)),
        "part of the error at the anchor (%)": (part, 100 * parts[dominant]),
    }
    for label, (axis, values) in maps.items():
        limits = drawing.top_limits(values[plane.cell])
        field = FieldMap(plane, values, label=label, limits=limits, cmap=MAGNITUDES)
        draw_map(figure, axis, field, axis, location="bottom")
    box = {"boxstyle": "round,pad=0.15", "fc": "#ffffffc0", "ec": "none"}
    style = {"fontsize": 8, "ha": "center", "va": "center", "color": "#12365c", "bbox": box}
    # In inches on the page; a number that would overlap one of a larger part is left out.
    across = WIDTH_OF_MAP / float(np.ptp(error.get_xlim()))
    scale, named = np.array([across, across * plane.stretch]), list[np.ndarray]()
    for anchor in found.worst[:NAMED].tolist():
        centre = found.centres[anchor, list(plane.axes)]
        free = all((np.abs(scale * (centre - each)) > (0.25, 0.18)).any() for each in named)
        if np.isfinite(centre).all() and free:
            error.annotate(str(anchor), tuple(centre), **style)
            named.append(centre)
    share = np.linspace(0, 1, len(parts) + 1)
    for of, line, label in ((parts, "-", "of the error"), (found.governed, ":", "of the volume")):
        curve.plot(share, np.cumsum([0.0, *of[found.worst]]), line, label=label)
    curve.set(xlabel="share of the anchors, the worst first", ylabel="part")
    curve.set(xlim=(0, 1), ylim=(0, 1.03))
    curve.legend(loc="lower right")
    picture = Picture(
        "error_addresses.png",
        f"Left: the network's error{shown.inside}, with the anchors of the largest parts of it, as"
        " far as there is room. Middle: the part of each cell's dominant anchor in the whole error."
        " Right: how much of the squared error, and of the volume, the worst anchors have.",
        figure,
        look_for="Dark regions of the middle picture are where most of the error is.",
        score=f"The worst tenth of the anchors has {found.worst_part():.0%} of the squared error",
    )
    return Panel(
        "error_addresses",
        "Which anchors the error is attributed to",
        [picture],
        note="The squared error at a point is divided among the anchors by their weights there."
        " The parts, listed in the table of all anchors, sum exactly to the whole, a mean square"
        f" error of {found.total:.3g} in units of the training cases' variance. An anchor with a"
        " large error shows where to look; it need not be the cause. The arrays are beside the"
        " scores' own, anchor_scores.npz.",
    )
