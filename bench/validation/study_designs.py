"""Does every design solve? Sobol designs and all corners of each steady family, solved at the trial
preset by the generation flow.

The datasets are OUT/designs/<family>: one version with the sampled designs, a further one with the
corners. Run again, only what is missing is solved. The tables are made from the records of the
newest version; OUT/designs_<family>.json holds them.
"""

import csv
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import simgen
from bench.report import publish
from simgen.case import CaseFamily
from simgen.cases import get_family
from simgen.cases.branched_pipe.geometry import PLATES_X
from simgen.store.read import StoredCase

STEADY = ("branched-pipe", "centrifugal-pump")
SAMPLED = 12
#: Of the inlet's velocity: less than this between the trunk's two halves is a jet in the middle.
CENTRED = 0.1
#: m: the jet is looked at in the trunk behind the inlet plates, off the middle of the section.
JET_X, JET_Z = (PLATES_X + 0.025, PLATES_X + 0.125), 0.008

PIPE = {
    "loss (m2/s2)": "pressure_loss",
    "drift": "pressure_loss_drift",
    "branch 1": "branch1_share",
    "split drift": "flow_split_drift",
}
PUMP = {"head (m)": "head", "drift": "head_drift", "efficiency": "efficiency"}


def main(out: Path, short: bool) -> None:
    (out / "designs").mkdir(exist_ok=True)
    os.environ.setdefault("COURANT_SCRATCH", str(out / "designs" / "scratch"))
    for designs_of in (_sampled, _corners):
        for name in STEADY:
            designs = designs_of(get_family(name), short)
            _generate(name, designs_of.__name__.strip("_"), designs, out / "designs")
    for name in STEADY:
        designs = [*_sampled(get_family(name), short), *_corners(get_family(name), short)]
        _report(name, designs, out)


def _sampled(family: CaseFamily, short: bool) -> list[dict[str, float]]:
    return family.design_space.sample(2 if short else SAMPLED, "sobol", 42)


def _corners(family: CaseFamily, short: bool) -> list[dict[str, float]]:
    num = 2 ** len(family.design_space.parameters)
    return family.design_space.sample(num, "grid")[: 2 if short else None]


def _generate(name: str, which: str, designs: Sequence[Mapping[str, float]], folder: Path) -> None:
    from flows.stages import Generation, execute

    file = folder / f"{name}-{which}.csv"
    with file.open("w", newline="") as lines:
        table = csv.DictWriter(lines, list(designs[0]))
        table.writeheader()
        table.writerows(designs)
    execute(Generation(name, preset="trial", designs=str(file), store=str(folder)))


def _report(name: str, designs: Sequence[Mapping[str, float]], out: Path) -> None:
    family, dataset = get_family(name), simgen.open_dataset(out / "designs" / name)
    settings = family.settings("trial")
    cases = [dataset[family.point(design, settings).id] for design in designs]
    rows = [_row(case) for case in cases]
    ended: dict[str, Any] = dict(Counter(case.status for case in cases))
    others = {
        f"{case.id} {case.status}": case.reason for case in cases if case.status != "accepted"
    }
    of = {"dataset": dataset.url, "version": dataset.version}
    publish(out, f"designs_{name}", rows, **of, **ended, **others)


def _row(case: StoredCase) -> dict[str, Any]:
    found = case.provenance.get("figures", {})
    own = {"branched-pipe": PIPE, "centrifugal-pump": PUMP}[case.dataset.schema.family]
    is_jet = own is PIPE and case.status == "accepted"
    return {
        "case": case.id,
        "/".join(case.parameters): "/".join(f"{value:.4g}" for value in case.parameters.values()),
        "status": case.status,
        "residual": found.get("max_residual", ""),
        "stalled": found.get("residuals_stalled", ""),
        "mass": found.get("mass_imbalance", ""),
        "back-flow": found.get("back_flow", ""),
        "y+": f"{found['y_plus_min']:.0f} to {found['y_plus_max']:.0f}"
        if "y_plus_min" in found
        else "",
        **{name: found.get(figure, "") for name, figure in own.items()},
        **({"jet": _jet(case)} if is_jet else {"jet": ""} if own is PIPE else {}),
        "iterations": found.get("last_time", ""),
        "solve (s)": case.provenance["wall_time_s"].get("solve", ""),
    }


def _jet(case: StoredCase) -> str:
    """The side of the trunk that the jet runs along: u_x on branch 1's half less that on the other,
    over the inlet's velocity.
    """
    (x, _, z), along = np.asarray(case.points).T, np.asarray(case["velocity"])[:, 0]
    behind = (x > JET_X[0]) & (x < JET_X[1])
    lean = along[behind & (z > JET_Z)].mean() - along[behind & (z < -JET_Z)].mean()
    lean /= case.parameters["inlet_velocity"]
    side = "middle" if abs(lean) < CENTRED else "branch 1" if lean > 0 else "branch 2"
    return f"{side} ({lean:+.2f})"
