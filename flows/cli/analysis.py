"""`courant analyse`: the inside of trained models, as tables, numbers and arrays.

Heavy imports are inside the commands, so that `courant --help` answers at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table
from typer.core import TyperGroup

from courant.runs.directory import RunDirectory
from flows.cli.options import MovedDataset, RunUrl, RunUrls
from flows.settings import absolute
from flows.terminal import counted, print_line, progress_bar, screen
from simgen.errors import InputError

if TYPE_CHECKING:
    from courant.analysis.case_dynamics import CaseDynamics
    from courant.analysis.comparison import RunComparison
    from courant.prediction.surrogate import Surrogate
    from simgen.store.read import Dataset

DEFAULT = "scores"
#: Width of a score's name in 80 columns; a longer one takes two lines.
_NAME = 30
_NUMBER = 9
#: Between the columns of a terminal's table.
_GAP = 2

ChosenCases = Annotated[
    list[str] | None,
    typer.Option(
        "--case", help="Id of a case, as often as wanted; default: all of the test split."
    ),
]
OutFolder = Annotated[
    str, typer.Option(help="Folder or s3://bucket/prefix for the numbers and their arrays.")
]


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


def _opened(run: str, out: str, dataset: str | None) -> tuple[RunDirectory, Surrogate, Dataset]:
    """Return the folder of the numbers, the model and its dataset."""
    from courant.prediction.surrogate import load

    surrogate = load(absolute(run))
    return RunDirectory(absolute(out)), surrogate, surrogate.open_dataset(dataset)


def _chosen_cases(dataset: Dataset, named: Sequence[str] | None) -> list[str]:
    """Return the named cases, or those of the test split; InputError where there is none."""
    chosen = list(named or ()) or dataset.cases("test")
    if not chosen:
        raise InputError(f"{dataset.url} {dataset.version} has no test case; name one by --case")
    return chosen


def _write_numbers(folder: RunDirectory, name: str, content: dict[str, Any]) -> None:
    folder.write_json(name, content)
    print_line(f"numbers  {folder.url.rstrip('/')}/{name}")


def _table(rows: Sequence[dict[str, str]]) -> Table:
    """Return a table of rows by the names of their columns, all but the first to the right."""
    table = Table(box=None, header_style="bold")
    for number, name in enumerate(rows[0]):
        table.add_column(name, justify="right" if number else "left", no_wrap=number == 0)
    for row in rows:
        table.add_row(*row.values())
    return table


def _text(value: float | None, form: str, absent: str = "none") -> str:
    return absent if value is None else format(value, form)


@analysis_app.command(
    DEFAULT, epilog="Example: courant analyse RUN --case b0159c13a91f --out analysis"
)
def analyse_scores(
    run: RunUrl,
    case: ChosenCases = None,
    other: Annotated[
        str | None,
        typer.Option(
            metavar="RUN", help="A second run, such as one of another seed, to match fields with."
        ),
    ] = None,
    out: OutFolder = "analysis",
    dataset: MovedDataset = None,
) -> None:
    """Score what each anchor contributes: where, how much, how steadily, beside controls.

    docs/analysis.md explains every score.
    """
    from courant.analysis.comparison import case_arrays, score_run
    from courant.analysis.scores import SCORES

    folder = RunDirectory(absolute(out))
    with progress_bar("analysing") as progress:
        scores = score_run(
            absolute(run),
            case or (),
            absolute(other) if other else None,
            progress,
            dataset,
            lambda found: folder.write_arrays(f"{found.case}.npz", case_arrays(found)),
        )
    mean, controls = scores["mean"], scores["controls"]
    table = Table(box=None, header_style="bold")
    table.add_column("score", min_width=_NAME)
    for name in ("model", *controls):
        table.add_column(name.replace("-", "- "), justify="right", max_width=_NUMBER)
    table.add_column("good is", no_wrap=True)
    subject = ""
    for each in SCORES:
        if each.key not in mean:
            continue
        if each.subject != subject:
            table.add_row(each.subject, style="bold")
            subject = each.subject
        values = [_text(found.get(each.key), ".3g", "") for found in (mean, *controls.values())]
        table.add_row(each.name, *values, each.aim_text)
    screen.print(table)
    folder.write_json("scores.json", scores)
    print_line(f"scores  {folder.url.rstrip('/')}/scores.json")


@analysis_app.command("monitor", epilog="Example: courant analyse monitor RUN")
def analyse_monitor(
    run: RunUrl, case: ChosenCases = None, out: OutFolder = "analysis", dataset: MovedDataset = None
) -> None:
    """Calibrate the monitor of a transient model's rollouts, and judge it on test cases.

    The run then has monitor.json, with which `surrogate.predict(..., monitor=True)` finds from the
    latents when a rollout leaves the dynamics that the model was trained on.
    """
    from courant.analysis.monitoring import calibrate_monitor, judge_monitor, write_monitor

    folder, surrogate, opened = _opened(run, out, dataset)
    RunDirectory(surrogate.url).check_writable()
    with progress_bar("calibrating") as progress:
        monitor = calibrate_monitor(surrogate, opened, progress)
    write_monitor(surrogate, monitor)
    print_line(
        f"monitor  {surrogate.url}/monitor.json, from {monitor.rollouts} validation rollouts of"
        f" {monitor.horizon} steps"
    )
    chosen = list(case or ()) or opened.cases("test")
    if not chosen:
        return
    with progress_bar("judging") as progress:
        found = judge_monitor(surrogate, opened, monitor, chosen, progress)
    rows = []
    for each in found.watched:
        detection = each.detection
        flag = len(each.errors) if detection.flagged_at is None else detection.flagged_at - 1
        before, after = (
            f"{part.mean():.2f}" if len(part) else ""
            for part in (each.errors[:flag], each.errors[flag:])
        )
        rows.append(
            {
                "case, rolled out to its end": each.case,
                "steps": str(len(each.times)),
                "flag at step": _text(detection.flagged_at, "d", "never"),
                "error doubled at": _text(detection.doubled_at, "d", "never"),
                "lead": _text(detection.lead, "d", ""),
                "error before (std)": before,
                "error from there on (std)": after,
            }
        )
    screen.print(_table(rows))
    print_line(
        f"false alarms  {found.false_alarms:.1%} of {found.num_rollouts} rollouts of"
        f" {found.monitor.horizon} steps, of cases that it was not calibrated on"
    )
    rates = found.detection
    print_line(
        f"detection  {rates['detected']} of {rates['doubled']} rollouts whose error doubles are"
        f" flagged at least one step before ({_text(rates['rate'], '.0%')}), by"
        f" {_text(rates['median_lead'], 'g')} steps in the median; {rates['flagged_in_vain']} of"
        f" the {rates['rollouts'] - rates['doubled']} others are flagged too"
    )
    _write_numbers(folder, "monitor_judgement.json", found.to_json())


@analysis_app.command("fields", epilog="Example: courant analyse fields RUN --top 8")
def analyse_fields(
    run: RunUrl,
    case: ChosenCases = None,
    top: Annotated[
        int, typer.Option(min=1, max=10_000, help="Fields to keep of each case, by energy.")
    ] = 8,
    out: OutFolder = "analysis",
    dataset: MovedDataset = None,
) -> None:
    """Write the decomposition of predictions as arrays: the strongest fields, and the ranking.

    <case>_fields.npz has the offset, the fields and their sum in physical units, at the step that
    `courant analyse scores` scores.
    """
    from courant.analysis.case_scores import ranked_fields

    folder, surrogate, opened = _opened(run, out, dataset)
    names = _chosen_cases(opened, case)
    with progress_bar("decomposing") as progress:
        for number, name in enumerate(names, start=1):
            found = ranked_fields(surrogate, opened[name], top)
            folder.write_arrays(f"{name}_fields.npz", found)
            progress(number, len(names))
            energies, strongest = found["energies"], found["ranking"][:top]
            share = energies[strongest].sum() / energies.sum()
            listed = ", ".join(map(str, strongest.tolist()))
            print_line(f"{name}  anchors {listed} have {share:.0%} of the energy")
    print_line(f"fields  {folder.url.rstrip('/')}/<case>_fields.npz")


@analysis_app.command("maps", epilog="Example: courant analyse maps RUN --anchor 14")
def analyse_maps(
    run: RunUrl,
    case: ChosenCases = None,
    anchor: Annotated[
        list[int] | None,
        typer.Option(
            help="Number of an anchor, as often as wanted; default: three representative ones."
        ),
    ] = None,
    out: OutFolder = "analysis",
    dataset: MovedDataset = None,
) -> None:
    """Write maps of some anchors as arrays: decoder weights over time, and encoder attention.

    <case>_maps.npz has the dominant anchor of each point and step too, and where levels move the
    anchors their places at each.
    """
    from courant.analysis.case_scores import map_anchors, representative_anchors, score_case

    folder, surrogate, opened = _opened(run, out, dataset)
    names = _chosen_cases(opened, case)
    with progress_bar("mapping") as progress:
        for number, name in enumerate(names, start=1):
            stored, chosen = opened[name], anchor
            if not chosen:
                scores = score_case(surrogate, stored)
                energies = scores.fields.energies
                chosen = representative_anchors(energies, scores.temporal_variance)
            start = surrogate.problem.shown_start(stored)
            found = map_anchors(surrogate, stored, chosen, start)
            folder.write_arrays(f"{name}_maps.npz", found.arrays())
            progress(number, len(names))
    print_line(f"maps  {folder.url.rstrip('/')}/<case>_maps.npz of {counted(len(names), 'case')}")


@analysis_app.command("frequencies", epilog="Example: courant analyse frequencies RUN --steps 40")
def analyse_frequencies(
    run: RunUrl,
    case: ChosenCases = None,
    steps: Annotated[
        int, typer.Option(min=8, max=10_000, help="Steps of each rollout, if the case is so long.")
    ] = 40,
    out: OutFolder = "analysis",
    dataset: MovedDataset = None,
) -> None:
    """Compare the frequency of long rollouts with that of the solution, in flow and latents.

    docs/analysis.md explains the columns. <case>_frequencies.npz has the series, the scalogram and
    the modes behind them.
    """
    from courant.analysis.case_dynamics import study_frequencies

    folder, surrogate, opened = _opened(run, out, dataset)
    chosen = _chosen_cases(opened, case)

    def keep(name: str, rollout: CaseDynamics) -> None:
        folder.write_arrays(f"{name}_frequencies.npz", rollout.arrays())

    with progress_bar("rolling out") as progress:
        found = study_frequencies(surrogate, opened, chosen, steps, progress, keep)
    if cases := found["cases"]:
        medians = found["medians"]
        rows, modes_rows = [], []
        for each in cases:
            rows.append(
                {
                    "case": each["case"],
                    "steps": str(each["steps"]),
                    "solution (Hz)": _text(each["reference_hz"], ".4g"),
                    "prediction": _text(each["predicted_hz"], ".4g"),
                    "DMD": _text(each["dmd_hz"], ".4g"),
                    "latents": _text(each["latent_hz"], ".4g"),
                    "anchors locked in": _text(each["locked_in"], ".0%"),
                    "drift at the end": _text(each["drift"], "+.1%"),
                    "lost after (s)": _text(each["lost_s"], "g", "never"),
                }
            )
            modes = each["modes"]
            growth = " / ".join(_text(value, "+.2g") for value in modes["growth_rates"])
            modes_rows.append(
                {
                    "case, solution / prediction": each["case"],
                    "variance (std²)": " / ".join(f"{value:.3g}" for value in modes["variances"]),
                    "in two POD modes": " / ".join(f"{v:.0%}" for v in modes["leading_shares"]),
                    "their correlation": f"{modes['pod_correlation']:.2f}",
                    "DMD growth (1/s)": growth,
                    "DMD correlation": _text(modes["dmd_correlation"], ".2f"),
                }
            )
        table = _table(rows)
        table.add_row(
            f"median error of {len(cases)}",
            "",
            "",
            *(_text(medians[f"{key}_hz_error"], ".1%") for key in ("predicted", "dmd", "latent")),
            _text(medians["locked_in"], ".0%"),
            _text(medians["absolute_drift"], ".1%"),
            f"{medians['kept']:.0%} of the time",
            style="bold",
        )
        screen.print(table)
        screen.print(_table(modes_rows))
    if without := found["without_rhythm"]:
        print_line(
            f"without  {counted(len(without), 'case')} that are steady, or too short for their"
            f" frequency: {', '.join(without)}"
        )
    _write_numbers(folder, "frequencies.json", found)


@analysis_app.command(
    "spectrum", epilog="Example: courant analyse spectrum RUN --case b0159c13a91f --at 1 --at 40"
)
def analyse_spectrum(
    run: RunUrl,
    case: ChosenCases = None,
    at: Annotated[
        list[int] | None,
        typer.Option(
            min=0,
            max=10_000,
            help="Step of the rollout, as often as wanted; 0 is the encoded state. Default: the"
            " first and the last of a training window.",
        ),
    ] = None,
    exact_up_to: Annotated[
        int,
        typer.Option(
            min=0,
            help="Numbers in a latent state (anchors times width) up to which all eigenvalues are"
            " computed; of larger ones the 32 leading ones, by Arnoldi iteration.",
        ),
    ] = 8192,
    out: OutFolder = "analysis",
    dataset: MovedDataset = None,
) -> None:
    """Compute the eigenvalues of the processor's Jacobian J and of its step, I + hJ for Euler's.

    Without --case it takes the first test case. <case>_spectrum.npz has all eigenvalues.
    """
    from courant.analysis.case_dynamics import case_spectra

    folder, surrogate, opened = _opened(run, out, dataset)
    chosen = _chosen_cases(opened, case)[: len(case) if case else 1]
    records: list[dict[str, Any]] = []
    with progress_bar("computing eigenvalues") as progress:
        for number, name in enumerate(chosen):

            def report(done: int, total: int, before: int = number) -> None:
                progress(before * total + done, len(chosen) * total)

            record, arrays = case_spectra(surrogate, opened[name], at or (), exact_up_to, report)
            folder.write_arrays(f"{name}_spectrum.npz", arrays)
            records.append(record)
    rows = []
    for record in records:
        for state in record["states"]:
            for key, label in (("longest", "lasting"), ("nearest", "nearest")):
                row = {"case": record["case"], "step": str(state["step"]), "pair": label}
                pair = state[key]
                for name, values in (("λ of J", "derivative"), ("μ of a step", "step")):
                    row[name] = "{:.2f}±{:.2f}i".format(*pair[values]) if pair else "none"
                row["|μ|"] = f"{pair['modulus']:.4g}" if pair else ""
                row["Hz"] = f"{pair['frequency_hz']:.4g}" if pair else ""
                row["over flow"] = _text(pair["over_reference"], ".3g", "") if pair else ""
                rows.append(row)
    screen.print(_table(rows))
    states = [state for record in records for state in record["states"]]
    print_line(
        "pairs    that last longest, and nearest to the flow's frequency, of"
        f" {'all' if all(state['exact'] for state in states) else 'the leading'}"
        f" {min(state['eigenvalues'] for state in states)} eigenvalues"
    )
    _write_numbers(folder, "spectrum.json", {"cases": records})


@analysis_app.command(
    "compare", epilog="Example: courant analyse compare RUN OTHER-RUN --out analysis"
)
def analyse_compare(
    runs: RunUrls,
    case: ChosenCases = None,
    out: OutFolder = "analysis",
    dataset: MovedDataset = None,
) -> None:
    """Put all scores of several runs side by side; runs of one setting share a column.

    Writes comparison.md, .csv, .json and .png; trade-off.png, the error against every score that
    has an aim; and fields.png with fields.npz, the strongest fields of each row's first run for one
    case. After an interruption the same command continues.
    """
    from courant.analysis.comparison import compare_runs
    from courant.report.comparison import (
        draw_comparison,
        draw_run_fields,
        draw_trade_off,
        fields_of_runs,
    )
    from simgen.publish.figures import png_bytes

    folder = RunDirectory(absolute(out))
    urls = [absolute(run) for run in runs]
    with progress_bar("scoring") as progress:
        found = compare_runs(urls, folder, case or (), dataset, progress)
    for table in tables(found, screen.width):
        screen.print(table)
    folder.write_json("comparison.json", found.to_json())
    folder.write_bytes("comparison.csv", found.to_csv().encode())
    folder.write_bytes("comparison.md", found.to_markdown().encode())
    folder.write_bytes("comparison.png", png_bytes(draw_comparison(found)))
    place = folder.url.rstrip("/")
    print_line(f"table  {place}/comparison.md, .csv, .json, .png")
    if trade_off := draw_trade_off(found):
        folder.write_bytes("trade-off.png", png_bytes(trade_off))
        print_line(f"figure {place}/trade-off.png")
    first = found.of_family(found.families[0])
    if (fields := fields_of_runs(first, case or (), dataset)) is not None:
        folder.write_bytes("fields.png", png_bytes(draw_run_fields(fields)))
        folder.write_arrays("fields.npz", fields.arrays())
        print_line(f"fields {place}/fields.png, .npz: case {fields.case}")


def tables(found: RunComparison, width: int) -> Iterator[Table]:
    """Yield tables of as many columns as a terminal of some width shows without breaking words."""
    from courant.analysis.scores import SCORES

    shown = [each for each in SCORES if each.key in found.keys]
    names, aims = [each.name for each in shown], [each.aim_text for each in shown]
    longest = max(map(len, names)), max(map(len, aims))
    group: list[tuple[str, list[str], int]] = []

    def table() -> Table:
        made = Table(box=None, header_style="bold")
        made.add_column("score", min_width=longest[0])
        for heading, _, wide in group:
            made.add_column(heading, justify="right", max_width=wide)
        made.add_column("good is", min_width=longest[1])
        for number, name in enumerate(names):
            made.add_row(name, *(cells[number] for _, cells, _ in group), aims[number])
        return made

    room = width - sum(longest) - _GAP
    for row in found.columns:
        heading, scores = escape(found.heading(row)), [row.scores.get(each.key) for each in shown]
        cells = ["" if each is None else each.text() for each in scores]
        # A heading may be broken at its spaces, a number may not.
        wide = max(map(len, [*cells, *heading.split()]))
        if group and sum(used + _GAP for *_, used in group) + _GAP + wide > room:
            yield table()
            group.clear()
        group.append((heading, cells, wide))
    yield table()
