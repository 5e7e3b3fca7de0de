"""What does a solve save that starts near its answer? Pipes from their own solution and parts of
the way to that of another design, cylinders from another design's developed wake.

The other design lies APART of each parameter's range away, as the nearest of some hundred does.
A surrogate's prediction is a start at some part of that way: the table shows how near it has to be.
OUT/warm_start.jsonl keeps what was measured: a study that was cut off goes on.
"""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy.interpolate import LinearNDInterpolator, NearestNDInterpolator
from scipy.spatial import cKDTree

from bench.report import publish
from simgen.case import CaseFamily
from simgen.cases import get_family
from simgen.cases.cylinder.family import HALF_HEIGHT, INLET_X, MEAN_VELOCITY, OUTLET_X, THICKNESS
from simgen.cases.cylinder.quantities import force_figures
from simgen.design_space import DesignPoint
from simgen.errors import CaseError
from simgen.foam.field import read_field
from simgen.foam.log import SolverLog, read_series
from simgen.foam.mesh import read_geometry, time_directories
from simgen.foam.run import run_application
from simgen.solving.preparation import write_case

RECORD = "warm_start.jsonl"
PIPES, CYLINDERS = 12, 14
#: Of each parameter's range: pipes have five parameters, cylinders three.
APART = {"branched-pipe": 0.1, "cylinder-flow": 0.05}
RESIDUALS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7)
#: Parts of the way from a pipe's own solution to the other design's.
PARTS = (0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
TURBULENCE = ("k", "epsilon", "nut")
#: s of a cylinder's run when a start from a developed wake begins: when windows begin.
BEGIN_S = 100.0
#: A wake has set in once lift and drag over two periods stay within these of the last 150 s.
AMPLITUDE, DRAG = 0.05, 0.01

Fields = dict[str, np.ndarray]
Found = dict[str, Any]


def main(out: Path, short: bool) -> None:
    _pipes(out, 1 if short else PIPES, {"max_iterations": 60.0} if short else {})
    _cylinders(out, 1 if short else CYLINDERS, {"end_time": 300.0} if short else {})


def _pairs(
    name: str, count: int, settings: Mapping[str, float]
) -> list[tuple[DesignPoint, DesignPoint]]:
    """Sobol designs, each with another one APART from it, on the side of the space's middle."""
    family: CaseFamily = get_family(name)
    values = family.settings("trial", settings)

    def other(design: Mapping[str, float]) -> dict[str, float]:
        moved = {}
        for each in family.design_space.parameters:
            size, middle = each.high - each.low, (each.high + each.low) / 2
            side = 1 if design[each.name] < middle else -1
            moved[each.name] = design[each.name] + side * APART[name] * size
        return moved

    designs = family.design_space.sample(count, "sobol", 42)
    return [(family.point(of, values), family.point(other(of), values)) for of in designs]


def once(file: Path, key: str, measure: Callable[..., Found], *of: Any) -> Found:
    """Return what is on record under the key, or measure it and write it down."""
    lines = file.read_text().splitlines() if file.exists() else []
    found = {record["key"]: record["found"] for record in map(json.loads, lines)}
    if key not in found:
        found[key] = measure(file.with_name("scratch"), *of)
        with file.open("a") as records:
            records.write(json.dumps({"key": key, "found": found[key]}) + "\n")
    return dict(found[key])


def write_point(point: DesignPoint, scratch: Path) -> Path:
    directory = scratch / point.id
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    write_case(point, directory, None)
    return directory


def write_start(directory: Path, time: str, fields: Mapping[str, np.ndarray]) -> None:
    """Write the case's 0 as the folder `time`, with these values (N, c) in its cells."""
    if time != "0":
        shutil.copytree(directory / "0", directory / time)
    for name, values in fields.items():
        file = directory / time / name
        before, _, after = file.read_text().partition("internalField")
        kind = "scalar" if values.shape[1] == 1 else "vector"
        row = "{:.9g}" if kind == "scalar" else "({:.9g} {:.9g} {:.9g})"
        listed = "\n".join(row.format(*value) for value in values)
        given = f"nonuniform List<{kind}>\n{len(values)}\n(\n{listed}\n)"
        file.write_text(f"{before}internalField {given};{after.partition(';')[2]}")


# --- steady: the pipe


def _pipes(out: Path, count: int, settings: Mapping[str, float]) -> None:
    rows: list[Found] = []
    for point, other in _pairs("branched-pipe", count, settings):
        rows += once(out / RECORD, f"pipe {point.id}", _pipe, point, other)["starts"]
    table = []
    for start in dict.fromkeys(row["start"] for row in rows):
        of = [row for row in rows if row["start"] == start]
        solved = [row for row in of if not row["failed"]]
        table.append(
            {
                "start": start,
                "error of U": _median([row["error of U"] for row in of]),
                **{
                    f"to {residual:g}": _median([row["to"].get(f"{residual:g}") for row in of])
                    for residual in RESIDUALS
                },
                "loss within 1 %": _median([row["settled"] for row in of]),
                "core-s of cold": _median([row["of_cold"] for row in solved]),
                "worst": max((row["of_cold"] for row in solved), default=""),
                "failed": len(of) - len(solved),
            }
        )
    title = f"{count} pipes: iterations until residuals are reached, medians"
    publish(out, "warm_start_pipe", table, title, starts=rows)


def _median(values: list[float | None]) -> float | str:
    """The median; empty where half of the cases did not get there."""
    middle = float(np.median([np.inf if value is None else value for value in values] or [np.inf]))
    return middle if np.isfinite(middle) else "-"


def _pipe(scratch: Path, point: DesignPoint, other: DesignPoint) -> Found:
    solved = []
    for each in (point, other):
        directory = write_point(each, scratch)
        run_application("simpleFoam", directory)
        last = time_directories(directory)[-1][1]
        names = ("U", "p", *TURBULENCE)
        solved.append({name: read_field(last / name).internal for name in names})
        shutil.rmtree(last)
    (own, from_other), case = solved, scratch / point.id
    pressure = read_series(case, "inletPressure", 0.0)[-1, 1]
    shutil.rmtree(case / "postProcessing")
    centres = [read_geometry(scratch / each.id).centres for each in (point, other)]
    nearest = cKDTree(centres[1]).query(centres[0])[1]
    near = {name: values[nearest] for name, values in from_other.items()}
    starts: dict[str, Fields] = {"cold": {}, "potentialFoam": {}}
    for part in PARTS:
        mixed = {name: own[name] + part * (near[name] - own[name]) for name in own}
        starts[f"{part:g} of the way"] = mixed
    starts["own, no turbulence"] = {name: own[name] for name in ("U", "p")}
    starts["other, no turbulence"] = {name: near[name] for name in ("U", "p")}
    rows: list[Found] = []
    for start, fields in starts.items():
        directory = scratch / "start"
        shutil.copytree(case, directory)
        off = None
        if fields:
            off = float(np.abs(fields["U"] - own["U"]).mean() / np.abs(own["U"]).mean())
        found = _steady(directory, start, fields, pressure)
        rows.append({"start": start, "error of U": off, **found})
        rows[-1]["of_cold"] = found["core_s"] / rows[0]["core_s"]
        shutil.rmtree(directory)
    shutil.rmtree(scratch)
    return {"starts": rows}


def _steady(directory: Path, start: str, fields: Fields, pressure: float) -> Found:
    """Solve to the preset's end; iterations to each residual, and to the loss within 1 %."""
    spent, settled, failed = 0.0, None, False
    reached: dict[str, float] = {}

    def step(log: SolverLog) -> None:
        greatest = max(log.last_residuals.values(), default=1.0)
        for residual in RESIDUALS:
            if greatest <= residual:
                reached.setdefault(f"{residual:g}", log.time)

    try:
        if start == "potentialFoam":
            solution = directory / "system/fvSolution"
            turbulent = '    "(U|k|epsilon)"'
            text = solution.read_text().replace(turbulent, f"    Phi {{ $p; }}\n{turbulent}", 1)
            solution.write_text(f"{text}\npotentialFlow {{ nNonOrthogonalCorrectors 10; }}\n")
            log, _ = run_application("potentialFoam", directory, arguments=("-noFunctionObjects",))
            spent += log.cpu_s or 0.0
        write_start(directory, "0", fields)
        log, _ = run_application("simpleFoam", directory, on_step=step)
        spent += log.cpu_s or 0.0
        step(log)
        loss = read_series(directory, "inletPressure", log.time)
        off = np.abs(loss[:, 1] / pressure - 1) > 0.01
        settled = float(loss[off, 0].max() + 1) if off.any() else 1.0
    except CaseError as error:
        print(f"{start}: {error}", flush=True)
        failed = True
    return {"to": reached, "settled": settled, "core_s": spent, "failed": failed}


# --- transient: the cylinder


def _cylinders(out: Path, count: int, settings: Mapping[str, float]) -> None:
    rows = []
    for point, other in _pairs("cylinder-flow", count, settings):
        found = once(out / RECORD, f"cylinder {point.id}", _cylinder, point, other)
        rows.append({**point.parameters, **found})
    publish(
        out,
        "warm_start_cylinder",
        rows,
        f"{count} cylinders, cold and from another design's wake",
        set_in_after_s_cold=float(np.median([row["set in, cold (s)"] for row in rows])),
        set_in_after_s_warm=float(np.median([row["set in, warm (s)"] for row in rows])),
    )


def _cylinder(scratch: Path, point: DesignPoint, other: DesignPoint) -> Found:
    wake, case = write_point(other, scratch), write_point(point, scratch)
    run_application("icoFoam", wake)
    # A second time: the first run's times and monitors would be in the way of the second's.
    warm = scratch / "warm"
    shutil.copytree(case, warm)
    write_start(warm, f"{BEGIN_S:g}", _moved(wake, other, warm, point))
    columns: Found = {}
    for start, directory in (("cold", case), ("warm", warm)):
        log, _ = run_application("icoFoam", directory)
        radius, settled = point.parameters["radius"], point.settings["end_time"] / 2
        forces = read_series(directory, "cylinderForces", log.time, "force.dat")
        coefficients = forces[:, 1:3] / (0.5 * MEAN_VELOCITY**2 * 2 * radius * THICKNESS)
        time, late = forces[:, 0], forces[:, 0] >= settled
        figures = force_figures(time[late], coefficients[late], 2 * radius / MEAN_VELOCITY)
        columns[f"core-s, {start}"] = log.cpu_s
        columns[f"set in, {start} (s)"] = _set_in(time, coefficients, figures, radius)
        columns |= {f"{name}, {start}": value for name, value in figures.items()}
    shutil.rmtree(scratch)
    return columns


def _set_in(
    time: np.ndarray, coefficients: np.ndarray, figures: Mapping[str, float], radius: float
) -> float:
    """Return the seconds until lift and drag over two periods stay as in the last 150 s."""
    turnover = 2 * radius / MEAN_VELOCITY
    strouhal = figures["strouhal_number"]
    window = round(2 * turnover / strouhal if strouhal > 0 else 4 * turnover)
    drag, lift = (np.lib.stride_tricks.sliding_window_view(each, window) for each in coefficients.T)
    mean, swing, begin = drag.mean(axis=1), lift.std(axis=1), time[: len(drag)]
    last = begin >= min(time[-1] - 150, begin[-1])
    most = max(AMPLITUDE * float(swing[last].mean()), 0.01)
    off = (np.abs(mean / mean[last].mean() - 1) > DRAG) | (
        np.abs(swing - swing[last].mean()) > most
    )
    # What goes on swinging in the last 150 s belongs to the wake.
    off &= ~last
    return float(begin[off].max() - time[0]) if off.any() else 0.0


def _moved(wake: Path, other: DesignPoint, case: Path, point: DesignPoint) -> Fields:
    """The last state of a solved cylinder, stretched so that the cylinders' centres meet."""

    def placed(directory: Path, design: Mapping[str, float]) -> np.ndarray:
        x, y, _ = read_geometry(directory).centres.T
        unit = [-1.0, 0.0, 1.0]
        along = np.interp(x, [INLET_X, design["center_x"], OUTLET_X], unit)
        across = np.interp(y, [-HALF_HEIGHT, design["center_y"], HALF_HEIGHT], unit)
        return np.stack([along, across], axis=1)

    last = time_directories(wake)[-1][1]
    values = np.concatenate([read_field(last / name).internal for name in ("U", "p")], axis=1)
    source, target = placed(wake, other.parameters), placed(case, point.parameters)
    found = LinearNDInterpolator(source, values)(target)
    outside = np.isnan(found[:, 0])
    found[outside] = NearestNDInterpolator(source, values)(target[outside])
    return {"U": found[:, :3], "p": found[:, 3:]}
