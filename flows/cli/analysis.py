"""`courant analyse`: the inside of trained models; heavy imports are inside the commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Column
from typer.core import TyperGroup

import courant
import simgen
from courant.runs.directory import RunDirectory
from flows.request_models import MovedDataset, RunUrl, RunUrls, option
from flows.settings import absolute
from flows.terminal import counted, print_line, print_table, progress_bar
from simgen.errors import InputError

ChosenCases = Annotated[
    list[str] | None, option("Id of a case, repeat for several; default: the test split.", "--case")
]
OutFolder = Annotated[str, option("Folder or s3://bucket/prefix for the numbers and their arrays.")]


class _WithDefault(TyperGroup):
    """Read `analyse RUN` as `analyse scores RUN`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] != "--help" and args[0] not in self.commands:
            args = ["scores", *args]
        return super().parse_args(ctx, args)


analysis_app = typer.Typer(
    cls=_WithDefault,
    help="The inside of a trained model: what each anchor does, and where it errs.",
    epilog="`courant analyse RUN` is `courant analyse scores RUN`. docs/analysis.md explains all.",
    no_args_is_help=True,
)


def _opened(
    run: str, case: Sequence[str] | None, out: str, dataset: str | None
) -> tuple[RunDirectory, courant.Surrogate, simgen.Dataset, list[str]]:
    """Return the folder of the numbers, the model, its dataset, and the named or test cases."""
    surrogate = courant.load(absolute(run))
    opened = surrogate.open_dataset(dataset)
    chosen = list(case or ()) or opened.cases("test")
    if not chosen:
        raise InputError(f"{opened.url} {opened.version} has no test case; name one by --case")
    return RunDirectory(absolute(out)), surrogate, opened, chosen


def _write_numbers(folder: RunDirectory, name: str, content: dict[str, Any]) -> None:
    folder.write_json(name, content)
    print_line(f"numbers  {folder.url.rstrip('/')}/{name}")


def _print_rows(rows: Sequence[dict[str, str]]) -> None:
    """Print a table of rows by the names of their columns, all but the first to the right."""
    first, *others = rows[0]
    right = [Column(name, justify="right") for name in others]
    print_table([Column(first, no_wrap=True), *right], (row.values() for row in rows))


def _text(value: Any, form: str, absent: str = "none") -> str:
    return absent if value is None else format(value, form)


@analysis_app.command(
    "scores", epilog="Example: courant analyse RUN --case b0159c13a91f --out analysis"
)
def analyse_scores(
    run: RunUrl,
    case: ChosenCases = None,
    other: Annotated[str | None, option("Another run to match fields with.", metavar="RUN")] = None,
    out: OutFolder = "analysis",
    dataset: MovedDataset = None,
) -> None:
    """Score what each anchor contributes, beside controls; see docs/analysis.md."""
    from courant.analysis import comparison, scores

    folder = RunDirectory(absolute(out))
    with progress_bar("analysing") as progress:
        found = comparison.score_run(
            absolute(run),
            case or (),
            absolute(other) if other else None,
            progress,
            dataset,
            lambda found: folder.write_arrays(f"{found.case}.npz", found.arrays()),
        )
    mean, controls = found["mean"], found["controls"]
    rows, subject = list[list[str]](), ""
    for each in scores.SCORES:
        if each.key in mean:
            rows += [] if each.subject == subject else [[each.subject.upper()]]
            subject = each.subject
            values = [_text(of.get(each.key), ".3g", "") for of in (mean, *controls.values())]
            rows.append([each.name, *values, each.aim_text])
    columns = [Column(name.replace("-", "- "), justify="right") for name in ("model", *controls)]
    print_table(["score", *columns, "good is"], rows)
    folder.write_json("scores.json", found)
    print_line(f"scores  {folder.url.rstrip('/')}/scores.json")


