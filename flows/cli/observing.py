"""See what is on record and what works here: `courant status`, `metrics`, `doctor`, `families`.

The state of datasets, cases, trainings, sweeps and disks comes from records that exist anyway,
whole after any crash: the datasets' commits, the run directories, and the progress files of cases
on this machine's scratch disk. Requests to a served model are measured where they are answered,
nodes and tasks by Ray's own metrics.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shlex
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Column, Table
from rich.text import Text

import flows.request_models as asks
from courant import loopback
from courant.runs.directory import RunDirectory
from courant.runs.record import EXPERIMENT
from flows import terminal
from flows.settings import RUNS, Settings, absolute, check_prefect, load_settings, prefect_url
from simgen.case import Progress
from simgen.cases import FAMILIES, find_family, get_family, templates_in
from simgen.design_space import DesignSpace
from simgen.errors import InputError, SimgenError
from simgen.log_lines import duration_text, size_text
from simgen.machine import memory_gb, usable_cores
from simgen.whole_file import local_path

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from courant.runs.summary import RunSummary
    from courant.sweeps.sweep import TrialsProgress
    from simgen.store.versions import DatasetProgress


COLOURS = {
    "solving": "green",
    "running": "green",
    "begun": "cyan",
    "silent": "yellow",
    "interrupted": "yellow",
    "unpublished": "yellow",
    "failed": "red",
}
MOST_ENDED = 5  # Finished trainings that are shown; `courant runs ls` lists all
LOW_DISK = 0.05  # Share of a disk that is too little

T = TypeVar("T")
S = TypeVar("S")

observing_app = typer.Typer()


@observing_app.command(epilog="Example: courant status --store demo-run/store --runs demo-run/runs")
def status(
    store: asks.Store = None,
    runs: asks.Runs = None,
    every: Annotated[float, asks.option("Seconds between two looks.", min=0.5, max=86_400.0)] = 3.0,
    once: Annotated[bool, asks.option("Print once, as without a terminal.", "--once")] = False,
    as_json: Annotated[bool, asks.option("Print once, as JSON.", "--json")] = False,
) -> None:
    """Show datasets, cases, trainings, sweeps and disks, from records alone; Ctrl-C ends it."""
    where = places(store, runs)
    if not (as_json or once) and terminal.screen.is_terminal:
        # Ctrl-C is how this is meant to end, and no interruption.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with contextlib.suppress(KeyboardInterrupt):
            draw_until_interrupted(where, every, terminal.screen)
        return
    with terminal.errors.status("reading"):
        overview = look(where)
    if as_json:
        record = asdict(overview)
        typer.echo(json.dumps(record, indent=2, default=str))
    else:
        if not terminal.screen.is_terminal:
            terminal.screen.width = 200  # a file or a pipe has none
        terminal.screen.print(draw(overview))
    if overview.problems:
        terminal.fail("\n".join(overview.problems))


@observing_app.command(epilog="Example: courant metrics --store s3://bucket/store --port 9464")
def metrics(
    store: asks.Store = None,
    runs: asks.Runs = None,
    host: asks.Host = loopback.LOOPBACK[0],
    port: asks.Port = 9464,
    allow_host: asks.AllowedHosts = None,
    every: Annotated[float, asks.option("Seconds between readings.", min=1.0, max=86_400.0)] = 15.0,
) -> None:
    """Serve metrics of datasets, trainings and sweeps to Prometheus, from records alone."""
    with terminal.errors.status("reading"):
        exported = RecordMetrics(places(store, runs), every)
    serve, taken = metrics_server(exported, host, port, allow_host or ())
    address = f"http://{loopback.in_address(host)}:{taken}/metrics"
    terminal.print_line(f"serving  {address}   end with Ctrl-C")
    serve()


def places(store: str | None, runs: str | None) -> Settings:
    """Return where to look; InputError for a folder that was named and is not there."""
    for named, given in (("--store", store), ("--runs", runs)):
        if given and "://" not in absolute(given) and not Path(absolute(given)).is_dir():
            raise InputError(f"{named} {given} is no folder; give an existing one or s3://…")
    settings = load_settings()
    return replace(
        settings,
        store=settings.store_url(store),
        runs=absolute(runs or settings.runs or RUNS).rstrip("/"),
    )


@dataclass(frozen=True)
class Disk:
    """A file system that work is written to."""

    use: str
    path: str
    free_bytes: int
    total_bytes: int


@dataclass(frozen=True)
class Overview:
    """What is going on at one moment."""

    places: Settings
    datasets: list[DatasetProgress]
    cases: list[Progress]  # That are solved on this machine, in any dataset
    runs: list[RunSummary]
    trials: list[TrialsProgress]  # Sweeps and benchmarks
    disks: list[Disk]
    problems: list[str]  # A line for each dataset or run that cannot be read


def look(places: Settings) -> Overview:
    """Read everything anew; what cannot be read is listed among the problems."""
    from courant.runs import summary
    from courant.sweeps.sweep import read_trials_progress
    from simgen.solving.case_lock import is_held
    from simgen.store import versions

    problems = list[str]()

    def read_each(read: Callable[[S], T | None], where: Iterable[S]) -> list[T]:
        def attempt(place: S) -> T | None:
            try:
                return read(place)
            except SimgenError as error:
                problems.append(str(error))
                return None

        return [found for found in pool.map(attempt, where) if found is not None]

    def read_run(run: RunDirectory) -> RunSummary | None:
        return summary.read_run(run) if run.exists(EXPERIMENT) else None

    with ThreadPoolExecutor(8) as pool:
        names = dict.fromkeys([*FAMILIES, *versions.folders_in(places.store)])
        datasets = read_each(
            lambda url: versions.read_progress(url) if versions.repository_exists(url) else None,
            [f"{places.store}/{name}" for name in names],
        )
        folder = RunDirectory(places.runs or RUNS)
        listed = read_each(lambda each: each.names(), [folder])
        inside = [folder / name for names in listed for name in names]
        runs = read_each(read_run, inside)
        known = {run.url for run in runs}
        others = [each for each in inside if each.url not in known]
        trials = read_each(lambda each: read_trials_progress(each, read_run), others)
    scratch = Path(places.scratch)
    cases = [
        case
        for path in sorted(scratch.glob(f"*/{terminal.PROGRESS_FILE}"))
        if (case := terminal.read_progress(path.parent)) and is_held(path.parent.name, scratch)
    ]
    found = list(dict.fromkeys(problems))
    return Overview(places, datasets, cases, runs, trials, _disks(places), found)


def _disks(places: Settings) -> list[Disk]:
    """Return the file systems of local places, each once."""
    found: dict[int, Disk] = {}
    for use in ("scratch", "store", "runs"):
        if "://" in (place := getattr(places, use)):
            continue
        path = local_path(place)
        there = next(each for each in (path, *path.parents) if each.exists())
        device, usage = there.stat().st_dev, shutil.disk_usage(there)
        both = f"{found[device].use}, {use}" if device in found else use
        found[device] = Disk(both, str(there), usage.free, usage.total)
    return list(found.values())


def draw_until_interrupted(places: Settings, every: float, screen: Console) -> None:
    """Draw on a terminal, again every so many seconds."""
    with Live(Text("reading"), console=screen, screen=True, auto_refresh=False) as live:
        while True:
            overview = look(places)
            parts = [draw(overview), Text(f"{time.strftime('%H:%M:%S')}  Ctrl-C ends this", "dim")]
            if overview.problems:
                parts.append(Text(f"error: {overview.problems[0]}", "red"))
            live.update(Group(*parts), refresh=True)
            time.sleep(every)


def draw(overview: Overview) -> RenderableType:
    """Return the tables of what there is, and what to do where there is nothing."""
    parts: list[RenderableType] = []
    where = overview.places

    def add(title: str, place: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Add a table of name, state and the figures that some row has, where there is a row."""
        used = [n for n in range(len(columns)) if any(row[2 + n] for row in rows)]
        figures = [Column(columns[n], justify="right", no_wrap=True) for n in used]
        first = Column("name", overflow="fold", min_width=14), Column("state", no_wrap=True)
        table = Table(*first, *figures, box=None, header_style="dim", pad_edge=False)
        for name, state, *cells in rows:
            shown = Text(state, COLOURS.get(state, ""))
            table.add_row(escape(name), shown, *(cells[n] for n in used))
        if rows:
            parts.extend([Text.assemble((title, "bold"), f"  {place}", overflow="fold"), table, ""])

    def time_left(seconds: float | None, is_going_on: bool) -> str:
        return duration_text(seconds) if is_going_on and seconds is not None else ""

    rows = []
    for each in overview.datasets:
        name = f"{each.url.rsplit('/', 1)[-1]} {each.version or ''}".strip()
        numbers = [*each.num_cases.values(), "" if each.num_left is None else each.num_left]
        left = time_left(each.left_s, each.state == "solving")
        rows.append([name, each.state, *map(str, numbers), left, duration_text(each.solver_s)])
    figures = ["accepted", "rejected", "failed", "left", "time left", "core time"]
    add("datasets", where.store, figures, rows)
    rows = []
    for case in overview.cases:
        rows.append([case.case_id, f"{case.fraction:.0%}", terminal.progress_note(case)])
    add("solving on this machine", "", [""], rows)
    ended = [run for run in overview.runs if run.state in ("finished", "stopped")]
    left_out, rows = max(0, len(ended) - MOST_ENDED), []
    for run in [*(run for run in overview.runs if run not in ended), *ended[left_out:]]:
        nmae = "" if run.validation_nmae is None else f"{run.validation_nmae:.3f}"
        speed = "" if run.samples_per_s is None else f"{run.samples_per_s:.3g}"
        left = time_left(run.left_s, run.state == "running")
        rows.append([run.name, run.state, f"{run.epoch}/{run.epochs}", nmae, speed, left])
    more = f", {left_out} more ended" if left_out else ""
    add("trainings", f"{where.runs}{more}", ["epoch", "NMAE", "samples/s", "time left"], rows)
    rows = []
    for sweep in overview.trials:
        best = "" if sweep.best_nmae is None else f"{sweep.best_nmae:.3f}"
        num = sweep.num_trials
        others = [f"{num[s]} {s}" for s in ("running", "interrupted", "failed") if num.get(s)]
        states = ", ".join([f"{sweep.num_ended}/{sum(num.values())} ended", *others])
        rows.append([sweep.name, sweep.state, states, best])
    add("sweeps and benchmarks", "", ("trials", "best NMAE"), rows)
    if not parts:
        nothing = f"nothing on record in {where.store} and {where.runs}"
        parts += [Text(nothing, overflow="fold"), Text("begin: courant run cylinder-flow"), ""]
    for disk in overview.disks:
        style = "red" if disk.free_bytes < LOW_DISK * disk.total_bytes else ""
        free = f"{size_text(disk.free_bytes)} of {size_text(disk.total_bytes)} free"
        line = Text.assemble(("disk", "bold"), f"  {disk.use}: ", (free, style), overflow="fold")
        parts.append(line)
    return Group(*parts)


