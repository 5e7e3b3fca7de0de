"""Figures and tables of dataset and training, the ledger of costs, and how to use the model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from json import dumps as quote

import numpy as np
from matplotlib.figure import Figure

from courant.evaluation.ledger import Interval, Ledger, solver_times
from courant.report.context import MODEL_COLOR, Context, ShownCase
from courant.report.page import Cell, Panel, PanelTable, Picture, count, listed, number, plain
from courant.runs.directory import RunDirectory
from courant.runs.record import EpochRecord
from courant.sweeps.sweep import TABLE, sweep_of
from simgen.design_space import with_unit
from simgen.errors import SimgenError
from simgen.publish.figures import SPLIT_COLORS, Triangles, designs, point_spacing, sample_cases
from simgen.store.read import Dataset, StoredCase


def designs_panel(context: Context) -> Panel | None:
    """Draw every design in the planes of its parameters; None where there are none."""
    names = [each.name for each in context.dataset.schema.parameters]
    if not names:
        return None
    table = context.dataset.design
    accepted = int((table["status"] == "accepted").sum())
    picture = Picture(
        "designs.png",
        "The sampled designs over their parameters. A case keeps its split in every later version"
        " of the dataset.",
        partial(designs, context.dataset),
        look_for="Gaps are designs that the model has never seen.",
        score=f"{accepted} of {len(table)} designs accepted",
    )
    arrays = {
        "cases": np.array(table.index.tolist(), dtype=str),
        "split": np.array([split or "" for split in table["split"]], dtype=str),
        "parameter_names": np.array(names),
        "parameters": table[names].to_numpy(float),
    }
    return Panel("designs", "Designs", [picture], arrays=arrays)


NUM_THUMBNAILS = 12
RUN_PARTS = {"load": "reading the dataset", "train": "training", "checkpoint": "checkpoints"}


def cases_panel(context: Context) -> Panel:
    """Show a table of all cases, the first modelled field of some, and the mesh of one."""
    dataset, shown = context.dataset, context.shown[0]
    schema, case, field = dataset.schema, shown.case, context.channels[0].field
    accepted = [dataset[name] for name in dataset.cases()[:NUM_THUMBNAILS]]
    ended = dataset.design["status"].value_counts().to_dict()
    outcomes = listed([f"{total} {status}" for status, total in ended.items()])
    components = next(each.components for each in schema.fields if each.name == field)
    what = plain(field) if len(components) == 1 else f"Magnitude of {plain(field)}"
    pictures = [
        Picture(
            "cases.png",
            f"{what[0].upper()}{what[1:]}{' at the last snapshot' if schema.transient else ''}"
            f"{' in the middle plane' if schema.dimension == 3 else ''} of"
            f" {count(len(accepted), 'accepted case')}, on one colour scale.",
            partial(sample_cases, accepted, field),
            look_for="This is what the solver made of the designs: an odd one stands out here.",
            score=f"{outcomes} of {count(len(dataset.design), 'case')}",
            arrays={"shown": np.array([each.id for each in accepted])},
        )
    ]
    arrays = {"mesh_points": np.asarray(case.points)}
    if isinstance(shown.layer, Triangles):
        pictures.append(
            Picture(
                "mesh.png",
                f"Cell centres of case {case.id}{shown.inside}, joined to triangles"
                f"{', and its boundary faces by patch kind' if schema.boundary else ''}.",
                partial(draw_mesh, case, shown.layer),
                look_for="Errors count every point alike: where points are dense, they count most.",
                score=f"{case.num_points:,} cells",
                arrays=arrays,
            )
        )
    note = f"Outcomes of all cases: {outcomes}."
    return Panel("cases", "Cases", pictures, [case_table(dataset)], note, arrays=arrays)


def case_table(dataset: Dataset) -> PanelTable:
    """One row for each case, rejected and failed ones included."""
    cases = [dataset[name] for name in dataset.design.index]
    figures = {
        label: {case.id: case.provenance.get("figures", {}).get(name) for case in cases}
        for name, label in (("max_courant", "max Courant"), ("mass_imbalance", "mass imbalance"))
    }
    rows = []
    for case in cases:
        is_accepted, passed = case.status == "accepted", sum(bool(g["passed"]) for g in case.gates)
        ended = f"{case.status}: {case.reason}" if case.reason else case.status
        row: dict[str, str | Cell] = {"case": case.id}
        for each in dataset.schema.parameters:
            row[with_unit(each.name, each.unit)] = number(case.parameters[each.name])
        row["status"] = Cell.judged(ended, None if is_accepted else False)
        row["split"] = case.split or ""
        row["cells"] = f"{case.num_points:,}" if is_accepted else ""
        row["gates passed"] = f"{passed} of {len(case.gates)}" if case.gates else ""
        for label, values in figures.items():
            if any(map(_is_finite, values.values())):
                row[label] = number(values[case.id]) if _is_finite(values[case.id]) else ""
        row["solve (s)"] = number(case.provenance.get("wall_time_s", {}).get("solve"))
        rows.append(row)
    return PanelTable(rows, words=("case", "status", "split"))


def _is_finite(value: object) -> bool:
    return isinstance(value, float | int) and math.isfinite(value)


def draw_mesh(case: StoredCase, triangles: Triangles) -> Figure:
    """Draw the case's cell centres as a triangulation, and its boundary (at the plane) by kind."""
    across, up = triangles.axes
    height = float(np.clip(11.5 * triangles.aspect, 3.5, 8)) + 0.6
    figure = Figure(figsize=(12, height), layout="constrained")
    axis = figure.subplots()
    axis.triplot(triangles.triangulation, lw=0.35, color="#8a8a8a")
    axis.set(aspect="equal", xlabel=f"{'xyz'[across]} (m)", ylabel=f"{'xyz'[up]} (m)")
    if not case.dataset.schema.boundary:
        return figure
    kinds, points = case.boundary.patch, case.boundary.points
    shown = np.ones(len(points), dtype=bool)
    if case.dataset.schema.dimension == 3:
        off_plane = np.abs(points[:, 3 - across - up] - triangles.position)
        shown = off_plane <= np.median(point_spacing(case))
    for kind, name in enumerate(case.patch_kinds):
        chosen = points[(kinds == kind) & shown]
        label = f"{name} ({count(int((kinds == kind).sum()), 'face')})"
        axis.plot(chosen[:, across], chosen[:, up], ".", ms=4, label=label)
    columns = len(case.patch_kinds)
    figure.legend(loc="outside upper center", ncols=columns, frameon=False, fontsize=9)
    return figure


