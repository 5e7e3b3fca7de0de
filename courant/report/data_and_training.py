"""Figures and tables of dataset and training, the ledger of costs, and how to use the model."""

import math
from collections.abc import Sequence
from json import dumps as quote

import numpy as np
import pandas
from matplotlib.figure import Figure

from courant.evaluation.ledger import Interval, Ledger, solver_times
from courant.evaluation.quantities import recorded
from courant.evaluation.record import MODEL
from courant.report import drawing
from courant.report import page as pages
from courant.report.context import Context
from courant.report.page import Cell, Panel, PanelTable, Picture, count, listed, number, plain
from courant.runs.directory import RunDirectory
from courant.runs.record import read_records
from courant.sweeps.sweep import TRIALS, sweep_of
from simgen.design_space import with_unit
from simgen.point_cloud import point_tree
from simgen.publish.figures import designs, last_state, sample_cases
from simgen.store.read import Dataset, StoredCase


def cases_panel(context: Context) -> Panel:
    """Show the designs, the first modelled field of some cases, and a table of all."""
    dataset, field = context.dataset, context.channels[0].field
    accepted = [dataset[name] for name in dataset.cases()[:MOST_CASES]]
    odd, far = odd_one(accepted, field)
    drawn = [each for each in accepted if each is not odd][:5]
    ended = dataset.design["status"].value_counts().to_dict()
    outcomes = listed([f"{total} {status}" for status, total in ended.items()])
    when = " at the last snapshot" if dataset.schema.transient else ""
    pictures = [
        Picture(
            "cases.png",
            f"The solved {plain(field)}{when} of {count(len(drawn) + 1, 'accepted case')}, on one"
            f" colour scale; of a 3D case in its middle plane. Case {odd.id} is the odd one of"
            f" {count(len(accepted), 'case')}: over its size, its field is {far:.2g} times as far"
            " from their mean as the median one's.",
            sample_cases([*drawn, odd], field),
            look_for="This is what the solver made of the designs; the last one is the odd one.",
            score=f"{outcomes} of {count(len(dataset.design), 'case')}",
        )
    ]
    if dataset.schema.parameters:
        designed = Picture(
            "designs.png",
            "The sampled designs over their parameters. A case keeps its split in every later"
            " version of the dataset.",
            designs(dataset),
            look_for="Gaps are designs that the model has never seen.",
            score=f"{ended.get('accepted', 0)} of {count(len(dataset.design), 'design')} accepted",
        )
        pictures.insert(0, designed)
    return Panel("cases", "Designs and cases", pictures, [case_table(dataset)])


MOST_CASES, PROBES = 200, 1000  # that the odd case is looked for among, and at