METRICS = {
    "courant_dataset_cases": "Cases on record",
    "courant_dataset_cases_left": "Cases that the last writer has still to commit",
    "courant_dataset_solver_core_seconds_total": "Core-seconds of all solvers",
    "courant_training_epoch": "Epochs trained",
    "courant_training_validation_nmae": "Of the best weights of a running training so far",
    "courant_training_samples_per_second": "In the last epoch of a running training",
    "courant_trials": "Trials of a sweep or benchmark",
    "courant_disk_free_bytes": "Of the file systems of local places",
    "courant_unreadable": "Datasets and runs that could not be read",
}
"""Help of each gauge, or counter where the name ends with `_total`"""


def samples(found: Overview) -> Iterator[tuple[str, dict[str, str], float | None]]:
    """Yield each metric's name without `courant_`, its labels, and the number, if it is known."""
    for each in found.datasets:
        labels = {"dataset": each.url}
        for status, number in each.num_cases.items():
            yield "dataset_cases", {**labels, "status": status}, number
        yield "dataset_cases_left", labels, each.num_left
        yield "dataset_solver_core_seconds_total", labels, each.solver_s
    for run in found.runs:
        yield "training_epoch", {"run": run.name, "state": run.state}, run.epoch
        if run.state == "running":
            yield "training_validation_nmae", {"run": run.name}, run.validation_nmae
            yield "training_samples_per_second", {"run": run.name}, run.samples_per_s
    for trials in found.trials:
        for state, number in trials.num_trials.items():
            yield "trials", {"sweep": trials.name, "state": state}, number
    for disk in found.disks:
        yield "disk_free_bytes", {"use": disk.use}, disk.free_bytes
    yield "unreadable", {}, len(found.problems)