def training_panel(context: Context) -> Panel | None:
    """Show loss curves and throughput; None for a run without records of its epochs."""
    records, status = context.records, context.status
    if not records:
        return None
    best = ""
    if status is not None and status.best_epoch is not None:
        best = (
            f" The report evaluates the weights of epoch {status.best_epoch}, which has the lowest"
            " validation loss."
        )
    known = [each.validation_nmae for each in records if each.validation_nmae is not None]
    lowest = f", lowest validation NMAE {min(known):.3f}" if known else ""
    picture = Picture(
        "loss_curves.png",
        f"The loss in standardised units, and the learning rate.{best}",
        partial(draw_training, records),
        look_for="A validation loss that still falls at the end asks for more epochs; one that"
        " rises while the training loss falls asks for more cases.",
        score=f"{len(records)} epochs{lowest}",
    )
    names = (
        "epoch",
        "train_loss",
        "validation_loss",
        "validation_nmae",
        "learning_rate",
        "seconds",
    )
    return Panel(
        "training",
        "Training",
        [picture],
        [_two_columns("throughput", "", throughput(records))],
        note="Floating-point operations count matrix products and attention, forward and backward,"
        " on the first batch. Peak memory is that of the first worker: the memory allocated on its"
        " GPU or, on a CPU, that of the whole process.",
        arrays={
            name: np.array([getattr(record, name) for record in records], float) for name in names
        },
    )


def draw_training(records: Sequence[EpochRecord]) -> Figure:
    """Draw training and validation loss on a log scale, the learning rate below."""
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    loss, rate = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    epochs = [record.epoch for record in records]
    losses = [record.train_loss for record in records]
    loss.plot(epochs, losses, color=MODEL_COLOR, label="training")
    validated = [record for record in records if record.validation_loss is not None]
    if validated:
        at, losses_there = zip(
            *((each.epoch, each.validation_loss) for each in validated), strict=True
        )
        color = SPLIT_COLORS["validation"]
        loss.plot(at, losses_there, "o-", ms=3, color=color, label="validation")
    loss.set(ylabel="loss (standardised)", yscale="log")
    loss.grid(alpha=0.25, which="both")
    loss.legend(frameon=False)
    rate.plot(epochs, [record.learning_rate for record in records], color="#555555")
    rate.set(xlabel="epoch", ylabel="learning rate", ylim=(0, None))
    rate.grid(alpha=0.25)
    return figure


