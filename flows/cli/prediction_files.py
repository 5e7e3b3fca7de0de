"""Predict into files, for `courant predict`: a stored case, a new design, a mesh of one's own.

On a mesh from another source a transient model starts from the file's arrays that have the names of
the model's fields, at the cells if they are cell arrays, else at the points, and the prediction is
at the same locations. That of a steady model is at the cells; geometry and boundary conditions come
from a surface mesh with the kind of each face and the prescribed fields.
"""

import math
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import meshio
import numpy as np

import courant
import simgen
from courant.data.normalisation import Channel
from courant.evaluation.metrics import METRICS, ErrorSums
from courant.evaluation.references import of_designs
from courant.prediction.files import WrittenPrediction
from courant.prediction.surrogate import by_field
from courant.report.context import plotted_fields
from courant.report.fields import draw_prediction
from courant.report.page import number, plain
from flows.settings import check_folder, load_settings
from flows.terminal import counted, print_line, print_table
from simgen.cell_mesh import Shape, shape_of
from simgen.errors import InputError, SimgenError
from simgen.foam.mesh import Polygons
from simgen.imports.vtk import MeshReader
from simgen.publish import figures
from simgen.solving.convert import distance_to_kinds
from simgen.whole_file import whole_file

SUFFIXES = (".npz", ".vtu", ".pvd")
LEAST_UNSOLVED = 0.1  # Share of unsolved designs near a design from which on that is printed
PATCH = "patch"  # The cell array with each face's kind, a number in the family's order
NO_BAND = (
    "no band of error holds on a mesh of your own: bands are calibrated on the meshes of the"
    " dataset, which predictions of a --design have"
)


def load_for(run: str, out: Path, suffixes: Sequence[str] = SUFFIXES) -> courant.Surrogate:
    """Load a run whose predictions can be written to `out`; InputError before anything else."""
    if out.suffix not in suffixes:
        names = " or ".join(f"prediction{suffix}" for suffix in suffixes)
        raise InputError(f"{out} has no suffix of {', '.join(suffixes)}: name the file {names}")
    check_folder(str(out.absolute().parent))
    surrogate = courant.load(run)
    if out.suffix == ".pvd" and surrogate.step_s is None:
        raise InputError(f"{out}: a steady prediction has no times; name the file {out.stem}.vtu")
    return surrogate


def error_lines(found: WrittenPrediction) -> list[str]:
    """Describe each field's error, where there is a solution, over the steps that it has."""
    if found.solved is None:
        return []
    there = ~np.isnan(found.solved).any(axis=(-2, -1))
    channels, lines = found.surrogate.normaliser.channels, []
    some = "" if there.all() else f", over {there.sum()} of {len(there)} steps"
    for name in dict.fromkeys(each.field for each in channels):
        columns = [c for c, each in enumerate(channels) if each.field == name]
        predicted, solved = (of[there][..., columns] for of in (found.values, found.solved))
        sums = ErrorSums([channels[c].name for c in columns])
        sums.add(predicted, solved)
        # As a share of the largest value in evaluations; here in the field's unit.
        total = {**sums.total(), "maximum": np.abs(predicted - solved).max()}
        measured = [f"{METRICS[key].label} {value:.3g}" for key, value in total.items()]
        measured[-1] += f" {channels[columns[0]].unit}"
        lines.append(f"error of {plain(name)}  {', '.join(measured)}{some}")
    return lines


def write_prediction(
    run: str,
    case: str,
    start_s: float | None,
    steps: int | None,
    out: Path,
    dataset: str | None,
    verdict: str = "",
) -> str:
    """Predict a stored case into `out`; return a line that describes what was written.

    `start_s` and `steps` are for transient runs; `dataset` is where the dataset lies by now, if it
    was moved; .vtu files have the `verdict` on the run's fields. .npz holds points (N, 3) m, one
    array per component, (N,) steady, (T, N) transient, and time (T,) s; .vtu holds the last step,
    .pvd names a .vtu for each step.
    """
    surrogate = load_for(run, out)
    opened = surrogate.open_dataset(dataset)
    if case not in opened.records:  # it may have joined since
        opened = simgen.open_dataset(opened.url)
    stored = opened[case]
    begin = surrogate.problem.start(stored, start_s)
    predicted = surrogate.predict_case(stored, start_s=begin, steps=steps)
    at = None if begin is None else surrogate.times(begin, steps)
    times = None if at is None else at.tolist()
    prepared = surrogate.prepare_case(stored, begin)
    bands = surrogate.bands_around(prepared, predicted, stored.points, stored.parameters, begin)
    solved = surrogate.problem.solutions(stored, times)
    found = WrittenPrediction(
        surrogate,
        stored.points,
        shape_of(stored.mesh, stored.points),
        times,
        predicted,
        stored.parameters,
        bands.field,
        solved,
        verdict=verdict,
    )
    extent = found.write(out)
    beside = "" if solved is None else ", with the solver's field and the error"
    why = bands.no_field if surrogate.bands else ""
    refusal = f"\nno band of the field holds: {why}" if why else ""
    on = f"{extent} on " if extent else ""
    described = f"{out}: {on}{counted(stored.num_points, 'point')}{beside}"
    return "\n".join([described, *error_lines(found)]) + refusal