class RecordMetrics:
    """A collector of the records' metrics, which are read at most every so many seconds."""

    def __init__(self, places: Settings, every_s: float) -> None:
        self._places, self._every_s = places, every_s
        self._overview, self._read_at = look(places), time.monotonic()

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        if time.monotonic() - self._read_at >= self._every_s:
            self._overview, self._read_at = look(self._places), time.monotonic()
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for name, labels, value in samples(self._overview):
            name = f"courant_{name}"
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            family = families.setdefault(name, kind(name, METRICS[name], labels=list(labels)))
            if value is not None:
                family.add_metric(list(labels.values()), value)
        yield from families.values()


def metrics_server(
    metrics: RecordMetrics, host: str, port: int, names: Sequence[str] = ()
) -> tuple[Callable[[], None], int]:
    """Listen on http://host:port/metrics; return what serves until it is interrupted, and the port.

    On loopback, and where `names` are given, requests for other hosts are not answered. InputError
    where the port is taken.
    """
    import prometheus_client
    import uvicorn
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    registry = prometheus_client.CollectorRegistry()
    registry.register(metrics)  # type: ignore[arg-type]
    listener = loopback.listen(host, port, backlog=64)
    hosts = loopback.answered_names(listener, host, names)
    answers = prometheus_client.make_asgi_app(registry)
    app = TrustedHostMiddleware(answers, allowed_hosts=hosts, www_redirect=False)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
    return lambda: server.run([listener]), int(listener.getsockname()[1])


