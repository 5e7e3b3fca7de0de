"""Figures and tables of the dataset and the training, and how to use the model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from json import dumps as quote
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from courant.data.normalisation import Channel
from courant.evaluation.record import Evaluation
from courant.report.context import Context, Shown
from courant.report.drawing import MODEL_COLOR, place
from courant.report.panel import Cell, Column, Panel, PanelFigure, Table
from courant.report.wording import count, listed, number, with_unit
from courant.runs.record import EpochRecord
from simgen.design_space import Parameter
from simgen.publish import dataset_figures
from simgen.publish.dataset_figures import SPLIT_COLORS
from simgen.publish.field_plots import Triangles, layer, point_spacing
from simgen.store.read import Dataset, StoredCase

if TYPE_CHECKING:
    from simgen.store.read import StoredCase


def designs_panel(context: Context) -> Panel | None:
    """Draw every design in the planes of its parameters; None where there are none."""
    parameters = context.dataset.schema.parameters
    if not parameters:
        return None
    table = context.dataset.design
    caption = (
        "The sampled designs over their parameters. A case keeps its split in every later version"
        " of the dataset."
    )
    accepted = int((table["status"] == "accepted").sum())
    figure = PanelFigure(
        "designs.png",
        dataset_figures.designs(context.dataset),
        caption,
        look_for="Gaps are designs that the model has never seen.",
        score=f"{accepted} of {len(table)} designs accepted",
    )
    arrays = {
        "cases": np.array(table.index.tolist(), dtype=str),
        "split": np.array([split or "" for split in table["split"]], dtype=str),
        "parameter_names": np.array([each.name for each in parameters]),
        "parameters": table[[each.name for each in parameters]].to_numpy(float),
    }
    return Panel("designs", "Designs", (figure,), arrays=arrays)


NUM_THUMBNAILS = 12
FIGURES = {"max_courant": "max Courant", "mass_imbalance": "mass imbalance"}
"""Acceptance figures that get a column where any case has them"""


def cases_panel(context: Context) -> Panel:
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


def training_panel(context: Context) -> Panel | None:
    """Show loss curves and throughput; None for a run without records of its epochs."""
    records = context.records
    if not records:
        return None
    status = context.course.status
    caption = "The loss in standardised units, and the learning rate."
    if status is not None and status.best_epoch is not None:
        caption += (
            f" The report evaluates the weights of epoch {status.best_epoch}, which has the lowest"
            " validation loss."
        )
    rows = tuple((Cell(name), Cell(value)) for name, value in throughput(records))
    return Panel(
        "training",
        "Training",
        (
            PanelFigure(
                "loss_curves.png",
                draw_training(records),
                caption,
                look_for=(
                    "A validation loss that still falls at the end asks for more epochs; one that"
                    " rises while the training loss falls asks for more cases."
                ),
                score=_score(records),
            ),
        ),
        (Table((Column("throughput", is_number=False), Column("")), rows),),
        note=(
            "Floating-point operations count matrix products and attention, forward and backward,"
            " on the first batch. Peak memory is that of the first worker: the memory allocated on"
            " its GPU or, on a CPU, that of the whole process."
        ),
        arrays=_arrays(records),
    )


def _score(records: Sequence[EpochRecord]) -> str:
    known = [each.validation_nmae for each in records if each.validation_nmae is not None]
    line = f"{len(records)} epochs"
    return f"{line}, lowest validation NMAE {min(known):.3f}" if known else line


def draw_training(records: Sequence[EpochRecord]) -> Figure:
    """Draw training and validation loss on a log scale, the learning rate below."""
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    loss, rate = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    epochs = [record.epoch for record in records]
    losses = [record.train_loss for record in records]
    loss.plot(epochs, losses, color=MODEL_COLOR, label="training")
    validated = [record for record in records if record.validation_loss is not None]
    if validated:
        loss.plot(
            [record.epoch for record in validated],
            [record.validation_loss for record in validated],
            "o-",
            ms=3,
            color=SPLIT_COLORS["validation"],
            label="validation",
        )
    loss.set(ylabel="loss (standardised)", yscale="log")
    loss.grid(alpha=0.25, which="both")
    loss.legend(frameon=False)
    rate.plot(epochs, [record.learning_rate for record in records], color="#555555")
    rate.set(xlabel="epoch", ylabel="learning rate", ylim=(0, None))
    rate.grid(alpha=0.25)
    return figure


def throughput(records: Sequence[EpochRecord]) -> list[tuple[str, str]]:
    """Return names and values of the throughput, over all epochs that record it."""
    seconds = sum(record.seconds for record in records)
    samples = sum(record.samples_per_s * record.seconds for record in records)
    rows = [("samples per second", f"{samples / seconds:.3g}")] if seconds else []
    told = [record for record in records if record.data_wait_share is not None]
    spent = sum(record.seconds for record in told)
    if spent:
        waited = sum((record.data_wait_share or 0.0) * record.seconds for record in told)
        operations = sum((record.flops_per_s or 0.0) * record.seconds for record in told)
        peak = max(record.peak_memory_gb or 0.0 for record in told)
        rows += [
            ("share of the time spent waiting for data", f"{waited / spent:.1%}"),
            ("achieved floating-point operations", f"{operations / spent / 1e9:.3g} GFLOP/s"),
            ("peak memory", f"{peak:.2f} GB"),
        ]
    skipped = sum(record.skipped_batches for record in records)
    return [*rows, ("batches skipped, not finite", str(skipped))] if skipped else rows


def _arrays(records: Sequence[EpochRecord]) -> dict[str, np.ndarray]:
    """Return one number for each epoch, NaN where it was not validated."""
    names = (
        "epoch",
        "train_loss",
        "validation_loss",
        "validation_nmae",
        "learning_rate",
        "seconds",
    )
    return {name: np.array([getattr(record, name) for record in records], float) for name in names}


_RUN_STAGES = {
    "load": "reading the dataset",
    "train": "training",
    "validation": "validation",
    "checkpoint": "checkpoints",
}


def stages_panel(context: Context) -> Panel:
    """Show seconds of each stage, and one prediction beside the solver."""
    rows = tuple((Cell(stage), Cell(f"{seconds:,.1f}")) for stage, seconds in stages(context))
    table = Table((Column("stage", is_number=False), Column("seconds")), rows)
    return Panel("stages", "Time", tables=(table,), note=_speed(context.evaluation))


def stages(context: Context) -> list[tuple[str, float]]:
    """Return names and seconds; stages without a record are left out."""
    dataset, timings = context.dataset, context.course.timings
    walls = [dataset[name].provenance.get("wall_time_s", {}) for name in dataset.design.index]
    solving = [
        (f"{words}, all cases", float(sum(wall.get(stage, 0.0) for wall in walls)))
        for stage, words in (("mesh", "meshing"), ("solve", "solving"))
        if any(stage in wall for wall in walls)
    ]
    training = [
        (words, float(getattr(timings, name)))
        for name, words in _RUN_STAGES.items()
        if timings is not None
    ]
    evaluation = context.evaluation
    predictions = count(evaluation.num_windows, f"{evaluation.split} prediction")
    return [*solving, *training, (predictions, evaluation.timing.prediction_total_s)]


def _speed(evaluation: Evaluation) -> str:
    timing = evaluation.timing
    span = (evaluation.step_s or 0.0) * evaluation.num_steps
    what = f"A rollout over {span:g} s" if span else "A case"
    where = timing.prediction_device
    if where == "CPU":
        where = f"{count(timing.prediction_threads, 'CPU thread')}"
    line = f"{what} takes {1000 * timing.prediction_s:.3g} ms on {where}"
    if timing.solver_s is None:
        return f"{line}; the dataset has no record of the solver's time."
    host = "" if timing.solver_host == "unknown" else f" ({timing.solver_host})"
    solver = f"{timing.solver_s:.3g} s for the same on its machine{host}"
    return f"{line}; the solver took {solver}."


def rollout_use_panel(context: Context) -> Panel:
    """Show code that predicts later states from a stored snapshot."""
    shown, steps = context.shown[0], context.evaluation.num_steps
    frame = _frame(shown.case, shown.start_s or 0.0)
    state = _state(context, _known_frames(context, shown))
    return _panel(
        context,
        f'case.points, case["{context.channels[0].field}"][{frame}], ds.design',
        f"surrogate.predict_case(case, start_s={shown.start_s!r}, steps={steps})",
        *(["import numpy"] if state.startswith("numpy") else []),
        f"initial = {state}",
        f"surrogate.predict(case.points, initial=initial, {_arguments(context, str(frame))}"
        f"steps={steps})",
    )


def field_use_panel(context: Context) -> Panel:
    """Show code that predicts solved fields from geometry, boundary and parameters."""
    return _panel(
        context,
        f'case.points, case["{context.channels[0].field}"][:], ds.design',
        "surrogate.predict_case(case)",
        f"surrogate.predict(case.points, {_arguments(context, ':')[:-2]})",
    )


def _panel(context: Context, look: str, *predict: str) -> Panel:
    dataset = context.dataset
    lines = (
        "import simgen",
        f"ds = simgen.open_dataset({quote(dataset.url)}, version={quote(dataset.version)})",
        f"case = ds[{quote(context.shown[0].case.id)}]",
        look,
        "",
        "import courant",
        f"surrogate = courant.load({quote(context.run.url)})",
        *predict,
    )
    return Panel("use", "Using the dataset and the model", code="\n".join(lines))


def _frame(case: StoredCase, at_s: float) -> int:
    """Return the number of the snapshot at a time."""
    return int(np.abs(np.asarray(case.time) - at_s).argmin())


def _known_frames(context: Context, shown: Shown) -> str:
    """Write the numbers of the snapshots that the shown prediction starts from as an index."""
    moments = context.surrogate.problem.input_times(shown.start_s or 0.0)
    frames = [_frame(shown.case, moment) for moment in moments.tolist()]
    if len(frames) == 1:
        return str(frames[0])
    return f"{frames[0]} : {frames[-1] + 1} : {frames[1] - frames[0]}"


def _state(context: Context, frames: str) -> str:
    """Write the modelled components of stored snapshots as an expression."""
    channels = context.channels
    names = _whole_field(channels, context)
    if names is not None:
        return f'case["{names}"][{frames}]'
    columns = [f'case["{each.field}"][{frames}][..., {each.column}]' for each in channels]
    return f"numpy.stack([{', '.join(columns)}], axis=-1)"


def _whole_field(channels: Sequence[Channel], context: Context) -> str | None:
    """Return the field whose components, all and in order, are modelled; else None."""
    for field in context.dataset.schema.fields:
        if [each.name for each in channels] == [f"{field.name}.{c}" for c in field.components]:
            return field.name
    return None


def _arguments(context: Context, frame: str) -> str:
    """Write a prediction's other arguments from a stored case, each followed by a comma."""
    normaliser = context.surrogate.normaliser
    is_field = context.surrogate.step_s is None
    takes_design = is_field or context.surrogate.experiment.model.num_parameters
    fields = dict.fromkeys(channel.field for channel in normaliser.given)
    given = ", ".join(f'"{name}": case["{name}"][{frame}]' for name in fields)
    parts = {
        "parameters=case.parameters, ": bool(normaliser.parameters and takes_design),
        "boundary=case.boundary, ": is_field and normaliser.has_boundary,
        "distance=(case.distance, case.direction), ": bool(normaliser.stored_kinds),
        f"given={{{given}}}, ": bool(fields),
    }
    return "".join(text for text, is_there in parts.items() if is_there)