def _two_columns(name: str, value: str, rows: Sequence[tuple[str, str]]) -> PanelTable:
    return PanelTable([{name: text, value: number} for text, number in rows], words=(name,))


def throughput(records: Sequence[EpochRecord]) -> list[tuple[str, str]]:
    """Return names and values of the throughput, over all epochs that record it."""
    seconds = sum(record.seconds for record in records)
    samples = sum(record.samples_per_s * record.seconds for record in records)
    rows = [("samples per second", f"{samples / seconds:.3g}")] if seconds else []
    timed = [record for record in records if record.data_wait_share is not None]
    if spent := sum(record.seconds for record in timed):
        waited = sum((record.data_wait_share or 0.0) * record.seconds for record in timed)
        operations = sum((record.flops_per_s or 0.0) * record.seconds for record in timed)
        peak = max(record.peak_memory_gb or 0.0 for record in timed)
        rows += [
            ("share of the time spent waiting for data", f"{waited / spent:.1%}"),
            ("achieved floating-point operations", f"{operations / spent / 1e9:.3g} GFLOP/s"),
            ("peak memory", f"{peak:.2f} GB"),
        ]
    if skipped := sum(record.skipped_batches for record in records):
        rows.append(("batches skipped, not finite", str(skipped)))
    return rows


def stages_panel(context: Context) -> Panel:
    """Show seconds of each stage, and one prediction beside the solver."""
    evaluation, dataset = context.evaluation, context.dataset
    timing, status = evaluation.timing, context.status
    walls = [dataset[name].provenance.get("wall_time_s", {}) for name in dataset.design.index]
    seconds = {
        f"{words}, all cases": sum(wall.get(stage, 0.0) for wall in walls)
        for stage, words in (("mesh", "meshing"), ("solve", "solving"))
        if any(stage in wall for wall in walls)
    }
    if status is not None:
        seconds |= {RUN_PARTS.get(part, part): spent for part, spent in status.seconds.items()}
    predictions = count(evaluation.num_windows, f"{evaluation.split} prediction")
    seconds[predictions] = timing.prediction_total_s
    span = (evaluation.step_s or 0.0) * evaluation.num_steps
    what = f"A rollout over {span:g} s" if span else "A case"
    threads = count(timing.prediction_threads, "CPU thread")
    where = threads if timing.prediction_device == "CPU" else timing.prediction_device
    host = "" if timing.solver_host == "unknown" else f" ({timing.solver_host})"
    solver = (
        "the dataset has no record of the solver's time"
        if timing.solver_s is None
        else f"the solver took {timing.solver_s:.3g} s for the same on its machine{host}"
    )
    rows = [(stage, f"{float(spent):,.1f}") for stage, spent in seconds.items()]
    return Panel(
        "stages",
        "Time",
        tables=[_two_columns("stage", "seconds", rows)],
        note=f"{what} takes {1000 * timing.prediction_s:.3g} ms on {where}; {solver}.",
    )


def ledger_panel(context: Context) -> Panel:
    """Show core-seconds, and the number of predictions at which they are even."""
    evaluation, unknown = context.evaluation, "not on record"
    ledger = Ledger(
        solver=solver_times(context.dataset, context.surrogate.problem, tuple(evaluation.cases)),
        training=Interval(sum(record.processor_s for record in context.records), None, 1),
        tuning_s=tuning_seconds(context.run),
        prediction_s=evaluation.timing.prediction_processor_s,
    )
    solver, saved, even = ledger.solver, ledger.saved_s, ledger.break_even
    designs = count(solver.num_solved, "design")
    spent = {
        f"meshing and solving {designs} for the training": solver.spent_s,
        "training": ledger.training.mean,
        "search for settings": ledger.tuning_s,
    }
    rows = [(name, unknown if s is None else f"{s:,.1f}") for name, s in spent.items()]
    per = solver.per_prediction.text() if solver.per_prediction else unknown
    rows += [
        ("the solver, for the case or span of a prediction", per),
        ("a prediction", f"{ledger.prediction_s:.3g}"),
        ("saved by a prediction", unknown if saved is None else f"{saved:.3g}"),
        ("number of predictions until it breaks even", even.text() if even else unknown),
    ]
    searched = " The run is not part of a sweep, so there is no search to count."
    return Panel(
        "ledger",
        "Cost and savings",
        tables=[_two_columns("", "core-seconds", rows)],
        note="Core-seconds are CPU seconds of the solver (wall time times cores where it printed"
        " none), of training and of prediction (on a GPU the time for which it was held). Designs"
        " are those of training and validation, including rejected and failed ones. Meshing is not"
        " saved, since a prediction needs points as well. The interval is the 95 % interval of the"
        f" solver's time over the predicted cases.{searched if ledger.tuning_s is None else ''}",
    )


