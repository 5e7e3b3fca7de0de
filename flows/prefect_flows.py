"""The stages as Prefect flows, for deployments, workers, and commands with PREFECT_API_URL.

Each flow has its request's fields as parameters, and executes its stage in a task. A case is a task
as well; of more than MOST_TASKS cases several share one. The work never waits for Prefect's server:
what it does not take is not shown.
"""

import copy
import inspect
import logging
import math
import os
import platform
import re
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Future, wait
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_type_hints

import httpx
from prefect import artifacts, flow, runtime, settings, task
from prefect.cache_policies import NO_CACHE
from prefect.exceptions import PrefectException
from prefect.logging.handlers import APILogHandler
from prefect.states import Cancelled, State

import simgen
from courant.runs.directory import RunDirectory
from courant.runs.record import EpochRecord
from flows import solving, stages
from flows.request_models import options_of
from flows.settings import keep_loopback_direct, load_settings
from flows.terminal import progress_note, read_progress, start_logs
from simgen.design_space import DesignPoint
from simgen.log_lines import fields_here, set_field
from simgen.store.write import DatasetWriter

logger = logging.getLogger("flows.prefect")

MOST_TASKS = 300  # Tasks of one generation
LOOK_S = 5.0  # Between two looks at the progress of a case
ANSWER_S = 10.0  # For the server to take an artifact


class _Followed(APILogHandler):
    """Show the lasting lines of a flow within another with the outermost: --watch follows that."""

    def filter(self, record: logging.LogRecord) -> bool:
        here = runtime.flow_run.id
        return fields_here().get("flow_run", here) != here

    def prepare(self, record: logging.LogRecord) -> dict[str, Any]:
        of_outermost = copy.copy(record)
        of_outermost.flow_run_id = fields_here()["flow_run"]
        return super().prepare(of_outermost)


keep_loopback_direct()
# As in the command: threads of torch must sleep while they wait. Read when torch is loaded, later.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
start_logs()
# Lines of the stages are shown with their flow run or task run.
_pages = APILogHandler(logging.INFO)
_pages.addFilter(lambda record: bool(runtime.flow_run.id))
logging.getLogger("flows").addHandler(_pages)
logging.getLogger("flows").setLevel(logging.INFO)
logging.getLogger("flows.terminal").addHandler(_Followed(logging.INFO))


def in_flow(stage: stages.Stage[Any]) -> Any:
    """Execute a stage in its flow, as commands do where PREFECT_API_URL names a server."""
    return FLOWS[type(stage)](**asdict(stage))


def _flow(name: str, run_name: str, kind: type, execute: Callable[[Any], Any]) -> Any:
    """Make a flow of a stage.

    Its parameters are the fields of the stage's request, as Prefect reads them of a function: from
    the signature, with a description of each in the docstring.
    """
    asked = kind.__mro__[1]

    def function(*given: Any, **named: Any) -> Any:
        if "flow_run" not in fields_here() and runtime.flow_run.id:
            set_field("flow_run", str(runtime.flow_run.id))  # the outermost one of this process
        return execute(kind(*given, **named))

    lines = [f"    {field}: {described.help}" for field, described in options_of(asked).items()]
    function.__name__ = function.__qualname__ = name.replace("-", "_")
    function.__module__ = __name__
    function.__doc__ = "\n".join([inspect.getdoc(asked) or "", "", "Args:", *lines])
    function.__annotations__ = hints = get_type_hints(asked)
    taken = inspect.signature(asked).parameters.values()
    kept = [each.replace(annotation=hints[each.name]) for each in taken]
    function.__signature__ = inspect.Signature(kept)  # type: ignore[attr-defined]
    return flow(name=name, flow_run_name=run_name)(function)


def _in_task(name: str, work: Callable[[], Any]) -> Any:
    """Do something in a task of its own."""
    return task(name=name, persist_result=False, cache_policy=NO_CACHE)(work)()


@task(name="solve", task_run_name="{name}", persist_result=False, cache_policy=NO_CACHE)
def _follow(
    name: str, cases: Sequence[tuple[DesignPoint, Future[solving.SolvedFork]]]
) -> State[None] | None:
    """Log the progress of cases that are solved elsewhere; end with the last one."""
    scratch = Path(load_settings().scratch)
    for point, future in cases:
        values = ", ".join(f"{name} {value:g}" for name, value in point.parameters.items())
        logger.info("case %s: %s", point.id, values)
        last = ""
        while not wait([future], LOOK_S).done:
            progress = read_progress(scratch / point.id)
            if progress and (note := progress_note(progress)) != last:
                logger.info("%s", note)
                last = note
        try:
            solved = future.result()
        except (BrokenExecutor, CancelledError) as error:  # the flow reports what went wrong
            return Cancelled(message=f"case {point.id}: {error or 'not solved'}")
        logger.info("case %s: %s %s", point.id, solved.status, solved.reason)
    return None