@observing_app.command(epilog="Example: courant doctor")
def doctor() -> None:
    """Show what works on this machine: OpenFOAM, gmsh, storage, Ray, GPU, disk."""
    usable, table = set(), Table(box=None, show_header=False)
    for name, check in CHECKS.items():
        try:
            text, mark = check(), Text("ok", "green")
            usable.add(name)
        except (SimgenError, ImportError, OSError) as error:
            kind = "" if isinstance(error, SimgenError) else f"{type(error).__name__}: "
            text, mark = f"{kind}{error}", Text("missing", "yellow")
        table.add_row(name, mark, escape(text))
    terminal.screen.print(table, "")
    solved = "be" if {"OpenFOAM", "gmsh", "scratch"} <= usable else "not be"
    reads = "can" if "store" in usable else "cannot"
    terminal.print_line(f"Datasets {reads} be read, models trained; cases can {solved} solved.")


def _python() -> str:
    memory = "" if (size := memory_gb()) is None else f", {size:.0f} GB"
    system = f"{platform.python_version()} on {platform.system()}"
    return f"{system}, {usable_cores()} cores{memory}"


def _openfoam() -> str:
    from simgen.foam.run import find_openfoam

    solvers = sorted({family.application for family in FAMILIES.values()})
    release = find_openfoam(("checkMesh", "gmshToFoam", *solvers))
    return f"v{release.removeprefix('v')}, {', '.join(solvers)}"


