"""Render a report's page and the files beside it, from panels; the guide leads to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jinja2

from courant.evaluation.record import MODEL, Evaluation
from courant.report.context import Context
from courant.report.drawing import data_url, webp_of_png
from courant.report.panel import Cell, Column, Panel, Table
from courant.report.verdict import summary_line
from courant.report.wording import count
from courant.runs.directory import RunDirectory
from courant.runs.record import Environment
from simgen.publish.field_plots import png_bytes

WORDS = (
    "An anchor is a vector of numbers in the model (its latent), usually with a position in"
    " space; a model often has a few dozen of them. A prediction is exactly a constant plus one"
    " field for each anchor. At each point the anchors have weights that sum to one; the anchor"
    " with the largest weight is the dominant one there. NMAE is the sum of absolute errors over"
    " the sum of absolute values. References are simple predictions without a network, such as"
    " persistence, which holds the initial state. A unit of std is the standard deviation of a"
    " component over the training cases, so that 0.1 is a tenth of the usual variation of the"
    " flow."
)


def guide(context: Context, panels: Sequence[Panel]) -> Panel:
    """Return the panel that leads to the others; questions without a panel are left out."""
    there = {panel.name: panel for panel in panels}
    rows = [
        (
            Cell(question),
            Cell(_with_score(answer, there[name])),
            Cell(there[name].title, panel=name),
        )
        for question, name, answer in _questions(context)
        if name in there
    ]
    columns = (
        Column("you ask", is_number=False),
        Column("short answer", is_number=False),
        Column("look at", is_number=False),
    )
    return Panel("guide", "How to read this", tables=(Table(columns, tuple(rows)),), note=WORDS)


def _with_score(answer: str, panel: Panel) -> str:
    """Add the number that the panel's first picture stands for."""
    scores = [*(each.score for each in panel.animations), *(each.score for each in panel.figures)]
    first = scores[0] if scores else ""
    return f"{answer} {first}." if first else answer


def _questions(context: Context) -> list[tuple[str, str, str]]:
    """Return question, panel, and answer, in the order in which they come to mind."""
    rollout = "errors_over_rollout" if context.evaluation.step_s else "errors"
    return [
        (
            "How good is it?",
            rollout,
            "See the line above. A model is useful where its error is below those of the"
            " references, which cost nothing.",
        ),
        (
            "Is it right in my design?",
            "errors_by_case",
            "Find your parameters in the pictures: where errors rise or training designs are"
            " sparse, trust the model less.",
        ),
        (
            "Can I trust this rollout?",
            "monitor",
            "Up to the flag, expect errors like those of this report. Beyond it the latents have"
            " left the states of the training.",
        ),
        ("Where is it wrong?", "error_addresses", _where_wrong(context)),
        (
            "When does the prediction leave the solution?",
            "rollout",
            "Play the first case: solution, prediction and error, step by step.",
        ),
        ("What does anchor 14 do?", "anchor_table", _one_anchor(context)),
        (
            "What do the strongest anchors add to the prediction?",
            "decomposition",
            "One picture for each; what one adds, others may take away again.",
        ),
        (
            "Where does an anchor have weight, and which input does it read?",
            "anchor_maps",
            "The first rows show where its weight is large, the second picture which input points"
            " it reads.",
        ),
        (
            "Can I interpret the field of one anchor?",
            "anchor_scores",
            "Only where the scores are marked ✓ and better than the random partition's: then fields"
            " are concentrated near their anchors, and the prediction depends on them.",
        ),
        (
            "Does a long rollout keep the frequency of the flow?",
            "frequencies",
            "Yes, as long as the prediction oscillates with the solution in the first picture, and"
            " the drift stays in the green band.",
        ),
        (
            "Are drag, loss or head right?",
            "quantities",
            "Yes, if the points lie on the diagonal, nearer to it than those of the design"
            " parameters alone.",
        ),
        ("How do I use the model?", "use", "Paste these lines into Python."),
    ]


def _where_wrong(context: Context) -> str:
    if not context.surrogate.decomposes or (found := context.scores.addresses) is None:
        return ""
    worst = int(found.worst[0])
    part = found.errors[worst] / (found.total or 1.0)
    return (
        f"In the first case mostly where anchor {worst} has weight: {part:.0%} of the squared"
        f" error, on {found.governed[worst]:.0%} of the volume."
    )


