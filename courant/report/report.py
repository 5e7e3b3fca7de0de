"""Write the report of a trained run: index.html with all its pictures, and the arrays beside it.

A panel is one function `(Context) -> Panel | None`; None where it does not apply, such as the
decomposition of a model that has none. A further one is a function in the file of its subject, and
its name in `PANELS`.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from matplotlib import rc_context

from courant.evaluation.evaluate import evaluate
from courant.evaluation.record import MODEL, read_evaluation
from courant.report import anchors, data_and_training, drawing, dynamics, errors, fields
from courant.report import page as pages
from courant.report.context import Context, open_context
from courant.runs.directory import RunDirectory
from courant.runs.record import ENVIRONMENT

PANELS: tuple[Callable[[Context], pages.Panel | None], ...] = (
    fields.prediction_panel,
    fields.rollout_panel,
    fields.streamlines_panel,
    fields.surface_panel,
    errors.growth_panel,
    dynamics.monitor_panel,
    errors.errors_panel,
    errors.case_panel,
    errors.quantities_panel,
    errors.sensitivity_panel,
    errors.parity_panel,
    anchors.decomposition_panel,
    anchors.maps_panel,
    anchors.anchor_table_panel,
    anchors.anchor_scores_panel,
    anchors.addresses_panel,
    dynamics.frequencies_panel,
    data_and_training.cases_panel,
    data_and_training.training_panel,
    data_and_training.costs_panel,
    data_and_training.use_panel,
)


def write_report(run_url: str, out: str, dataset_url: str | None = None) -> str:
    """Write the report's folder (a path or s3:// URL); returns the page's URL.

    `dataset_url` is where the dataset lies by now, if it was moved. Unchanged inputs are not drawn
    again. Where reports lie together, each in a folder with its run's name, their index is written
    anew.
    """
    run, folder = RunDirectory(run_url), RunDirectory(out)
    evaluation = read_evaluation(run) or evaluate(run_url, dataset_url=dataset_url)
    if (page := pages.current_page(run, folder, evaluation)) is not None:
        return page
    context = open_context(run, evaluation, dataset_url)
    with rc_context(drawing.STYLE):
        made = [make(context) for make in PANELS]
    panels = [panel for panel in made if panel is not None]
    dataset, model = context.dataset, context.surrogate.model
    experiment, family = context.surrogate.experiment.name, dataset.schema.family
    weights = sum(parameter.numel() for parameter in model.parameters())
    meta = [
        f"run {run.url.rsplit('/', 1)[-1]}",
        f"dataset {dataset.version} of {dataset.info.time:%Y-%m-%d %H:%M} UTC,"
        f" snapshot {dataset.snapshot_id}",
        f"{model.config.kind}, {weights:,} weights",
    ]
    if run.exists(ENVIRONMENT):
        environment = run.read_object(ENVIRONMENT)
        workers = environment.get("workers")
        meta.append(f"trained on {environment.get('device')}, number of workers {workers}")
    nmae = {name: evaluation.overall[name].nmae for name in evaluation.predictors}
    keys = {f"NMAE, {name}": f"{value:.3f}" for name, value in nmae.items()}
    keys[f"relative L2, {MODEL}"] = f"{evaluation.overall[MODEL]['relative_l2']:.3f}"
    status = dataset.design["status"]
    keys["cases accepted"] = f"{int((status == 'accepted').sum())} / {len(status)}"
    if (factor := evaluation.timing.speed_up) is not None:
        keys["the solver's speed"] = f"{float(f'{factor:.2g}'):,.15g}×"
    verdict, title = pages.summary_line(evaluation), f"{family}: {experiment}"
    shown = [guide(context, panels), *panels]
    files, drawn = pages.write_page(folder, title, meta, verdict, shown, keys)
    best = min(evaluation.references, key=nmae.__getitem__)
    summary = pages.Summary(
        family=family,
        experiment=experiment,
        dataset=dataset.version,
        split=evaluation.split,
        verdict=verdict,
        nmae=nmae[MODEL],
        reference=best,
        reference_nmae=nmae[best],
        written=datetime.now(UTC),
        thumbnail=pages.data_url(pages.webp(next(iter(drawn.values()))[0], 320)),
    )
    folder.write_bytes(pages.SUMMARY, summary.model_dump_json(indent=2).encode())
    pages.keep_inputs(run, folder, evaluation, [*files, pages.SUMMARY])
    if (parent := pages.parent_index(run, folder)) is not None:
        pages.write_index(parent)
    return pages.page_url(folder)


WORDS = (
    "An anchor is a vector of numbers in the model (its latent), usually with a position in space."
    " A prediction is exactly a constant plus one field for each anchor. At each point the anchors"
    " have weights that sum to one; the largest weight is that of the dominant anchor. Where"
    " fields of anchors have signs, red is positive, blue is negative and white is zero. NMAE is"
    " the sum of absolute errors over the sum of absolute values. References are simple predictions"
    " without a network. A std is the standard deviation of a component over the training cases."
)


def guide(context: Context, panels: Sequence[pages.Panel]) -> pages.Panel:
    """Return the panel that leads to the others; questions without a panel are left out."""
    where_wrong = one_anchor = ""
    if context.surrogate.decomposes:
        energies = context.scores.fields.energies
        strongest = int(energies.argmax())
        share = energies[strongest] / (float(energies.sum()) or 1.0)
        one_anchor = (
            "Its row shows its field, and its part in the error. The strongest in the first case is"
            f" anchor {strongest}, with {share:.0%} of the fields' energy."
        )
        if (found := context.scores.addresses) is not None:
            worst = int(found.worst[0])
            part = found.errors[worst] / (found.total or 1.0)
            where_wrong = (
                f"In the first case mostly where anchor {worst} has weight: {part:.0%} of the"
                f" squared error, on {found.governed[worst]:.0%} of the volume."
            )
    # By panel, in the order in which they come to mind.
    answers = {
        "errors_over_rollout" if context.evaluation.step_s else "errors": (
            "How good is it?",
            "See the line above. A model is useful where its error is below the references'.",
        ),
        "errors_by_case": (
            "Is it right in my design?",
            "Find your parameters in the pictures: see the error of the points around them.",
        ),
        "monitor": (
            "Can I trust this rollout?",
            "Up to the flag. Beyond it the latents have left the states of the training.",
        ),
        "error_addresses": ("Where is it wrong?", where_wrong),
        "rollout": (
            "When does the prediction leave the solution?",
            "Play the first case: solution, prediction and error, step by step.",
        ),
        "anchor_table": ("What does anchor 14 do?", one_anchor),
        "anchor_maps": (
            "Where does an anchor have weight, and which input does it read?",
            "The first picture shows its weight, the second which input points it reads.",
        ),
        "anchor_scores": (
            "Can I interpret the field of one anchor?",
            "Only where the scores are marked ✓ and better than the random partition's.",
        ),
        "frequencies": (
            "Does a long rollout keep the frequency of the flow?",
            "Yes, as long as the drift stays in the green band of the first picture.",
        ),
        "quantities": (
            "Are drag, loss or head right?",
            "Yes, if the points lie nearer to the line than the diamonds.",
        ),
        "use": ("How do I use the model?", "Paste these lines into Python."),
    }
    there = {panel.name: panel for panel in panels}
    rows: list[pages.Row] = []
    for name, (question, answer) in answers.items():
        if name in there:
            scores = [f" {picture.score}." for picture in there[name].pictures[:1]]
            link = pages.Cell(there[name].title, panel=name)
            rows.append(
                {"you ask": question, "short answer": answer + "".join(scores), "look at": link}
            )
    table = pages.PanelTable(rows, words=("you ask", "short answer", "look at"))
    return pages.Panel("guide", "How to read this", tables=[table], note=WORDS)
