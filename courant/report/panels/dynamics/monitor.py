"""Show when the monitor would have flagged the rollout of the first shown case, and its error."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from courant.analysis.monitoring import (
    MonitorJudgement,
    WatchedRollout,
    calibrate_monitor,
    judge_monitor,
)
from courant.field_model import Evolves
from courant.report.context import Context
from courant.report.drawing import PALETTE, WIDTH
from courant.report.panel import Panel, PanelFigure
from simgen.errors import InputError

MOST_CASES, ROLLOUTS = 4, 24
"""Test cases that are rolled out, and rollouts of a split: `courant analyse monitor` takes more"""


def panel(context: Context) -> Panel | None:
    """Show departure and error; None for models without latents, and too few validation cases.

    Also None for an evaluation of the validation split, on which the monitor is calibrated.

    A run that has no monitor yet is calibrated for the picture alone: nothing is written to it.
    """
    is_calibrated_on = context.evaluation.split == "validation"
    if is_calibrated_on or not isinstance(context.surrogate.model, Evolves):
        return None
    try:
        monitor = context.surrogate.monitor or calibrate_monitor(
            context.surrogate, context.dataset, rollouts=ROLLOUTS
        )
    except InputError:
        return None
    names = [context.shown[0].case.id, *context.evaluation.cases]
    chosen = list(dict.fromkeys(names))[:MOST_CASES]
    found = judge_monitor(context.surrogate, context.dataset, monitor, chosen, rollouts=ROLLOUTS)
    first = found.watched[0]
    return Panel(
        "monitor",
        "Can this rollout be trusted?",
        (
            PanelFigure(
                "monitor.png",
                draw(found),
                _caption(found),
                look_for=(
                    "While the blue line is below the red one, the rollout is among states like"
                    " those of the training."
                ),
                score=_score(first),
            ),
        ),
        note=(
            "The monitor reads only the latents (the vectors of the anchors), so it works where no"
            f" solution is known. `courant analyse monitor {context.run.url}` stores it in the"
            " run; then surrogate.predict(..., monitor=True) returns this curve with the"
            " prediction. A flag says that the latents have left the states of the training; it"
            " does not say how large the error is. A rollout that goes wrong within known states"
            " is not flagged."
        ),
        arrays={"times": first.times, "departure": first.quality.departure, "error": first.errors},
    )


def draw(found: MonitorJudgement) -> Figure:
    """Draw departure and true error over time: of the first case strong, of the others faint."""
    figure = Figure(figsize=(WIDTH, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for number, each in enumerate(found.watched):
        style = {"lw": 1.8, "alpha": 1.0} if number == 0 else {"lw": 0.8, "alpha": 0.35}
        left.plot(each.times, each.quality.departure, color=PALETTE[0], **style)
        right.plot(each.times, each.errors, color=PALETTE[1], **style)
    left.axhline(1.0, color="#b3261e", lw=1)
    left.annotate("flag", (0.995, 1.0), xycoords=("axes fraction", "data"), ha="right", va="bottom")
    top = max(2.0, max(float(each.quality.departure.max()) for each in found.watched))
    left.set(ylabel="departure of the latents, over the limit", ylim=(0, 1.05 * min(top, 10.0)))
    right.set(ylabel="root mean square error (std)", ylim=(0, None))
    first = found.watched[0]
    for axis in (left, right):
        _mark(axis, first, found.monitor.horizon)
        axis.set(xlabel="time from the start of the rollout (s)", xlim=(0, float(first.times[-1])))
        axis.grid(alpha=0.25)
    return figure


def _mark(axis: Axes, first: WatchedRollout, horizon: int) -> None:
    """Shade the steps of the training, and draw a line where the flag goes up."""
    end = float(first.times[min(horizon, len(first.times)) - 1])
    axis.axvspan(0, end, color="#1a7f37", alpha=0.1, lw=0)
    flag = first.quality.flagged_at
    if flag is not None:
        axis.axvline(float(first.times[flag - 1]), color="#b3261e", lw=1, ls="--")


def _score(first: WatchedRollout) -> str:
    flag, last = first.quality.flagged_at, float(first.times[-1])
    if flag is None:
        return f"No flag within {last:g} s"
    before = first.errors[: flag - 1]
    error = f", and an error of {before[-1]:.2g} std one step earlier" if len(before) else ""
    return f"Flag after {first.times[flag - 1]:g} s of {last:g} s{error}"


def _caption(found: MonitorJudgement) -> str:
    first = found.watched[0]
    flag = first.quality.flagged_at
    told = (
        "is never flagged"
        if flag is None
        else f"is flagged at step {flag}, after {first.times[flag - 1]:g} s (dashed)"
    )
    return (
        "The left picture shows the departure of the latents from those of training rollouts; a"
        " value below one is usual. The right picture shows the true error. The rollout of case"
        f" {first.case} (strong line) {told}; other rollouts of its split are faint. The green"
        " band is the steps that the model was trained on. Of"
        f" {found.num_rollouts} rollouts of these {found.monitor.horizon} steps from everywhere in"
        f" the cases, {found.false_alarms:.0%} are flagged."
    )