def predict_to_files(
    run: str,
    parameters: Mapping[str, float],
    out: Path,
    steps: int | None = None,
    from_solver_s: float | None = None,
    verify: bool = False,
    dataset: str | None = None,
    reference: str | None = None,
    verdict: str = "",
) -> str:
    """Predict a design into `out`, with a picture; return whose fields: empty for the network."""
    surrogate = load_for(run, out)
    reference, by = of_designs(surrogate, dataset, reference)
    design = surrogate.predict_design(
        parameters,
        steps=steps,
        from_solver_s=from_solver_s,
        verify=verify,
        scratch=load_settings().scratch,
        place=dataset,
        fields_by=by,
    )
    cloud, times, bands = design.cloud, design.times, design.bands
    found = WrittenPrediction(
        surrogate,
        cloud.points,
        shape_of(cloud.mesh, cloud.points),
        None if times is None else times.tolist(),
        design.values,
        design.point.parameters,
        bands.field,
        design.solved,
        reference,
        verdict,
    )
    extent = found.write(out)
    picture = out.with_suffix(".png")
    last, normaliser = ... if times is None else -1, surrogate.normaliser
    fields = [*by_field(design.values[last], normaliser.channels).values()]
    layer = figures.layer_of_cloud(cloud, normaliser.dimension, fields)
    solution = None if design.solved is None else design.solved[last]
    known, stored = None, "the stored times"
    with suppress(SimgenError):  # without the training's values colours follow mean and deviation
        known = surrogate.open_dataset(dataset)
        if (of_case := known[0].time) is not None:
            stored = f"{of_case[0]:g} to {of_case[-1]:g} s"
    plotted = plotted_fields(normaliser, known)
    made = draw_prediction(layer, solution, design.values[last], plotted, reference or "prediction")
    shown = [] if times is None else [f"t = {times[-1]:g} s"]
    for each in surrogate.space:
        value = design.point.parameters[each.name]
        shown.append(f"{plain(each.name)} {value:g} {each.unit.strip('1')}".rstrip())
    made.suptitle(textwrap.fill(", ".join(shown), 80), fontsize=9)
    with whole_file(picture) as part:
        part.write_bytes(figures.png_bytes(made))
    whose = f", fields of {reference}, not of the network (--reference none)" if reference else ""
    on = f"{extent} on " if extent else ""
    print_line(f"{out}: {on}{counted(cloud.num_points, 'cell')}{whose}")
    what = "the prediction" if design.solved is None else "solution, prediction and error"
    print_line(f"{picture}: {what}")
    around = bands.quantities
    until = "solver" if design.times is None else f"solver, rollout to {design.times[-1]:g} s"

    def text(name: str, value: float) -> str:
        """Format at least four digits, and as many as the band's two."""
        least = around[name].half_width if name in around else 0.0
        digits = math.log10(abs(value) / least) + 2 if value and least else 4.0
        return number(value, min(max(4, math.ceil(digits)), 12))

    asked = [of for of in surrogate.family(dataset).quantities if of.name in design.quantities]
    columns = {
        "predicted": {name: text(name, value) for name, value in design.quantities.items()},
        "by": design.sources,
        "band": {
            name: f"+- {number(around[name].half_width, 2)}" if name in around else "none holds"
            for name in (design.quantities if around else ())
        },
        "of the band": {name: str(band) for name, band in around.items()},
        "fine mesh": {k: f"{low:.3g} to {high:.3g}" for k, (low, high) in design.fine.items()},
        until: {k: text(k, value) for k, value in (design.solved_quantities or {}).items()},
        "unit": {of.name: of.unit.strip("1") for of in asked},
        "times": {of.name: of.over.replace("the stored times", stored) for of in asked if of.over},
    }
    columns = {title: cells for title, cells in columns.items() if cells}
    rows = [(plain(of.name), *(column.get(of.name) for column in columns.values())) for of in asked]
    print_table(("quantity", *columns), rows)
    for line in error_lines(found):
        print_line(line)
    trained_on = surrogate.dataset["version"]
    if (fitted_to := surrogate.answers.version) not in ("", trained_on):
        print_line(f"quantities are of {fitted_to} of the dataset, fields of {trained_on}")
    for name, why in design.not_predicted.items():
        print_line(f"{plain(name)} is not predicted: {why}")
    if bands.no_field:
        print_line(f"no band {'of the field ' if around else ''}holds: {bands.no_field}")
    if bands.no_quantities not in ("", bands.no_field):
        print_line(f"the fields have no part in quantities: {bands.no_quantities}")
    if bands.unsolved >= LEAST_UNSOLVED:
        share = f"of the designs near this one {bands.unsolved:.0%} had no accepted solution"
        print_line(f"{share}: there may be none to predict")
    seconds = design.seconds
    parts = ["known geometry" if design.known_geometry else f"meshing {seconds.meshing:.2g} s"]
    if seconds.solving:
        parts.append(f"solver {seconds.solving:.2g} s")
    print_line(", ".join([*parts, f"prediction {seconds.prediction:.2g} s"]))
    return reference