def _one_anchor(context: Context) -> str:
    if not context.surrogate.decomposes:
        return ""
    energies = context.scores.fields.energies
    strongest = int(energies.argmax())
    part = energies[strongest] / (float(energies.sum()) or 1.0)
    return (
        "Its row shows the field that it adds, how strong and how compact that is, and its part in"
        f" the error. The strongest in the first case is anchor {strongest}, with {part:.0%} of the"
        " fields' energy."
    )


SCROLLED_ROWS = 16
"""Longer tables scroll"""


@dataclass(frozen=True)
class KeyFigure:
    """A number at the head of the page."""

    value: str
    label: str


def write_panel(folder: RunDirectory, panel: Panel, drawn: dict[str, bytes]) -> list[str]:
    """Write the panel's figures and its file of arrays; return the names of the files.

    The figures' PNG files, by name, are added to `drawn`, from which the page takes them.
    """
    for figure in panel.figures:
        drawn[figure.name] = png_bytes(figure.figure)
        folder.write_bytes(figure.name, drawn[figure.name])
    if panel.data is not None:
        folder.write_arrays(panel.data, panel.arrays)
    return [figure.name for figure in panel.figures] + ([panel.data] if panel.data else [])


def report_page(context: Context, panels: Sequence[Panel], drawn: Mapping[str, bytes]) -> str:
    """Render the page of a trained run, with figures that `write_panel` has drawn."""
    return render_page(
        title=f"{context.dataset.schema.family}: {context.surrogate.experiment.name}",
        meta=_meta(context),
        verdict=summary_line(context.evaluation),
        panels=panels,
        drawn=drawn,
        keys=key_figures(context),
    )


def render_page(
    title: str,
    meta: Sequence[str],
    verdict: str,
    panels: Sequence[Panel],
    drawn: Mapping[str, bytes],
    keys: Sequence[KeyFigure] = (),
) -> str:
    """Render index.html with its pictures in it; everything that comes from data is escaped."""
    return template("page.html.j2").render(
        title=title,
        meta=meta,
        verdict=verdict,
        keys=keys,
        panels=panels,
        scrolled_rows=SCROLLED_ROWS,
        embedded=data_url,
        picture=lambda figure: data_url(webp_of_png(drawn[figure.name])),
    )


def template(name: str) -> jinja2.Template:
    """Load a template of this package."""
    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("courant.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return templates.get_template(name)


def key_figures(context: Context) -> list[KeyFigure]:
    """List errors of all predictors, accepted cases, and the speed-up over the solver."""
    evaluation, design = context.evaluation, context.dataset.design
    errors = [
        KeyFigure(f"{evaluation.overall[name].nmae:.3f}", f"NMAE, {name}")
        for name in evaluation.predictors
    ]
    accepted = int((design["status"] == "accepted").sum())
    return [
        *errors,
        KeyFigure(f"{evaluation.overall[MODEL]['relative_l2']:.3f}", f"relative L2, {MODEL}"),
        KeyFigure(f"{accepted} / {len(design)}", "cases accepted"),
        *_speed_up(evaluation),
    ]


def _speed_up(evaluation: Evaluation) -> list[KeyFigure]:
    factor = evaluation.timing.speed_up
    if factor is None:
        return []
    return [KeyFigure(f"{float(f'{factor:.2g}'):,.15g}×", "the solver's speed")]


def _meta(context: Context) -> Sequence[str]:
    dataset, model = context.dataset, context.surrogate.model
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return (
        f"run {context.run.url.rsplit('/', 1)[-1]}",
        (
            f"dataset {dataset.version} of {dataset.info.time:%Y-%m-%d %H:%M} UTC,"
            f" snapshot {dataset.snapshot_id}"
        ),
        f"{model.config.kind}, {parameters:,} weights",
        *_machine(context.course.environment),
    )


def _machine(environment: Environment | None) -> list[str]:
    if environment is None:
        return []
    return [f"trained on {environment.device} by {count(environment.workers, 'worker')}"]
