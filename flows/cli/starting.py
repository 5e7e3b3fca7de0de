"""Begin and end the commands that carry out stages.

What is done already is answered, and what cannot be done refused, before Prefect is imported.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, TypeVar

from flows.cluster.prefect_api import prefect_api
from flows.settings import embedded_defaults
from flows.terminal import errors, one_line_errors, say

if TYPE_CHECKING:
    from flows.stages.evaluation import Report
    from flows.stages.generation import PublishedVersion
    from flows.stages.stage import Stage

Result = TypeVar("Result")


def carry_out(
    asked: Stage[Result],
    flow: Callable[[], Callable[..., Result]],
    verbose: bool,
    describe: Callable[[Result], str] = lambda _: "",
) -> Result:
    """Return the result of a stage that is done already, else run its flow, which `flow` imports.

    `describe` gives the line on a result that was found, as the flow prints it. Errors end the
    command in one line. Leftovers of killed commands' Rays are removed first.
    """
    if os.name == "posix":
        # Its locks are those of POSIX; commands without Ray run under Windows too.
        from courant.ray_folder import remove_abandoned_rays

        remove_abandoned_rays()
    with one_line_errors():
        done = asked.finished()
        if done is not None:
            if line := describe(done):
                errors.print(line, highlight=False, soft_wrap=True)
            return done
        first_on_ray = asked.prepare()

    def start() -> Callable[..., Result]:
        run = flow()
        if first_on_ray:
            from flows.cluster.ray_cluster import begin_to_warm, ensure_ray

            ensure_ray()
            if first_on_ray == "cases":
                begin_to_warm()
            elif first_on_ray == "model":
                from courant.training.on_ray.ray_alone import begin_imports

                begin_imports()
        return run

    with starting_flows(verbose, start) as run:
        return run(**asdict(asked))


@contextlib.contextmanager
def starting_flows(verbose: bool, meanwhile: Callable[[], Result]) -> Iterator[Result]:
    """Have Prefect's API within the block, and errors in one line.

    It runs in a process beside this one unless PREFECT_API_URL names one that runs already. What
    `meanwhile` returns, called while that process starts, is the block's.
    """
    if verbose:
        os.environ.setdefault("PREFECT_LOGGING_LEVEL", "INFO")
    else:
        # It warns at exit of events that are still on their way, on a logger that no setting of
        # Prefect's reaches.
        logging.getLogger("EventsWorker").setLevel(logging.CRITICAL)
    embedded_defaults()
    with one_line_errors(), prefect_api(meanwhile) as started:
        yield started


def show_dataset(published: PublishedVersion) -> None:
    """Print which version was published."""
    say(f"dataset  {published.dataset}  {published.version}")


def show_run(url: str) -> None:
    """Print where a trained model lies."""
    say(f"run  {url}")


def show_report(report: Report) -> None:
    """Print what was evaluated, and the verdict."""
    say(f"run     {report.run}\nreport  {report.url}\n{report.verdict}")
