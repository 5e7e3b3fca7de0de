"""`courant analyse`: the inside of trained models, as tables, numbers and arrays.

Heavy imports are inside the commands, so that `courant --help` answers at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table
from typer.core import TyperGroup

from flows.cli.options import MovedDataset, RunUrl
from flows.settings import absolute
from flows.terminal import counted, one_line_errors, print_line, progress_bar, screen
from simgen.errors import InputError

if TYPE_CHECKING:
    from courant.analysis.case_dynamics import CaseDynamics, FrequencyStudy
    from courant.analysis.comparison import RunComparison, RunScores
    from courant.analysis.modes import CaseSpectra, StateSpectrum
    from courant.analysis.monitoring import DetectionRate, MonitorJudgement
    from courant.prediction.surrogate import Surrogate
    from courant.runs.directory import RunDirectory
    from simgen.store.read import Dataset


def _opened(run: str, out: str, dataset: str | None) -> tuple[RunDirectory, Surrogate, Dataset]:
    """Return the folder of the numbers, the model and its dataset."""
    from courant.prediction.surrogate import load
    from courant.runs.directory import RunDirectory

    surrogate = load(absolute(run))
    opened = surrogate.open_dataset(absolute(dataset) if dataset else None)
    return RunDirectory(absolute(out)), surrogate, opened


def chosen_cases(dataset: Dataset, named: Sequence[str] | None) -> list[str]:
    """Return the named cases, or those of the test split; InputError where there is none."""
    chosen = list(named or ()) or dataset.cases("test")
    if not chosen:
        raise InputError(f"{dataset.url} {dataset.version} has no test case; name one by --case")
    return chosen


#: Width of a score's name in 80 columns; a longer one takes two lines.
_NAME = 30
_NUMBER = 9
EXAMPLE = "Example: courant analyse RUN --case b0159c13a91f --out analysis"

ChosenCases = Annotated[
    list[str] | None,
    typer.Option(
        "--case", help="Id of a case, as often as wanted; default: all of the test split."
    ),
]
OutFolder = Annotated[
    str, typer.Option(help="Folder or s3://bucket/prefix for the numbers and their arrays.")
]


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
    with one_line_errors():
        from courant.analysis.comparison import score_run, write_arrays, write_scores
        from courant.runs.directory import RunDirectory

        folder = RunDirectory(absolute(out))
        with progress_bar("analysing") as progress:
            scores = score_run(
                absolute(run),
                case or (),
                absolute(other) if other else None,
                progress,
                absolute(dataset) if dataset else None,
                partial(write_arrays, folder),
            )
        screen.print(score_table(scores))
        print_line(f"scores  {write_scores(folder, scores)}")


def score_table(scores: RunScores) -> Table:
    """Return one row for each score that the run has, with its controls, below its subject."""
    from courant.analysis.scores import SCORES

    mean, controls = scores.mean, scores.controls
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
        values = [_score_text(found.get(each.key)) for found in (mean, *controls.values())]
        table.add_row(each.name, *values, each.aim_sign)
    return table


def _score_text(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


JUDGEMENT_FILE = "monitor_judgement.json"


def analyse_monitor(
    run: RunUrl, case: ChosenCases = None, out: OutFolder = "analysis", dataset: MovedDataset = None
) -> None:
    """Calibrate the monitor of a transient model's rollouts, and judge it on test cases.

    The run keeps it as monitor.json; `surrogate.predict(..., monitor=True)` then tells from the
    latents when a rollout leaves the dynamics that the model was trained on.
    """
    with one_line_errors():
        from courant.analysis.monitoring import calibrate_monitor, judge_monitor, write_monitor
        from courant.runs.directory import RunDirectory

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
        screen.print(_watched_table(found))
        print_line(
            f"false alarms  {found.false_alarms:.1%} of {found.num_rollouts} rollouts of"
            f" {monitor.horizon} steps, of cases that it was not calibrated on"
        )
        print_line(_detection(found.detection))
        folder.write_json(JUDGEMENT_FILE, found.to_json())
        print_line(f"numbers  {folder.url.rstrip('/')}/{JUDGEMENT_FILE}")


def _detection(found: DetectionRate) -> str:
    """Say how many doublings of the error were flagged in time, and how many flags were idle."""
    if found.rate is None:
        told = f"none of {found.rollouts} rollouts to a case's end doubles its error"
    else:
        told = (
            f"{found.detected} of {found.doubled} rollouts whose error doubles are flagged at"
            f" least one step before ({found.rate:.0%})"
        )
        if found.median_lead is not None:
            told += f", by {found.median_lead:g} steps in the median"
    others = found.rollouts - found.doubled
    return f"detection  {told}; {found.flagged_in_vain} of the {others} others are flagged too"


def _watched_table(found: MonitorJudgement) -> Table:
    table = Table("case, rolled out to its end", box=None, header_style="bold")
    names = ("steps", "flag at step", "error doubled at", "lead")
    for name in (*names, "error before (std)", "error from there on (std)"):
        table.add_column(name, justify="right")
    for each in found.watched:
        flag = each.quality.flagged_at
        before = each.errors[: None if flag is None else flag - 1]
        after = each.errors[len(each.errors) if flag is None else flag - 1 :]
        table.add_row(
            each.case,
            str(len(each.times)),
            "never" if flag is None else str(flag),
            "never" if each.detection.doubled_at is None else str(each.detection.doubled_at),
            "" if each.detection.lead is None else str(each.detection.lead),
            *(f"{part.mean():.2f}" if len(part) else "" for part in (before, after)),
        )
    return table


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
    with one_line_errors():
        from courant.analysis.case_scores import ranked_fields

        folder, surrogate, opened = _opened(run, out, dataset)
        names = chosen_cases(opened, case)
        with progress_bar("decomposing") as progress:
            for number, name in enumerate(names, start=1):
                found = ranked_fields(surrogate, opened[name], top)
                folder.write_arrays(f"{name}_fields.npz", found.arrays())
                progress(number, len(names))
                share = found.energies[found.ranking[:top]].sum() / found.energies.sum()
                listed = ", ".join(map(str, found.ranking[:top].tolist()))
                print_line(f"{name}  anchors {listed} hold {share:.0%} of the energy")
        print_line(f"fields  {folder.url.rstrip('/')}/<case>_fields.npz")


def analyse_maps(
    run: RunUrl,
    case: ChosenCases = None,
    anchor: Annotated[
        list[int] | None,
        typer.Option(help="Number of an anchor, as often as wanted; default: three telling ones."),
    ] = None,
    out: OutFolder = "analysis",
    dataset: MovedDataset = None,
) -> None:
    """Write maps of some anchors as arrays: decoder weights over time, and encoder attention.

    <case>_maps.npz holds the dominant anchor of each point and step too, and where levels move the
    anchors their places at each.
    """
    with one_line_errors():
        from courant.analysis.case_scores import score_case
        from courant.analysis.error_addresses import map_anchors, representative_anchors

        folder, surrogate, opened = _opened(run, out, dataset)
        names = chosen_cases(opened, case)
        with progress_bar("mapping") as progress:
            for number, name in enumerate(names):
                stored, chosen = opened[name], anchor
                if not chosen:
                    scores = score_case(surrogate, stored)
                    chosen = representative_anchors(
                        scores.fields.energies, scores.temporal_variance
                    )
                start = surrogate.problem.shown_start(stored)
                found = map_anchors(surrogate, stored, chosen, start)
                folder.write_arrays(f"{name}_maps.npz", found.arrays())
                progress(number + 1, len(names))
        listed = ", ".join(f"{name}_maps.npz" for name in names[:3])
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        print_line(f"maps  {folder.url}: {listed}{more}")


FREQUENCIES_FILE = "frequencies.json"


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

    docs/analysis.md explains the columns. <case>_frequencies.npz holds the series, the scalogram
    and the modes behind them.
    """
    with one_line_errors():
        from courant.analysis.case_dynamics import rhythm_arrays, study_frequencies

        folder, surrogate, opened = _opened(run, out, dataset)
        chosen = chosen_cases(opened, case)

        def keep(name: str, rollout: CaseDynamics) -> None:
            folder.write_arrays(f"{name}_frequencies.npz", rhythm_arrays(rollout))

        with progress_bar("rolling out") as progress:
            found = study_frequencies(surrogate, opened, chosen, steps, progress, keep)
        if found.cases:
            screen.print(_frequency_table(found))
            screen.print(_modes_table(found))
        if found.without:
            print_line(
                f"without  {counted(len(found.without), 'case')} that stand still or are too short"
                f" to tell their frequency: {', '.join(found.without)}"
            )
        folder.write_json(FREQUENCIES_FILE, found.to_json())
        print_line(f"numbers  {folder.url.rstrip('/')}/{FREQUENCIES_FILE}")


