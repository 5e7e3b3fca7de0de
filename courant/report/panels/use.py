"""Show code to paste that reads the data and predicts."""

from __future__ import annotations

from collections.abc import Sequence
from json import dumps as quote
from typing import TYPE_CHECKING

import numpy as np

from courant.data.normalisation import Channel
from courant.report.context import Context, Shown
from courant.report.panel import Panel

if TYPE_CHECKING:
    from simgen.store.read import StoredCase


def rollout_panel(context: Context) -> Panel:
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


def field_panel(context: Context) -> Panel:
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
