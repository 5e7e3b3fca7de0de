"""Lines to paste that read the data and predict."""

from __future__ import annotations

from collections.abc import Sequence
from json import dumps as quote

import numpy as np

from courant.data.normalisation import Channel
from courant.report.context import Context, Shown
from courant.report.panel import Panel


def rollout_panel(context: Context) -> Panel:
    """From a stored snapshot to the states after it."""
    shown, steps = context.shown[0], context.evaluation.num_steps
    frame = _frame(shown)
    given = _known_parameters(context)
    state = _state(context, frame)
    return _panel(
        context,
        f'case.points, case["{context.channels[0].field}"][{frame}], ds.design',
        f"surrogate.predict_case(case, start_s={shown.start_s!r}, steps={steps})",
        *(["import numpy"] if state.startswith("numpy") else []),
        f"initial = {state}",
        f"surrogate.predict(case.points, initial=initial, {given}"
        f"distance=(case.distance, case.direction), steps={steps})",
    )


def field_panel(context: Context) -> Panel:
    """From geometry, boundary and parameters to the solved fields."""
    return _panel(
        context,
        f'case.points, case["{context.channels[0].field}"][:], ds.design',
        "surrogate.predict_case(case)",
        "surrogate.predict(case.points, parameters=case.parameters, boundary=case.boundary,",
        "                  distance=(case.distance, case.direction))",
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
    return Panel("use", "Use it", code="\n".join(lines))


def _frame(shown: Shown) -> int:
    """The number of the snapshot that the shown prediction starts from."""
    return int(np.abs(np.asarray(shown.case.time) - shown.start_s).argmin())


def _state(context: Context, frame: int) -> str:
    """The modelled components of a stored snapshot, as an expression."""
    channels = context.channels
    names = _whole_field(channels, context)
    if names is not None:
        return f'case["{names}"][{frame}]'
    columns = [f'case["{each.field}"][{frame}][:, {each.column}]' for each in channels]
    return f"numpy.stack([{', '.join(columns)}], axis=-1)"


def _whole_field(channels: Sequence[Channel], context: Context) -> str | None:
    """The field whose components, all and in order, are modelled; None where it is not so."""
    for field in context.dataset.schema.fields:
        if [each.name for each in channels] == [f"{field.name}.{c}" for c in field.components]:
            return field.name
    return None


def _known_parameters(context: Context) -> str:
    return "parameters=case.parameters, " if context.surrogate.experiment.model.num_parameters else ""