def _frequency_table(found: FrequencyStudy) -> Table:
    table = Table("case", box=None, header_style="bold")
    names = ("steps", "solution (Hz)", "prediction", "DMD", "latents", "anchors locked in")
    for name in (*names, "drift at the end", "lost after (s)"):
        table.add_column(name, justify="right")
    for each in found.cases:
        table.add_row(
            each.case,
            str(each.steps),
            f"{each.reference_hz:.4g}",
            *(
                _formatted(value, ".4g")
                for value in (each.predicted_hz, each.dmd_hz, each.latent_hz)
            ),
            f"{each.locked_in:.0%}",
            _formatted(each.drift, "+.1%"),
            "never" if each.lost_s is None else f"{each.lost_s:g}",
        )
    medians = found.medians
    table.add_row(
        f"median error of {len(found.cases)}",
        "",
        "",
        *(
            _formatted(medians[f"{name}_hz_error"], ".1%")
            for name in ("predicted", "dmd", "latent")
        ),
        _formatted(medians["locked_in"], ".0%"),
        _formatted(medians["absolute_drift"], ".1%"),
        f"{medians['kept']:.0%} of the time",
        style="bold",
    )
    return table


def _modes_table(found: FrequencyStudy) -> Table:
    """Return the modes of the solution and of the prediction, side by side."""
    table = Table("case, solution / prediction", box=None, header_style="bold")
    names = ("variance (std²)", "in two POD modes", "their correlation", "DMD growth (1/s)")
    for name in (*names, "DMD correlation"):
        table.add_column(name, justify="right")
    for each in found.cases:
        modes = each.modes
        table.add_row(
            each.case,
            " / ".join(f"{value:.3g}" for value in modes.variances),
            " / ".join(f"{value:.0%}" for value in modes.leading_shares),
            f"{modes.pod_correlation:.2f}",
            " / ".join(_formatted(value, "+.2g") for value in modes.growth_rates),
            _formatted(modes.dmd_correlation, ".2f"),
        )
    return table