def predict_file(
    run: str,
    file: Path,
    boundary: Path | None,
    parameters: Mapping[str, float] | None,
    steps: int | None,
    out: Path,
) -> str:
    """Predict on the mesh in a file, write `out`, and return lines for the screen.

    A transient model rolls out from the file's arrays and writes its last step (.vtu) or all of
    them (.pvd). A steady model reads geometry and boundary conditions from the surface mesh in the
    file `boundary`. Warns of extrapolation as `Surrogate.predict` does.
    """
    for mesh in (file, boundary):
        if mesh is not None and not mesh.is_file():
            raise InputError(f"{mesh} does not exist; name a mesh file, or the id of a stored case")
        if mesh is not None and mesh.resolve() in (out.resolve(), *out.with_suffix("").glob("*")):
            raise InputError(f"{mesh} lies where {out} is written; name another file to write")
    surrogate = load_for(run, out, (".vtu", ".pvd"))
    wanted = surrogate.dataset["parameters"]
    normaliser, is_steady = surrogate.normaliser, surrogate.problem.kind == "steady"
    needs_boundary = is_steady and normaliser.has_boundary
    names = ",".join(f"{each['name']}={each['low']:g}" for each in wanted)
    for is_wrong, message in (
        (wanted and not parameters, f"name the mesh's geometry, such as --parameters {names}"),
        (boundary is not None and not needs_boundary, f"leave out --boundary for {surrogate.url}"),
        (is_steady and steps is not None, f"{surrogate.url} is steady: leave out --steps"),
        (
            not is_steady and surrogate.problem.input_steps > 1,
            f"{surrogate.url} starts from several states, and a mesh file holds one: use"
            " courant.load(...).predict(points, initial=...) in Python",
        ),
        (
            needs_boundary and boundary is None,
            "a steady model starts from boundary conditions: give --boundary surface.vtu, faces"
            f" with the cell array patch ({_numbered(normaliser.patch_kinds)}) and the prescribed"
            " fields",
        ),
    ):
        if is_wrong:
            raise InputError(message)
    with MeshReader() as reader:
        mesh = reader.read_mesh(file)
        surface = None if boundary is None else reader.read_mesh(boundary)
    channels = normaliser.given if is_steady else normaliser.read_channels
    shape, places, known = read_state(file, mesh, channels)
    where, of_mesh = f"{len(places)} {shape.on}", parameters or {}
    if not is_steady:
        state, inputs = np.split(known, [len(normaliser.channels)], axis=-1)
        given = by_field(inputs, normaliser.given) or None
        rollout = surrogate.predict(
            places, initial=state, parameters=parameters, given=given, steps=steps
        )
        times = [(surrogate.step_s or 0.0) * (number + 1) for number in range(len(rollout))]
        extent = WrittenPrediction(surrogate, places, shape, times, rollout, of_mesh).write(out)
        return f"{out}: {extent} after the state in {file.name}, on {where}\n{NO_BAND}"
    conditions = distance = None
    if boundary is not None and surface is not None:
        faces = read_boundary(boundary, surface, normaliser.patch_kinds)
        conditions = {**faces.arrays, "points": faces.centres, "patch": faces.patch}
        where += f", from {len(faces.patch)} boundary faces"
        lengths, ways = faces.distance(places, normaliser.patch_kinds)
        if columns := [normaliser.patch_kinds.index(kind) for kind in normaliser.stored_kinds]:
            distance = (lengths[:, columns], ways[:, columns])
    predicted = surrogate.predict(
        places,
        parameters=parameters,
        boundary=conditions,
        distance=distance,
        given=by_field(known, normaliser.given) or None,
    )
    WrittenPrediction(surrogate, places, shape, None, predicted, of_mesh).write(out)
    return f"{out}: {where}\n{NO_BAND}"


