"""Render a report's page and the files beside it, from panels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jinja2

from courant.evaluation.evaluation import MODEL, Evaluation
from courant.report.context import Context
from courant.report.images.embedding import data_url, webp_of_png
from courant.report.panel import Panel
from courant.report.verdict import summary_line
from courant.report.wording import count
from courant.runs.directory import RunDirectory
from courant.runs.record import Environment
from simgen.publish.field_plots import png_bytes

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