@analysis_app.command("monitor", epilog="Example: courant analyse monitor RUN")
def analyse_monitor(
    run: RunUrl, case: ChosenCases = None, out: OutFolder = "analysis", dataset: MovedDataset = None
) -> None:
    """Calibrate the monitor of a transient model's rollouts, and judge it on test cases.

    The run then has monitor.json, with which `surrogate.rollout_quality` finds from the latents
    when a rollout leaves the dynamics that the model was trained on.
    """
    from courant.analysis.monitoring import calibrate_monitor, judge_monitor, write_monitor

    folder, surrogate, opened, chosen = _opened(run, case, out, dataset)
    RunDirectory(surrogate.url).check_writable()
    with progress_bar("calibrating") as progress:
        monitor = calibrate_monitor(surrogate, opened, progress)
    write_monitor(surrogate, monitor)
    print_line(
        f"monitor  {surrogate.url}/monitor.json, from {monitor.rollouts} validation rollouts of"
        f" {monitor.horizon} steps"
    )
    with progress_bar("judging") as progress:
        found = judge_monitor(surrogate, opened, monitor, chosen, progress)
    rows = []
    for each in found.watched:
        steps = (each.detection.flagged_at, each.detection.doubled_at, each.detection.lead)
        rows.append([each.case, len(each.times), *(_text(step, "d", "never") for step in steps)])
    columns = ("steps", "flag at step", "error doubled at", "lead")
    print_table(("case, rolled out to its end", *columns), rows)
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
    top: Annotated[int, option("Fields to keep of each case, by energy.", min=1, max=10_000)] = 8,
    out: OutFolder = "analysis",
    dataset: MovedDataset = None,
) -> None:
    """Write the offset, the strongest fields, their sum and the ranking to <case>_fields.npz."""
    from courant.analysis.case_scores import ranked_fields

    folder, surrogate, opened, names = _opened(run, case, out, dataset)
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
        option("An anchor, repeat for several; default: three that represent all."),
    ] = None,
    out: OutFolder = "analysis",
    dataset: MovedDataset = None,
) -> None:
    """Write decoder weights over time and encoder attention of some anchors to <case>_maps.npz."""
    from courant.analysis.case_scores import map_anchors, representative_anchors, score_case

    folder, surrogate, opened, names = _opened(run, case, out, dataset)
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
    steps: Annotated[int, option("Most steps of each rollout.", min=8, max=10_000)] = 40,
    start: Annotated[
        float | None, option("Time of the first state in s; default: where training windows begin.")
    ] = None,
    out: OutFolder = "analysis",
    dataset: MovedDataset = None,
) -> None:
    """Compare the frequency of long rollouts with the solution's; see docs/analysis.md."""
    from courant.analysis.case_dynamics import study_frequencies

    folder, surrogate, opened, chosen = _opened(run, case, out, dataset)
    with progress_bar("rolling out") as progress:
        found = study_frequencies(
            surrogate,
            opened,
            chosen,
            steps,
            progress,
            lambda name, rollout: folder.write_arrays(f"{name}_frequencies.npz", rollout.arrays()),
            start,
        )
    if cases := found["cases"]:
        medians = found["medians"]
        columns = {
            "case": ("case", ""),
            "steps": ("steps", ""),
            "solution (Hz)": ("reference_hz", ".4g"),
            "prediction": ("predicted_hz", ".4g"),
            "DMD": ("dmd_hz", ".4g"),
            "latents": ("latent_hz", ".4g"),
            "anchors locked in": ("locked_in", ".0%"),
            "drift at the end": ("drift", "+.1%"),
            "lost after (s)": ("lost_s", "g"),
        }
        rows = [
            {title: _text(each[key], form) for title, (key, form) in columns.items()}
            for each in cases
        ]
        keys = ("predicted", "dmd", "latent")
        last = [_text(medians[f"{key}_hz_error"], ".1%") for key in keys]
        last += [_text(medians["locked_in"], ".0%"), _text(medians["absolute_drift"], ".1%")]
        last = [f"median error of {len(cases)}", "", "", *last, f"{medians['kept']:.0%} kept"]
        _print_rows([*rows, dict(zip(rows[0], last, strict=True))])
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
        option(
            "Step of the rollout, repeat for several; 0 is the encoded state.", min=0, max=10_000
        ),
    ] = None,
    exact_up_to: Annotated[
        int, option("Anchors times width up to which all eigenvalues are computed, not 32.", min=0)
    ] = 8192,
    out: OutFolder = "analysis",
    dataset: MovedDataset = None,
) -> None:
    """Compute the eigenvalues of the processor's Jacobian J and of its step, I + hJ for Euler's.

    Without --case it takes the first test case, without --at the first and the last step of a
    training window. Of larger states the 32 leading eigenvalues are found by Arnoldi iteration.
    <case>_spectrum.npz has all of them.
    """
    from courant.analysis.case_dynamics import case_spectra

    folder, surrogate, opened, chosen = _opened(run, case, out, dataset)
    chosen = chosen if case else chosen[:1]
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
    _print_rows(rows)
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
    from courant.analysis import comparison
    from courant.analysis.scores import SCORES
    from courant.report.comparison import compare_fields, draw_comparison, draw_trade_off
    from simgen.publish.figures import png_bytes

    folder = RunDirectory(absolute(out))
    urls = [absolute(run) for run in runs]
    with progress_bar("scoring") as progress:
        found = comparison.compare_runs(urls, folder, case or (), dataset, progress)
    names = [Column(escape(found.heading(row)), justify="right") for row in found.columns]
    rows = []
    for each in SCORES:
        if each.key in found.keys:
            scores = (row.scores.get(each.key) for row in found.columns)
            cells = ("" if score is None else score.text() for score in scores)
            rows.append((each.name, *cells, each.aim_text))
    print_table(["score", *names, "good is"], rows)
    folder.write_json("comparison.json", found.to_json())
    folder.write_bytes("comparison.csv", found.to_csv().encode())
    folder.write_bytes("comparison.md", found.to_markdown().encode())
    folder.write_bytes("comparison.png", png_bytes(draw_comparison(found)))
    place = folder.url.rstrip("/")
    print_line(f"table  {place}/comparison.md, .csv, .json, .png")
    if trade_off := draw_trade_off(found):
        folder.write_bytes("trade-off.png", png_bytes(trade_off))
        print_line(f"figure {place}/trade-off.png")
    first = comparison.RunComparison(
        tuple(row for row in found.rows if row.family == found.families[0])
    )
    if (fields := compare_fields(first, case or (), dataset)) is not None:
        shown, figure, arrays = fields
        folder.write_bytes("fields.png", png_bytes(figure))
        folder.write_arrays("fields.npz", arrays)
        print_line(f"fields {place}/fields.png, .npz: case {shown}")