def _gmsh() -> str:
    # The wheel loads libGLU and libXrender, which a bare machine does not have.
    from simgen.meshing import load_gmsh

    load_gmsh()
    return version("gmsh")


def _gpu() -> str:
    import torch

    if not torch.cuda.is_available():
        raise InputError(f"none that torch {torch.__version__} sees; training uses the CPU")
    names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return f"{', '.join(names)} (torch {torch.__version__})"


def _ray() -> str:
    address = load_settings().ray_address
    return f"{version('ray')}; " + (
        f"RAY_ADDRESS is {address}" if address else "no RAY_ADDRESS, work is done here"
    )


def _prefect() -> str:
    url = prefect_url()
    if url is None:
        return f"{version('prefect')}; no PREFECT_API_URL, no command needs a server"
    check_prefect(url)
    return f"{version('prefect')}, {url} answers"


def _store() -> str:
    from simgen.store.versions import repository_exists

    where = load_settings().store_url()
    there = [family for family in FAMILIES if repository_exists(f"{where}/{family}")]
    return f"{where}: {', '.join(there) or 'no dataset yet'}"


def _scratch() -> str:
    folder = Path(load_settings().scratch)
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise InputError(f"{folder} cannot be written; set COURANT_SCRATCH to a folder that can")
    if there == folder:
        from simgen.solving.case_lock import check_private  # needs Unix

        check_private(folder)
    free = shutil.disk_usage(there).free / 1e9
    if free < 5.0:  # a paper-sized case writes a few GB before it is read
        raise InputError(f"{folder} has {free:.0f} GB free; set COURANT_SCRATCH to a larger disk")
    return f"{folder}: {free:.0f} GB free"


CHECKS: dict[str, Callable[[], str]] = {
    "Python": _python,
    "OpenFOAM": _openfoam,
    "gmsh": _gmsh,
    "GPU": _gpu,
    "Ray": _ray,
    "Prefect": _prefect,
    "store": _store,
    "scratch": _scratch,
}
"""Each returns what it found, and raises for what cannot be used, with the way to get it"""


@observing_app.command(epilog="Example: courant families cylinder-flow")
def families(
    name: Annotated[
        str | None, asks.argument("A family: its parameters, settings and more.")
    ] = None,
    store: asks.Store = None,
) -> None:
    """List the case families, with the templates of a store; or show one: what it declares."""
    place = load_settings().store_url(store)
    if name is None:
        for each in templates_in(place):
            find_family(each, f"{place}/{each}")
        every = FAMILIES.values()
        rows = ((of.name, of.title, of.application, ", ".join(of.presets)) for of in every)
        terminal.print_table(("family", Column(""), "solver", "presets"), rows)
        return
    family = get_family(name, f"{place}/{name}")
    kind = "transient" if family.transient else "steady"
    title = f"{family.title}; {kind}, {family.application}, revision {family.revision}"
    terminal.print_line(f"{family.name}  {title}\n")
    _print_space("parameter", family.design_space, {})
    _print_space("setting", family.settings_space, family.presets)
    fields = ((each.name, each.unit, ", ".join(each.components)) for each in family.fields)
    terminal.print_table(("field", "unit", Column("components")), fields)
    terminal.print_line("")
    quantities = ((each.name, each.unit, each.described) for each in family.quantities)
    terminal.print_table(("quantity", "unit", Column("")), quantities)
    header = ",".join(family.design_space.names)
    line = f"courant generate {name} --cases 24{f' --store {shlex.quote(store)}' if store else ''}"
    terminal.print_line(f"\nSolve designs: {line}")
    terminal.print_line(f"First line of a file for --designs: {header}")


def _print_space(
    title: str, space: DesignSpace, presets: Mapping[str, Mapping[str, float]]
) -> None:
    rows = []
    for of in space.parameters:
        values = [f"{preset[of.name]:g}" for preset in presets.values()]
        rows.append([of.name, of.unit, f"{of.low:g} to {of.high:g}", *values, of.description])
    terminal.print_table((title, "unit", "range", *presets, Column("")), rows)
    terminal.print_line("")