def odd_one(cases: Sequence[StoredCase], field: str) -> tuple[StoredCase, float]:
    """Return the case whose field, over its size, is farthest from their mean, and how far."""
    probes = cases[0].points[:: max(1, len(cases[0].points) // PROBES)]
    found = [last_state(each, field)[point_tree(each.points).query(probes)[1]] for each in cases]
    shapes = np.stack([each.ravel() / (np.linalg.norm(each) or 1.0) for each in found])
    distances = np.linalg.norm(shapes - shapes.mean(axis=0), axis=1)
    worst = int(distances.argmax())
    return cases[worst], float(distances[worst] / (np.median(distances) or 1.0))


def case_table(dataset: Dataset) -> PanelTable:
    """One row for each case, rejected and failed ones included."""
    rows = []
    for case in map(dataset.__getitem__, dataset.design.index):
        is_accepted, passed = case.status == "accepted", sum(bool(g["passed"]) for g in case.gates)
        ended = f"{case.status}: {case.reason}" if case.reason else case.status
        row: dict[str, str | Cell] = {"case": case.id}
        for each in dataset.schema.parameters:
            row[with_unit(plain(each.name), each.unit)] = number(case.parameters[each.name])
        row["status"] = Cell.judged(ended, None if is_accepted else False)
        row["split"] = case.split or ""
        for quantity in dataset.computed:
            (solved,) = recorded(dataset, quantity.name, [case.id]).tolist()
            text = number(solved) if math.isfinite(solved) else ""
            row[with_unit(plain(quantity.name), quantity.unit)] = text
        row["cells"] = f"{case.num_points:,}" if is_accepted else ""
        row["gates passed"] = f"{passed} of {len(case.gates)}"
        for name in ("max_courant", "mass_imbalance"):
            value = case.provenance.get("figures", {}).get(name)
            # Of steady cases the Courant number is zero.
            if isinstance(value, float | int) and math.isfinite(value) and value:
                row[plain(name)] = number(value)
        walls = case.provenance.get("wall_time_s", {}).values()
        row["mesh and solver (wall s)"] = number(sum(walls)) if walls else ""
        rows.append(row)
    return PanelTable(rows, words=("case", "status", "split"))


def training_panel(context: Context) -> Panel | None:
    """Show loss curves; None for a run without records of its epochs."""
    records, status = context.records, context.status
    if not records:
        return None
    names = ["train_loss", "validation_loss", "validation_nmae", "learning_rate", "seconds"]
    table = pandas.DataFrame(list(records))[["epoch", *names]].astype(float)
    epochs = table["epoch"]
    figure = Figure(figsize=(drawing.WIDTH, 3.2))
    loss = figure.subplots()
    loss.plot(epochs, table["train_loss"], color=drawing.MODEL_COLOR, label="training")
    validated = table["validation_loss"].notna()
    at, losses = epochs[validated], table["validation_loss"][validated]
    loss.plot(at, losses, "o-", ms=3, color=drawing.PALETTE[1], label="validation")
    loss.set(xlabel="epoch", ylabel="loss (standardised)", yscale="log")
    loss.locator_params("x", integer=True)
    loss.legend()
    lowest = table["validation_nmae"].min()
    notes = ["The loss in standardised units."]
    if status is not None and status.best_epoch is not None:
        notes.append(f"Evaluated is epoch {status.best_epoch}, of the lowest validation loss.")
    if skipped := sum(record.skipped_batches for record in records):
        notes.append(f"{count(skipped, 'batch')} not finite: skipped.")
    picture = Picture(
        "loss_curves.png",
        " ".join(notes),
        figure,
        look_for="A validation loss that still falls at the end asks for more epochs; one that"
        " rises while the training loss falls asks for more cases.",
        score=f"{len(records)} epochs"
        + ("" if math.isnan(lowest) else f", lowest validation NMAE {lowest:.3f}"),
    )
    arrays = {str(name): values.to_numpy() for name, values in table.items()}
    return Panel("training", "Training", [picture], arrays=arrays)


def costs_panel(context: Context) -> Panel:
    """Show what was spent in core-seconds, and when a prediction's savings are even."""
    evaluation, unknown = context.evaluation, "not on record"
    timing = evaluation.timing
    span = (evaluation.step_s or 0.0) * evaluation.num_steps
    what = f"a rollout over {span:g} s" if span else "one case"
    what = f"A prediction is of {what} by {pages.called(context.by)}"
    what += ", a regression included; the training is the network's" * (context.by != MODEL)
    threads = count(timing.prediction_threads, "CPU thread")
    where = threads if timing.prediction_device == "CPU" else timing.prediction_device
    ledger = ledger_of(context)
    solver, saved, even = ledger.solver, ledger.saved_s, ledger.break_even
    per, solved = solver.per_prediction, ""
    if timing.solver_host != "unknown":
        solved = f", the solver on {timing.solver_host}"
    designs = count(solver.num_solved, "design")
    spent = {
        f"meshing and solving {designs} for the training": solver.spent_s,
        "training": ledger.training.mean,
    }
    if ledger.tuning_s is not None:
        spent["the sweep that found its settings"] = ledger.tuning_s
    rows = {name: unknown if s is None else f"{s:,.1f}" for name, s in spent.items()}
    wide = per is not None and per.low <= 0
    took = f"{number(per.mean, 2)}, differs as much by case" if per and wide else ""
    rows["the solver, for the same as a prediction"] = took or (per.text(2) if per else unknown)
    rows["a prediction"] = number(ledger.prediction_s, 2)
    rows["saved by a prediction"] = number(saved, 2) or unknown
    rows["number of predictions until it breaks even"] = even.text() if even else unknown
    return Panel(
        "costs",
        "Cost and savings",
        tables=[
            PanelTable(
                [{"ledger": of, "core-seconds": spent} for of, spent in rows.items()], ("ledger",)
            )
        ],
        note=f"{what}; it ran on {where}{solved}. Core-seconds are CPU seconds of the solver (wall"
        " time times cores where it printed none), of training and of prediction (on a GPU the time"
        " that it was held for). Designs are those of training and validation, rejected and failed"
        " ones included. Meshing is not saved: a prediction needs points as well. The interval is"
        " the 95 % one of the solver's time over the accepted cases.",
    )


def ledger_of(context: Context) -> Ledger:
    """Return the costs of the run, and the savings of its predictions."""
    cases, timing = context.dataset.cases(), context.evaluation.timing
    own = None if context.by == MODEL else timing.given_processor_s
    workers = context.surrogate.experiment.training.workers
    return Ledger(
        solver=solver_times(context.dataset, context.surrogate.problem, cases),
        # The record of an epoch has the time of one worker, and all do the same.
        training=Interval(workers * sum(each.processor_s for each in context.records), None, 1),
        tuning_s=tuning_seconds(context.run),
        prediction_s=timing.prediction_processor_s if own is None else own,
    )


def tuning_seconds(run: RunDirectory) -> float | None:
    """Return the core-seconds of the other trials of the run's sweep; None for one of no sweep."""
    if (sweep := sweep_of(run)) is None:
        return None
    others = (sweep / TRIALS / name for name in sweep.names(TRIALS) if name != run.name)
    return sum(record.processor_s for each in others for record in read_records(each))


def use_panel(context: Context) -> Panel:
    """Show code that reads the data and predicts."""
    shown, dataset, steps = context.shown[0], context.dataset, context.evaluation.num_steps
    field, frame, rollout = context.channels[0].field, ":", ""
    if shown.start_s is not None:
        frame = str(np.abs(np.asarray(shown.case.time) - shown.start_s).argmin())
        rollout = f", start_s={shown.start_s:.6g}, steps={steps}"
    lines = (
        "import simgen",
        f"ds = simgen.open_dataset({quote(dataset.url)}, version={quote(dataset.version)})",
        f"case = ds[{quote(shown.case.id)}]",
        f'case.points, case["{field}"][{frame}], ds.design',
        "",
        "import courant",
        f"surrogate = courant.load({quote(context.run.url)})",
        f"surrogate.predict_case(case{rollout})  # {', '.join(context.surrogate.channels)}",
        "help(surrogate.predict)  # at points of your own, without a case",
    )
    return Panel("use", "Using the dataset and the model", code="\n".join(lines))