def _formatted(value: float, form: str) -> str:
    return format(value, form) if value == value else "none"


SPECTRUM_FILE = "spectrum.json"


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

    Without --case it takes the first test case. <case>_spectrum.npz holds all eigenvalues.
    """
    with one_line_errors():
        from courant.analysis.modes import case_spectra

        folder, surrogate, opened = _opened(run, out, dataset)
        chosen = chosen_cases(opened, case)[: len(case) if case else 1]
        found: list[CaseSpectra] = []
        with progress_bar("computing eigenvalues") as progress:
            for number, name in enumerate(chosen):

                def report(done: int, total: int, before: int = number) -> None:
                    progress(before * total + done, len(chosen) * total)

                each = case_spectra(
                    surrogate, opened[name], at or (), exact_up_to=exact_up_to, progress=report
                )
                folder.write_arrays(f"{name}_spectrum.npz", each.arrays())
                found.append(each)
        screen.print(_spectrum_table(found))
        counts = {len(state.spectrum.step) for each in found for state in each.states}
        exact = all(state.spectrum.exact for each in found for state in each.states)
        print_line(
            f"pairs    that last longest, and nearest to the flow's frequency, of"
            f" {'all' if exact else 'the leading'} {min(counts)} eigenvalues"
        )
        folder.write_json(SPECTRUM_FILE, {"cases": [each.to_json() for each in found]})
        print_line(f"numbers  {folder.url.rstrip('/')}/{SPECTRUM_FILE}")


def _spectrum_table(found: list[CaseSpectra]) -> Table:
    table = Table("case", "pair", box=None, header_style="bold")
    for name in ("step", "λ of J", "μ of a step", "|μ|", "Hz", "over flow"):
        table.add_column(name, justify="right")
    table.columns[0].no_wrap = True
    for case in found:
        for state in case.states:
            pairs = state.to_json(case.reference_hz)
            for pair, name in (("longest", "lasting"), ("nearest", "nearest")):
                table.add_row(case.case, name, *_cells(state, pairs[pair]))
    return table


def _cells(state: StateSpectrum, pair: dict[str, Any] | None) -> list[str]:
    if pair is None:
        return [str(state.step), "none", "", "", "", ""]
    ratio = pair["over_reference"]
    return [
        str(state.step),
        _complex(pair["derivative"]),
        _complex(pair["step"]),
        f"{pair['modulus']:.4g}",
        f"{pair['frequency_hz']:.4g}",
        "" if ratio is None else f"{ratio:.3g}",
    ]


def _complex(value: list[float]) -> str:
    real, imaginary = value
    return f"{real:.2f}±{imaginary:.2f}i"


COMPARISON, TRADE_OFF, FIELDS = "comparison", "trade-off", "fields"
#: Between the columns of a terminal's table.
_GAP = 2


def analyse_compare(
    runs: Annotated[
        list[str],
        typer.Argument(help="Two run directories or more: folders or s3://bucket/prefix."),
    ],
    case: ChosenCases = None,
    out: OutFolder = "analysis",
    dataset: MovedDataset = None,
) -> None:
    """Put all scores of several runs side by side; runs of one setting share a column.

    Writes comparison.md, .csv, .json and .png; trade-off.png, the error against every score that
    has an aim; and fields.png with fields.npz, the strongest fields of each row's first run for one
    case. After an interruption the same command continues.
    """
    with one_line_errors():
        from courant.analysis.comparison import compare_runs
        from courant.report.comparison import draw_comparison, draw_run_fields, fields_of_runs
        from courant.report.sweep_page import draw_trade_off
        from courant.runs.directory import RunDirectory
        from simgen.publish.field_plots import png_bytes

        folder = RunDirectory(absolute(out))
        moved = absolute(dataset) if dataset else None
        with progress_bar("scoring") as progress:
            found = compare_runs(
                [absolute(run) for run in runs], folder, case or (), moved, progress
            )
        for table in tables(found, screen.width):
            screen.print(table)
        folder.write_json(f"{COMPARISON}.json", found.to_json())
        folder.write_bytes(f"{COMPARISON}.csv", found.to_csv().encode())
        folder.write_bytes(f"{COMPARISON}.md", found.to_markdown().encode())
        folder.write_bytes(f"{COMPARISON}.png", png_bytes(draw_comparison(found)))
        place = folder.url.rstrip("/")
        print_line(f"table  {place}/{COMPARISON}.md, .csv, .json, .png")
        if trade_off := draw_trade_off(found):
            folder.write_bytes(f"{TRADE_OFF}.png", png_bytes(trade_off))
            print_line(f"figure {place}/{TRADE_OFF}.png")
        first = found.of_family(found.families[0])
        if (fields := fields_of_runs(first, case or (), moved)) is not None:
            folder.write_bytes(f"{FIELDS}.png", png_bytes(draw_run_fields(fields)))
            folder.write_arrays(f"{FIELDS}.npz", fields.arrays())
            print_line(f"fields {place}/{FIELDS}.png, .npz: case {fields.case}")


def tables(found: RunComparison, width: int) -> Iterator[Table]:
    """Yield tables of as many columns as a terminal of some width shows without breaking words."""
    from courant.analysis.scores import SCORES

    shown = [each for each in SCORES if each.key in found.keys]
    headings = [escape(found.heading(row)) for row in found.columns]
    cells = [
        [row.scores[each.key].text() if each.key in row.scores else "" for each in shown]
        for row in found.columns
    ]
    # A heading may be broken at its spaces, a number may not.
    widths = [
        _GAP + max(map(len, [*column, *heading.split()]))
        for heading, column in zip(headings, cells, strict=True)
    ]
    names, aims = [each.name for each in shown], [each.aim_sign for each in shown]
    room = width - _longest(names) - _GAP - _longest(aims)
    for first, last in _groups(widths, room):
        table = Table(box=None, header_style="bold")
        table.add_column("score", min_width=_longest(names))
        for heading, wide in zip(headings[first:last], widths[first:last], strict=True):
            table.add_column(heading, justify="right", max_width=wide - _GAP)
        table.add_column("good is", min_width=_longest(aims))
        for number, name in enumerate(names):
            here = [column[number] for column in cells[first:last]]
            table.add_row(name, *here, aims[number])
        yield table


def _groups(widths: list[int], room: int) -> Iterator[tuple[int, int]]:
    """Yield the bounds of runs of columns that fit into some room, at least one in each."""
    first, used = 0, 0
    for number, width in enumerate(widths):
        if number > first and used + width > room:
            yield first, number
            first, used = number, 0
        used += width
    yield first, len(widths)


def _longest(words: list[str]) -> int:
    return max(map(len, words), default=0)


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
