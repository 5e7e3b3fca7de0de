"""Write the report of a trained run: index.html with all its pictures, and the arrays beside it.

A panel is one function `(Context) -> Panel | None`; None where it does not apply, such as the
decomposition of a model that has none. A further one is a function in the file of its subject, and
its name in `SECTIONS`.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import groupby
from shlex import quote as shell

from matplotlib import rc_context

from courant.evaluation.evaluate import evaluate
from courant.evaluation.record import MODEL, Split
from courant.recipes import RECIPES
from courant.report import anchors, data_and_training, drawing, dynamics, errors, fields, flow
from courant.report import page as pages
from courant.report.context import Context, open_context
from courant.report.verdict import Verdict, judge_run, times
from courant.runs.directory import RunDirectory
from courant.runs.record import best_record, predict_command
from simgen.design_space import shown_unit, with_unit
from simgen.regression import LEAST_DESIGNS
from simgen.store.schema import COMMAND
from simgen.store.split import RATIOS

SECTIONS: dict[str, tuple[Callable[[Context], pages.Panel | None], ...]] = {
    "Fields": (
        fields.prediction_panel,
        flow.profiles_panel,
        flow.wall_panel,
        fields.streamlines_panel,
        fields.surface_panel,
    ),
    "Errors": (errors.errors_panel, errors.growth_panel, errors.case_panel),
    "Quantities and trust": (
        errors.quantities_panel,
        dynamics.monitor_panel,
        dynamics.rhythm_panel,
    ),
    "Data": (data_and_training.cases_panel,),
    "Training, cost and use": (
        data_and_training.training_panel,
        data_and_training.costs_panel,
        data_and_training.use_panel,
    ),
    pages.INSIDE: (
        anchors.decomposition_panel,
        anchors.maps_panel,
        anchors.anchor_table_panel,
        anchors.anchor_scores_panel,
        anchors.addresses_panel,
        dynamics.latents_panel,
    ),
}


def write_report(
    run_url: str, out: str, dataset_url: str | None = None, split: Split = "test"
) -> str:
    """Write the report's folder (a path or s3:// URL) on a split; returns the page's URL.

    `dataset_url` is where the dataset lies by now, if it was moved. Unchanged inputs are not drawn
    again. Where reports lie together, each in a folder with its run's name, their index is written
    anew.
    """
    run, folder = RunDirectory(run_url), RunDirectory(out)
    evaluation = evaluate(run_url, split, dataset_url)
    if (page := pages.current_page(run, folder, evaluation)) is not None:
        return page
    context = open_context(run, evaluation, dataset_url)
    with rc_context(drawing.STYLE):
        picture = fields.rollout_panel(context) or fields.still_panel(context)
        drawn_by = {name: [make(context) for make in made] for name, made in SECTIONS.items()}
    sections = {name: [each for each in of if each is not None] for name, of in drawn_by.items()}
    dataset, model = context.dataset, context.surrogate.model
    experiment, family = context.surrogate.experiment.name, dataset.schema.family
    weights = sum(parameter.numel() for parameter in model.parameters())
    meta = [
        f"run {run.url.rsplit('/', 1)[-1]}",
        f"dataset {dataset.version} of {dataset.info.time:%Y-%m-%d %H:%M} UTC",
        f"{model.config.kind}, {weights:,} weights",
    ]
    nmae = {name: evaluation.overall[name].nmae for name in evaluation.predictors}
    verdict, title = judge_run(run, evaluation), f"{family}: {experiment}"
    number, _, noun = pages.count(len(evaluation.cases), f"{evaluation.split} case").partition(" ")
    keys = {noun: number}
    status = dataset.design["status"]
    keys["cases accepted"] = f"{int((status == 'accepted').sum())} of {len(status)}"
    ledger = data_and_training.ledger_of(context)
    per = ledger.solver.per_prediction
    # Not where the solver's times differ by as much as they are, or the fields are not to be taken.
    is_taken = context.by == MODEL or evaluation.timing.given_processor_s is not None
    is_taken &= verdict.word != "not usable"
    if per is not None and per.low > 0 and ledger.prediction_s and is_taken:
        saved = times(per.mean / ledger.prediction_s)
        keys["fewer core-seconds than the solver, meshing aside"] = saved
    why, command = next_step(context, verdict)
    note, inside = f"Errors are means over {number} {noun}, bands medians over them.", ""
    if not (bands := errors.bands_of(context)) and (bands := errors.bands_in_the_middle(context)):
        note += " Bands are the middle design's: what was evaluated is beyond the known designs."
        inside = " Within the known designs, take quantities with the bands below."
    kinds = {(band.kind, band.num_cases) for of in bands.values() for band in of if band}
    found = [f"{num} cases, {kind}{' of the regression' * ('out' in kind)}" for kind, num in kinds]
    note += f" Bands come from {pages.listed(found)}; in brackets, over the mean answer."
    asked = predict_command(run, "design", dataset)
    if asked and bands and not verdict.given and verdict.word in ("not usable", "unproven"):
        why = f"Predict quantities of a design, with their bands. {why}"
        command = f"{asked}\n{command}"
    said = [*verdict.worst, verdict.measured, verdict.outlier, *verdict.reasons]
    if context.by == MODEL and (rhythm := context.dynamics) is not None:
        said.append(dynamics.fading(rhythm))
    said += [each.rstrip(".") for each in verdict.vague]
    lead = pages.Lead(
        verdict.word,
        inside or verdict.besides,
        [*filter(None, said)],
        keys,
        errors.lead_table(context, bands),
        note * bool(bands),
        why,
        command,
        picture,
        f"{verdict.given} " * bool(verdict.given),
        inputs_and_outputs(context),
    )
    drawn = pages.write_page(folder, title, meta, lead, sections)
    (first,) = picture.pictures
    best = min(evaluation.references, key=nmae.__getitem__)
    summary = pages.Summary(
        family=family,
        experiment=experiment,
        dataset=dataset.version,
        split=evaluation.split,
        verdict=str(verdict),
        nmae=nmae[MODEL],
        reference=best,
        reference_nmae=nmae[best],
        written=datetime.now(UTC),
        thumbnail=pages.data_url(pages.webp(drawn[first.name][first.opens_at][0], 320)),
    )
    folder.write_bytes(pages.SUMMARY, summary.model_dump_json(indent=2).encode())
    folder.write_json(pages.INPUTS, pages.inputs_of(run, evaluation))  # once all else is there
    if (parent := pages.parent_index(run, folder, evaluation.split)) is not None:
        pages.write_index(parent)
    return pages.page_url(folder)


def inputs_and_outputs(context: Context) -> str:
    """`In: radius 0.75 to 4 m. Out: velocity x and y (m/s), 10 steps of 10 s.`"""
    ranges = [
        f"{pages.plain(each.name)} {each.low:g} to {each.high:g} {shown_unit(each.unit)}".strip()
        for each in context.dataset.schema.parameters
    ]
    given, out = dict.fromkeys(each.field for each in context.surrogate.normaliser.given), []
    if context.evaluation.step_s is not None and context.by == MODEL:
        given |= {"the state at the start": None}
    for name, of in groupby(context.channels, lambda each: each.field):
        parts = list(of)
        axes = pages.listed([each.component for each in parts])
        out.append(with_unit(f"{pages.plain(name)} {axes}" if parts[1:] else name, parts[0].unit))
    steps = ""
    if (step_s := context.evaluation.step_s) is not None:
        steps = f", {pages.count(context.evaluation.num_steps, 'step')} of {step_s:g} s"
    into = ", ".join([*ranges, *map(pages.plain, given)])
    return f"In: {into or 'no parameters'}. Out: {', '.join(map(pages.plain, out))}{steps}."


MOST_UNSOLVED = 0.25
LEARNED = 2.0  # from this ratio of validation to training loss on, designs are what is lacking


def next_step(context: Context, verdict: Verdict) -> tuple[str, str]:
    """Return what to do next, and the commands for it; `courant train` prints those after it.

    Where regressed modes are clearly better, or designs are few, more designs help; modes that are
    regressed on the parameters have a command of their own for their fields.
    """
    dataset, run, surrogate = context.dataset, shell(context.run.url), context.surrogate
    store, _, name = dataset.url.rstrip("/").rpartition("/")
    out, _, runs = context.run.url.rpartition("/")[0].rpartition("/")
    again = f"courant run --dataset {shell(dataset.url)} --out {shell(out)}"
    if runs != "runs":
        again = f"courant train {shell(dataset.url)} --runs {shell(f'{out}/{runs}')}"
    recipe, training = surrogate.experiment.name, surrogate.experiment.training
    again += f" --recipe {recipe}" if recipe in RECIPES else ""
    longer = f"{again} --budget {max(10, round((training.budget_s or 0.0) / 12))}min"
    family = dataset.family if name == dataset.schema.family else None
    best = best_record(context.records) if training.budget_s else None
    little = best is not None and (best.validation_loss or 0.0) < LEARNED * best.train_loss
    # What is sampled again is found by its settings, and not solved twice.
    settings = surrogate.dataset["settings"]
    sampled = [
        record
        for case, record in dataset.records.items()
        if record["settings"] == settings and dataset.members.get(case) != "calibration"
    ]
    unsolved = sum(record["status"] in ("rejected", "failed") for record in sampled)
    if family is not None and unsolved > MOST_UNSOLVED * len(sampled):
        lost = f"{unsolved} of {len(sampled)} designs have no solution"
        why = f"{lost}: read why, and mend the case or leave their part of the ranges."
        return why, f"courant dataset show {shell(dataset.url)}"
    least = LEAST_DESIGNS * max(1, len(surrogate.space))
    lacking = bool(verdict.given) or len(dataset.cases("train")) < least
    if verdict.word != "usable" and little and not lacking:
        epochs = pages.count(training.epochs, "epoch")
        return f"Train for longer: its budget of time was for {epochs}.", longer
    if verdict.word == "usable" and (family is None or surrogate.bands is not None):
        return "Explore designs that nobody has solved.", f"courant explore {run}"
    better, again = "", longer if little else again
    if verdict.given and (command := predict_command(context.run, "fields", dataset)):
        better = f"Until then {verdict.given} predicts the fields of any design."
        again += f"\n{command}"
    if family is None:
        again = f"{dataset[0].provenance.get(COMMAND, '')}\n{again}".strip()
        return f"Import more cases, and train again. {better}".strip(), again
    more = f"courant generate {name} --store {shell(store)}{family.options(settings)}"
    if verdict.word == "usable":
        drawn = "--split calibration --sampler uniform --seed 7 --cases 60"
        return "Measure bands of error.", f"{more} {drawn}\ncourant calibrate {run}"
    number = max(2 * len(sampled), round(least / RATIOS["train"]))
    why = f"Solve more designs, {number} in all, and train again. {better}".strip()
    return why, f"{more} --cases {number}\n{again}"
