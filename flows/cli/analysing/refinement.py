"""Define `courant analyse refine`: an experiment with anchors where a run errs."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from flows.cli.options import MovedDataset, RunUrl
from flows.settings import absolute
from flows.terminal import one_line_errors, progress_bar, tell
from simgen.store.access.local_files import local_path


def analyse_refine(
    run: RunUrl,
    anchors: Annotated[
        int | None,
        typer.Option(min=1, help="Number of anchors; default: half as many again as the run has."),
    ] = None,
    out: Annotated[Path, typer.Option(help="The JSON file to write the experiment to.")] = Path(
        "refined.json"
    ),
    dataset: MovedDataset = None,
) -> None:
    """Write an experiment whose anchors lie closer together where the run errs.

    The errors are those of the validation cases; no test case is looked at.
    """
    with one_line_errors():
        from courant.analysis.error_indicators.refinement import refined
        from courant.prediction.surrogate import load
        from simgen.errors import InputError

        out = local_path(str(out))
        if out.is_dir() or not os.access(out.resolve().parent, os.W_OK):
            raise InputError(f"{out} cannot be written: give a file in a folder that can")
        surrogate = load(absolute(run))
        place = absolute(dataset) if dataset else None
        before = surrogate.experiment.model.num_sampled_anchors
        with progress_bar("analysing") as progress:
            opened = surrogate.open_dataset(place)
            number = anchors or max(1, before * 3 // 2)
            made = refined(surrogate, opened, number, progress)
        try:
            out.write_text(json.dumps(made.model_dump(mode="json"), indent=1) + "\n")
        except OSError as error:
            raise InputError(f"{out} cannot be written: {error.strerror}") from error
        closest = max(each[3] for each in made.data.closer_anchors)
        tell(
            f"experiment  {escape(str(out))}: {number} anchors ({before} before), up to"
            f" {closest:.1f} times closer where the run errs"
        )
        command = (
            f"courant train {shlex.quote(opened.url)} --version {opened.version} --experiment"
            f" {shlex.quote(str(out))}"
        )
        tell(f"train it    {escape(command)}")
