"""Define `courant analyse spectrum`: the eigenvalues of a model's processor along a rollout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from flows.cli.analysing.arrays import chosen_cases, write_arrays
from flows.cli.analysing.scores import ChosenCases, OutFolder
from flows.cli.options import MovedDataset, RunUrl
from flows.settings import absolute
from flows.terminal import one_line_errors, progress_bar, say, screen

if TYPE_CHECKING:
    from courant.analysis.dynamics.step_spectra import CaseSpectra, StateSpectrum

NUMBERS_FILE = "spectrum.json"


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
        from courant.analysis.dynamics.step_spectra import case_spectra
        from courant.prediction.surrogate import load
        from courant.runs.directory import RunDirectory

        folder, surrogate = RunDirectory(absolute(out)), load(absolute(run))
        opened = surrogate.open_dataset(absolute(dataset) if dataset else None)
        chosen = chosen_cases(opened, case)[: len(case) if case else 1]
        found: list[CaseSpectra] = []
        with progress_bar("computing eigenvalues") as progress:
            for number, name in enumerate(chosen):

                def report(done: int, total: int, before: int = number) -> None:
                    progress(before * total + done, len(chosen) * total)

                each = case_spectra(
                    surrogate, opened[name], at or (), exact_up_to=exact_up_to, progress=report
                )
                write_arrays(folder, f"{name}_spectrum.npz", each.arrays())
                found.append(each)
        screen.print(_table(found))
        counts = {len(state.spectrum.step) for each in found for state in each.states}
        exact = all(state.spectrum.exact for each in found for state in each.states)
        say(
            f"pairs    that last longest, and nearest to the flow's frequency, of"
            f" {'all' if exact else 'the leading'} {min(counts)} eigenvalues"
        )
        folder.write_json(NUMBERS_FILE, {"cases": [each.to_json() for each in found]})
        say(f"numbers  {folder.url.rstrip('/')}/{NUMBERS_FILE}")


def _table(found: list[CaseSpectra]) -> Table:
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
