"""Gather the commands of `courant analyse`, of which `scores` is meant where none is named."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from flows.cli.analysing.comparison import analyse_compare
from flows.cli.analysing.fields import analyse_fields
from flows.cli.analysing.frequencies import analyse_frequencies
from flows.cli.analysing.maps import analyse_maps
from flows.cli.analysing.monitor import analyse_monitor
from flows.cli.analysing.scores import EXAMPLE, analyse_scores
from flows.cli.analysing.spectrum import analyse_spectrum

DEFAULT = "scores"


class _WithDefault(TyperGroup):
    """Read `analyse RUN` as `analyse scores RUN`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] != "--help" and args[0] not in self.commands:
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)


analysis_app = typer.Typer(
    cls=_WithDefault,
    help="The inside of a trained model: what each anchor does, and where it errs.",
    epilog="`courant analyse RUN` is `courant analyse scores RUN`. docs/analysis.md explains all.",
    no_args_is_help=True,
)
analysis_app.command(DEFAULT, epilog=EXAMPLE)(analyse_scores)
analysis_app.command("monitor", epilog="Example: courant analyse monitor RUN")(analyse_monitor)
analysis_app.command("fields", epilog="Example: courant analyse fields RUN --top 8")(analyse_fields)
analysis_app.command("maps", epilog="Example: courant analyse maps RUN --anchor 14")(analyse_maps)
analysis_app.command("frequencies", epilog="Example: courant analyse frequencies RUN --steps 40")(
    analyse_frequencies
)
analysis_app.command(
    "spectrum", epilog="Example: courant analyse spectrum RUN --case b0159c13a91f --at 1 --at 40"
)(analyse_spectrum)
analysis_app.command(
    "compare", epilog="Example: courant analyse compare RUN OTHER-RUN --out analysis"
)(analyse_compare)