def read_state(
    file: Path, mesh: meshio.Mesh, channels: Sequence[Channel]
) -> tuple[Shape, np.ndarray, np.ndarray]:
    """Find the channels in a mesh's arrays: on its cells, or else on its points.

    Return the shape, the locations (N, 3) m, which are cell centres or points, and the state there,
    (N, C).
    """
    on_cells = {name: np.concatenate(blocks) for name, blocks in mesh.cell_data.items()}
    lacking: list[str] = []
    for on, arrays in (("cells", on_cells), ("points", mesh.point_data)):
        lacking = [of.field for of in channels if of.field not in arrays and of.name not in arrays]
        if lacking or (on == "cells" and not mesh.cells):
            continue
        places, columns = np.asarray(mesh.points), []
        if on == "cells":
            places = np.concatenate([places[block.data].mean(axis=1) for block in mesh.cells])
        for each in channels:
            values = arrays.get(each.name)
            if values is None:
                whole = arrays[each.field].reshape(len(places), -1)
                if whole.shape[1] <= each.column:
                    raise InputError(
                        f"{file}: {each.field} has {whole.shape[1]} components, {each.name} is"
                        " missing"
                    )
                values = whole[:, each.column]
            columns.append(values.reshape(-1))
        state = np.stack(columns, axis=-1) if columns else np.zeros((len(places), 0))
        return Shape(mesh, on), places, state  # type: ignore[arg-type]
    if not lacking:
        raise InputError(f"{file} holds no cells")
    there = ", ".join([*mesh.point_data, *on_cells]) or "none"
    raise InputError(
        f"{file} needs the arrays {', '.join(dict.fromkeys(lacking))}, on its cells or its points;"
        f" it has {there}"
    )


@dataclass(frozen=True)
class ForeignBoundary:
    """B faces, in the file's order."""

    faces: Polygons
    centres: np.ndarray  # (B, 3) m
    patch: np.ndarray  # (B,) numbers of patch kinds
    arrays: dict[str, np.ndarray]  # (B, ...) by name, as the file has them

    def distance(self, places: np.ndarray, kinds: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return distance (N, K) m and direction (N, K, 3) from places (N, 3) to the faces."""
        of_kinds = [np.flatnonzero(self.patch == number) for number in range(len(kinds))]
        if missing := [kind for kind, faces in zip(kinds, of_kinds, strict=True) if not len(faces)]:
            raise InputError(
                f"the boundary has no face of kind {', '.join(missing)};"
                f" {PATCH} numbers {_numbered(kinds)}"
            )
        return distance_to_kinds(places, self.faces, of_kinds)


def read_boundary(file: Path, mesh: meshio.Mesh, kinds: Sequence[str]) -> ForeignBoundary:
    """Read the boundary from a mesh of faces; InputError where it is none."""
    wrong = sorted({block.type for block in mesh.cells if block.dim != 2})
    if wrong or not mesh.cells:
        raise InputError(
            f"{file} holds cells of type {', '.join(wrong) or 'none'}; a boundary is a mesh of"
            " faces"
        )
    arrays = {name: np.concatenate(blocks) for name, blocks in mesh.cell_data.items()}
    patch = arrays.pop(PATCH, None)
    if patch is None or not np.isin(patch, np.arange(len(kinds))).all():
        raise InputError(
            f"{file} needs the cell array {PATCH}, with the kind of each face: {_numbered(kinds)}"
        )
    points, blocks = np.asarray(mesh.points, dtype=np.float64), [each.data for each in mesh.cells]
    sizes = np.concatenate([np.full(len(block), block.shape[1]) for block in blocks])
    faces = Polygons(
        points=points,
        face_offsets=np.concatenate([[0], np.cumsum(sizes)]),
        face_points=np.concatenate([block.ravel() for block in blocks]),
    )
    centres = np.concatenate([points[block].mean(axis=1) for block in blocks])
    return ForeignBoundary(faces, centres, patch.astype(np.int64), arrays)


def _numbered(kinds: Sequence[str]) -> str:
    return ", ".join(f"{number} {kind}" for number, kind in enumerate(kinds))