def solve_followed(
    points: Sequence[DesignPoint], writer: DatasetWriter, execution: solving.Execution
) -> None:
    """Solve cases, in the sight of Prefect: each is a task, or several together are one."""
    size = math.ceil(len(points) / MOST_TASKS)
    batch: list[tuple[DesignPoint, Future[solving.SolvedFork]]] = []
    num_submitted, tasks = 0, []

    def on_submit(point: DesignPoint, future: Future[solving.SolvedFork]) -> None:
        nonlocal num_submitted
        num_submitted += 1
        batch.append((point, future))
        if len(batch) == size or num_submitted == len(points):
            first = num_submitted - len(batch) + 1
            several = f"cases {first} to {num_submitted} of {len(points)}"
            tasks.append(_follow.submit(f"case {point.id}" if size == 1 else several, [*batch]))
            batch.clear()

    try:
        solving.solve_cases(points, writer, execution, on_submit)
    finally:
        for each in tasks:
            each.wait()


def _generate(stage: stages.Generation) -> stages.PublishedVersion:
    published = stages.finished(stage) or stage.execute(solve_followed)
    dataset = simgen.open_dataset(published.dataset, published.version)
    design, family = dataset.design, dataset.schema.family
    counts = "\n".join(
        f"| {status} | {count} |" for status, count in design["status"].value_counts().items()
    )
    text = (
        f"`{published.dataset}`\n\n| status | cases |\n| --- | --- |\n{counts}\n\n"
        f"{dataset.splits}; {design['num_bytes'].sum() / 1e6:.0f} MB of fields."
    )
    _show_markdown(f"dataset-{family}", f"{family} {published.version}", text)
    return published


def _train(stage: stages.Training) -> Any:
    if (done := stage.done()) is not None:
        return done
    experiment, _ = stages.open_training(stage)
    key, text = _key(f"train-{experiment.name}"), f"{experiment.name} on {stage.dataset}"
    bar = _show(artifacts.create_progress_artifact, 0.0, key=key, description=text)

    def on_epoch(record: EpochRecord) -> None:
        if bar is not None:
            _show(artifacts.update_progress_artifact, bar, 100 * record.epoch / record.epochs)

    url = _in_task(f"train {experiment.name}", lambda: stage.execute(on_epoch))
    status = RunDirectory(url).read_json("status.json")
    text = f"`{url}`\n\nbest epoch {status['best_epoch']} of {status['epochs']}"
    _show_markdown(f"run-{experiment.name}", url.rsplit("/", 1)[-1], text)
    return url


def _try(stage: stages.Trials | stages.ModelBenchmark | stages.Optimisation) -> Any:
    """Sweep, benchmark or optimisation."""
    finished = _in_task("try-settings", stage.execute)
    name = finished.page.rsplit("/", 2)[1]
    lines = finished.verdict.replace("\n", "\n\n")  # Of Markdown, a paragraph each.
    _show_markdown(name, name, f"{lines}\n\nPage: `{finished.page}` on {platform.node()}")
    return finished


def _evaluate(stage: stages.Measurement) -> Any:
    report = stages.finished(stage) or _in_task("evaluate-model", stage.execute)
    name = report.run.rsplit("/", 1)[-1]
    text = f"{report.verdict}\n\nReport: `{report.url}` on {platform.node()}"
    _show_markdown(f"report-{name}", name, text)
    return report


FLOWS: dict[type, Any] = {
    kind: _flow(name, run_name, kind, execute)
    for kind, name, run_name, execute in (
        (stages.Generation, "generate", "generate {family}, {cases} cases", _generate),
        (stages.Training, "train", "train on {dataset}", _train),
        (stages.Trials, "sweep", "sweep {space}", _try),
        (stages.ModelBenchmark, "benchmark", "benchmark at {budget}", _try),
        (stages.Measurement, "evaluate", "evaluate {run}", _evaluate),
        (stages.Optimisation, "optimise", "optimise {run}", _try),
        (
            stages.MainJob,
            "generate-and-train",
            "{family}, {cases} cases",
            lambda job: job.execute(in_flow),
        ),
    )
}
generate, train, sweep, benchmark, evaluate, optimise, generate_and_train = FLOWS.values()


def _key(name: str) -> str:
    """Return a name of the small letters, digits and dashes that Prefect takes."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "run"


def _show_markdown(key: str, title: str, text: str) -> None:
    markdown = f"## {title}\n\n{text}\n"
    _show(artifacts.create_markdown_artifact, markdown, key=_key(key), description=title)


def _show(create: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """Have the server show something; where it is away or does not take it, a line is logged."""
    impatient = {
        settings.PREFECT_CLIENT_MAX_RETRIES: 0,
        settings.PREFECT_API_REQUEST_TIMEOUT: ANSWER_S,
    }
    with settings.temporary_settings(impatient):
        try:
            return create(*given, **named)
        except (httpx.HTTPError, OSError, PrefectException) as error:
            logger.warning("not shown on Prefect's pages: %s", error)
            return None