def tuning_seconds(run: RunDirectory) -> float | None:
    """Return what the other trials of the run's sweep took; None for a run of no sweep."""
    sweep, name = sweep_of(run), run.url.rstrip("/").rpartition("/")[2]
    if sweep is None:
        return None
    try:
        rows = sweep.read_json(TABLE)
        return sum(float(row["seconds"]) for row in rows if not row["run"].endswith(f"/{name}"))
    except (SimgenError, KeyError, TypeError, ValueError, AttributeError):
        return None


def use_panel(context: Context) -> Panel:
    """Show code that reads the data and predicts: from a stored state, or a whole field."""
    surrogate, shown, dataset = context.surrogate, context.shown[0], context.dataset
    normaliser, field = surrogate.normaliser, context.channels[0].field
    is_steady = surrogate.step_s is None
    frame = ":" if is_steady else str(_frame(shown, shown.start_s or 0.0))
    given = ", ".join(
        f'"{name}": case["{name}"][{frame}]'
        for name in dict.fromkeys(channel.field for channel in normaliser.given)
    )
    takes_design = is_steady or surrogate.experiment.model.num_parameters
    parts = {
        "parameters=case.parameters": normaliser.parameters and takes_design,
        "boundary=case.boundary": is_steady and normaliser.has_boundary,
        "distance=(case.distance, case.direction)": normaliser.stored_kinds,
        f"given={{{given}}}": given,
    }
    known = [text for text, is_there in parts.items() if is_there]
    if is_steady:
        predict = [
            "surrogate.predict_case(case)",
            f"surrogate.predict({', '.join(['case.points', *known])})",
        ]
    else:
        steps, state = context.evaluation.num_steps, _state(context)
        arguments = ["case.points", "initial=initial", *known, f"steps={steps}"]
        predict = [
            f"surrogate.predict_case(case, start_s={shown.start_s!r}, steps={steps})",
            *(["import numpy"] if state.startswith("numpy") else []),
            f"initial = {state}",
            f"surrogate.predict({', '.join(arguments)})",
        ]
    lines = (
        "import simgen",
        f"ds = simgen.open_dataset({quote(dataset.url)}, version={quote(dataset.version)})",
        f"case = ds[{quote(shown.case.id)}]",
        f'case.points, case["{field}"][{frame}], ds.design',
        "",
        "import courant",
        f"surrogate = courant.load({quote(context.run.url)})",
        *predict,
    )
    return Panel("use", "Using the dataset and the model", code="\n".join(lines))


def _frame(shown: ShownCase, at_s: float) -> int:
    """Return the number of the snapshot at a time."""
    return int(np.abs(np.asarray(shown.case.time) - at_s).argmin())


def _state(context: Context) -> str:
    """Write the modelled components of the snapshots that a prediction starts from as code."""
    shown, channels = context.shown[0], context.channels
    moments = context.surrogate.problem.input_times(shown.start_s or 0.0)
    first, *others = [_frame(shown, moment) for moment in moments.tolist()]
    frames = f"{first} : {others[-1] + 1} : {others[0] - first}" if others else str(first)
    for field in context.dataset.schema.fields:
        if [each.name for each in channels] == [f"{field.name}.{c}" for c in field.components]:
            return f'case["{field.name}"][{frames}]'
    columns = [f'case["{each.field}"][{frames}][..., {each.column}]' for each in channels]
    return f"numpy.stack([{', '.join(columns)}], axis=-1)"
