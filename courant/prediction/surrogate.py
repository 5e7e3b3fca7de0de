"""Load a trained model and predict in physical units, with checked input and one-line errors.

    surrogate = courant.load("demo-run/runs/cylinder-flow-demo-0123456789")
    surrogate.predict_case(dataset["b0159c13a91f"], start_s=200.0)  # (10, N, 2) m/s
    surrogate.predict(points, initial=u0, parameters={"radius": 2.0, ...}, steps=10)

`prepare` (arguments, or a design's mesh) and `prepare_case` (a stored case) return a `Batch` of
one, and `predict_prepared` runs it through the model.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as field_of
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import torch

from courant import field_model
from courant.data.batch import Batch
from courant.data.normalisation import Channel, Normaliser, powers_of
from courant.experiment import SteadyData, parse_experiment
from courant.field_model import FieldDecomposition, FieldModel, Inputs, Queries
from courant.prediction import bands as banding
from courant.prediction.answers import SAME_DESIGN, Answers
from courant.prediction.monitor import Monitor, RolloutQuality
from courant.prediction.shared_mesh import SharedMesh, meshing_family
from courant.problems import Problem, problem_of
from courant.problems.problem import NotFiniteError, check_finite, warn_caller
from courant.problems.transient import TIME_TOLERANCE, time_tolerance
from courant.runs import record
from courant.runs.directory import RunDirectory
from courant.runs.weights import read_model
from simgen.case import CaseFamily, SolvedCase
from simgen.cases import find_family
from simgen.design_space import DesignPoint, Parameter
from simgen.design_space import scaled as scaled_in
from simgen.errors import InputError
from simgen.point_cloud import PointCloud, point_tree
from simgen.quantities import CaseFields, Quantity, compute, obtainable, states_from
from simgen.whole_file import cache_folder

if TYPE_CHECKING:
    from simgen.store.read import Dataset, StoredCase

Calibrated = TypeVar("Calibrated", Answers, banding.Bands, Monitor)
FieldsOfDesign = Callable[[np.ndarray, Mapping[str, float], np.ndarray | None], np.ndarray]
"""Points (N, 3) m, design parameters and times (T,) s (None if steady, T = 1) to (T, N, C)"""
QUERY_CHUNK = 65_536  # Query points that go through the decoder at a time
NORMALISER = "normaliser.json"


class TooLargeError(InputError):
    """A mesh with more cells than the caller allows."""


@dataclass(frozen=True)
class Seconds:
    """Wall time of each step; 0 where it was not needed."""

    meshing: float
    solving: float = 0.0
    prediction: float = 0.0


@dataclass(frozen=True)
class PredictedDesign:
    """A design with its predicted fields and quantities, in physical units."""

    point: DesignPoint
    cloud: PointCloud
    """Cells and boundary; without fields"""
    values: np.ndarray
    """(N, C) of a steady model, (T, N, C) of a transient one"""
    times: np.ndarray | None
    """(T,) s"""
    quantities: Mapping[str, float]
    """The answers, by regression and from the fields"""
    sources: Mapping[str, str]
    """What each of them is made of, in words (`courant.prediction.answers`)"""
    of_fields: Mapping[str, float]
    """Those of the predicted fields alone"""
    not_predicted: Mapping[str, str]
    """The family's other quantities, with the reason"""
    seconds: Seconds
    known_geometry: bool
    """Whether the mesh was kept from an earlier prediction"""
    prepared: Batch
    """The model's input, for `Surrogate.decomposition`"""
    bands: banding.DesignBands
    fine: Mapping[str, tuple[float, float]] = field_of(default_factory=dict)
    """Interval of quantities on an infinitely fine mesh, but for the model's error"""
    solved: np.ndarray | None = None
    """The solver's values, like the predicted ones, where it solved the design"""
    solved_quantities: Mapping[str, float] | None = None
    """Of a steady design as its solver measured them, of a rollout from the solved fields"""


class CaseDecomposition(NamedTuple):
    """A prediction in physical units: offset + contributions.sum(anchors) (Eq. exact-decomp).

    offset (C,), contributions (T, L, M, C) or (L, M, C) of a steady model, anchors (L, 3) m.
    """

    offset: np.ndarray
    contributions: np.ndarray
    anchors: np.ndarray | None


def load(url: str | Path, *, device: str | torch.device | None = None) -> Surrogate:
    """Load the trained model of a run directory (local path or s3://), by default on a GPU if any.

    A folder of runs with one run in it is as good, and the beginning of a run's name. Every file is
    checked before anything is built, and no code in it runs. InputError where there is no run or no
    weights yet, or its files do not fit; StoreError where it cannot be read.
    """
    run = record.find_run(url)
    record.check_trained(run)
    experiment = parse_experiment(run.read_object("experiment.json"))
    try:
        normaliser = Normaliser.from_json(run.read_object(NORMALISER))
        problem = problem_of(experiment, normaliser)
        wrong = problem.wrong_sizes()
        scaled_by = experiment.data.scaled_by if isinstance(experiment.data, SteadyData) else {}
        # Predictions would have other units.
        if powers_of(scaled_by, normaliser.channels, normaliser.parameters) != normaliser.powers:
            wrong.append("data.scaled_by does not fit powers")
    except InputError as error:
        raise InputError(f"{run.url}/{NORMALISER}: {error}; it is damaged, train again") from error
    dataset = record.read_dataset_record(run)
    if dataset["family"] != experiment.family:
        wrong.append(f"the family is {experiment.family}, that of dataset.json {dataset['family']}")
    if wrong:
        raise InputError(
            f"{run.url}: experiment.json does not fit normaliser.json or dataset.json"
            f" ({'; '.join(wrong)}); train again"
        )
    record.warn_of_unfinished(run, experiment.training.epochs)
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    model, weights = read_model(run, experiment.model)
    return Surrogate(run.url, problem, dataset, model.to(place), weights)


class Surrogate:
    """A trained model with its normalisation; arrays have C `channels` and K patch kinds."""

    def __init__(
        self,
        url: str,
        problem: Problem,
        dataset: dict[str, Any],
        model: FieldModel,
        weights: str = "",
    ) -> None:
        self.url, self.problem = url, problem
        self.experiment, self.normaliser = problem.experiment, problem.normaliser
        self.channels = tuple(channel.name for channel in self.normaliser.channels)
        self.step_s = problem.step_s
        """Time between predicted states; None for a steady model"""
        self.weights = weights
        """Digest of the file that the model came from; what was calibrated is of these weights"""
        self.dataset = dataset
        """url, version, snapshot_id and family of the dataset version of the training"""
        self.model = model.eval()
        self.device = next(model.parameters()).device
        self._family: CaseFamily | SharedMesh | None = None

    @property
    def decomposes(self) -> bool:
        """Whether its predictions can be taken apart."""
        return isinstance(self.model, field_model.Decomposes)

    @cached_property
    def space(self) -> list[Parameter]:
        """The design parameters of the training's dataset."""
        return [Parameter(**each) for each in self.dataset["parameters"]]

    @cached_property
    def answers(self) -> Answers:
        """The regressed quantities of `courant evaluate`; without any where none were fitted."""
        answers = self._calibrated(record.ANSWERS, Answers) or Answers()
        return self.bands.chosen(answers) if self.bands else answers

    def keep(self, found: Calibrated) -> None:
        """Write what was fitted to these weights to the run, and use it from now on."""
        names = {Answers: record.ANSWERS, banding.Bands: record.BANDS, Monitor: record.MONITOR}
        RunDirectory(self.url).write_json(names[type(found)], found.model_dump(mode="json"))
        for name in ("answers", "bands", "monitor"):  # answers follow from the bands, too
            self.__dict__.pop(name, None)

    @cached_property
    def bands(self) -> banding.Bands | None:
        """The errors of `courant calibrate`, as bands; None where the run is not calibrated."""
        return self._calibrated(record.BANDS, banding.Bands)

    @cached_property
    def monitor(self) -> Monitor | None:
        """The usual rollouts by `courant analyse monitor`; None where it is not calibrated."""
        return self._calibrated(record.MONITOR, Monitor)

    def _calibrated(self, name: str, kind: type[Calibrated]) -> Calibrated | None:
        """Return the run's record of this kind; None where it is not of these weights."""
        run = RunDirectory(self.url)
        if not run.exists(name):
            return None
        found = run.read_record(name, kind, "remove it and calibrate again")
        return found if found.weights == self.weights else None

    def times(self, start_s: float, steps: int | None = None) -> np.ndarray | None:
        """Return (T,) s, the times of a rollout's states from `start_s`; None if steady."""
        return self.problem.times(start_s, self.problem.steps(steps))

    def open_dataset(self, url: str | Path | None = None) -> Dataset:
        """Open the dataset version of the training, at `url` if it lies elsewhere by now.

        InputError where it is found nowhere, or has another snapshot id.
        """
        return record.open_recorded(self.url, self.dataset, None if url is None else str(url))

    def family(self, place: str | Path | None = None) -> CaseFamily | SharedMesh:
        """Return what meshes designs; InputError where nothing does."""
        if self._family is None:
            known = find_family(self.dataset["family"], str(place or self.dataset["url"]))
            self._family = known or meshing_family(self.open_dataset(place))
        return self._family

    def predict(self, points: np.ndarray, **parts: Any) -> np.ndarray:
        """Predict the fields of a design at points (N, 2 or 3) m, cell centres or scattered ones.

        A transient model returns the states (T, M, C) after 1..T = `steps` times `step_s` seconds
        (None: as many as trained on). It takes `initial` (N, C), the state at the points, or
        (I, N, C), I states one step apart with the oldest first; `queries` (M, 2 or 3) m, where to
        predict (None: at `points`); and the geometry from `parameters`, or from `distance` and
        `query_distance`.

        A steady model returns the fields (N, C). It takes `parameters`; `distance`; and `boundary`,
        the faces, as a stored case's `boundary` or a mapping {"points": (B, 3) m, "patch": (B,)
        kinds, "velocity": (B, 3) m/s where it is prescribed}.

        parameters: the family's design parameters, by name. distance = (distance (N, K) m,
        direction (N, K, 3)) to every patch kind. given, query_given: the dataset's given fields at
        points and queries, by name: (N, components) or (N,).

        Raises InputError for missing, superfluous and wrong arguments, and values that are not
        finite; warns of parameters outside the design space and points outside the training domain.
        """
        return check_finite(self.predict_prepared(self.prepare(points, **parts)))

    def prepare(self, points: np.ndarray, **parts: Any) -> Batch:
        """Check the arguments of `predict`; return a batch of one on the model's device."""
        return self.problem.prepare(self.space, points, **parts).map(lambda of: of.to(self.device))

    def predict_case(
        self, case: StoredCase, *, start_s: float | None = None, steps: int | None = None
    ) -> np.ndarray:
        """Predict a stored case: (T, N, C) of a transient model, (N, C) of a steady one.

        The rollout starts from the snapshot at `start_s` (None: where training windows begin).
        """
        prepared = self.prepare_case(case, start_s, steps)
        try:
            return check_finite(self.predict_prepared(prepared))
        except NotFiniteError as error:
            raise NotFiniteError(f"{self.url}, case {case.id}: {error}") from None

    def predict_last(self, case: StoredCase, *, start_s: float | None = None) -> np.ndarray:
        """Return the last state alone of `predict_case`: (N, C) of either kind of model."""
        predicted = self.predict_case(case, start_s=start_s)
        return predicted.reshape(-1, *predicted.shape[-2:])[-1]

    def prepare_case(
        self, case: StoredCase, start_s: float | None = None, steps: int | None = None
    ) -> Batch:
        """Return the inputs of `predict_case` as a batch of one on the model's device."""
        return self.problem.case_inputs(case, start_s, steps).map(lambda of: of.to(self.device))

    @torch.inference_mode()
    def predict_prepared(self, request: Batch) -> np.ndarray:
        """Predict a request, a batch of one; values may be infinite or NaN."""
        inputs, queries = request.for_model(self.model.config)
        states = self.model.predict(inputs, queries, request.num_steps, QUERY_CHUNK)
        values = self.normaliser.restore(states.cpu().numpy())
        if request.scale is not None:
            values = values * request.scale.cpu().numpy()[:, None, None]
        return self.problem.presented(values[0])

    def decomposition(
        self,
        case: StoredCase | Batch,
        *,
        start_s: float | None = None,
        steps: int | None = None,
        cells: np.ndarray | None = None,
    ) -> FieldDecomposition:
        """Split a prediction of a case or a request in the model's units, at some of its cells."""
        if not isinstance(self.model, field_model.Decomposes):
            raise InputError(
                f"{self.url}: a model of kind {self.model.config.kind} does not decompose its"
                " predictions"
            )
        prepared = case if isinstance(case, Batch) else self.prepare_case(case, start_s, steps)
        inputs, queries = prepared.for_model(self.model.config)
        if cells is not None:
            queries = queries.part(torch.as_tensor(cells, device=self.device))
        with torch.inference_mode():
            return self.model.decompose(inputs, queries, prepared.num_steps)

    def model_inputs(
        self, case: StoredCase, start_s: float | None = None
    ) -> tuple[Inputs, Queries]:
        """Return what the model itself takes for a stored case, normalised, as a batch of one."""
        return self.prepare_case(case, start_s).for_model(self.model.config)

    def places(self, anchors: torch.Tensor | None) -> np.ndarray | None:
        """Return (L, 3) m, of the first cloud's anchors in normalised (B, L, d); None for none."""
        if anchors is None:
            return None
        flat = anchors[0].detach().cpu().numpy()
        return self.normaliser.restore_points(np.pad(flat, ((0, 0), (0, 3 - flat.shape[1]))))

    def predict_design(
        self,
        parameters: Mapping[str, float],
        *,
        steps: int | None = None,
        from_solver_s: float | None = None,
        verify: bool = False,
        scratch: str | Path | None = None,
        max_points: int | None = None,
        start_of: StoredCase | None = None,
        place: str | Path | None = None,
        fields_by: FieldsOfDesign | None = None,
    ) -> PredictedDesign:
        """Predict a design that nobody has solved: the family meshes it.

        Cases that were solved elsewhere have no family. Where they share a mesh, it is read from
        the dataset, at `place` if it was moved.

        A transient model needs a state to start from: the solver runs `from_solver_s` seconds of
        the design, or the state of another design, `start_of`, by default the nearest solved one,
        is transferred to this mesh, and no band of the model holds. With `verify` the solver solves
        all of it.

        `scratch` is where a case is solved (None: the system's temporary folder), and `max_points`
        bounds the cells. Known geometry is kept in ~/.cache/courant/geometry.
        `fields_by` predicts the fields in place of the model, whose bands do not hold then. Raises
        InputError for a design outside the family's design space, and one that cannot be meshed or
        solved.
        """
        family, settings = self.family(place), self.dataset["settings"]
        trained_on = self.dataset["family_revision"]
        if trained_on not in (None, family.revision):
            warn_caller(
                f"the model was trained on revision {trained_on} of {family.name}, this design is"
                f" of revision {family.revision}: generate the dataset anew and train on it"
            )
        point, begin, problem = family.point(parameters, settings), None, self.problem
        if isinstance(family, SharedMesh):
            if verify or from_solver_s is not None:
                raise InputError(
                    f"the cases of {family.dataset.url} were solved elsewhere: nothing here solves"
                    " a design; leave out --verify and --from-solver, or make a case a family:"
                    f" {family.dataset.schema.template_command()}"
                )
        elif verify and from_solver_s is None and self.step_s is not None:
            every, end = settings.get(family.snapshot_interval, self.step_s), settings["end_time"]
            raise InputError(
                "--verify of a transient model needs --from-solver SECONDS, where the rollout"
                f" starts: from {every:g} to {end:g} s, a multiple of {every:g} s"
            )
        if self.step_s is not None and start_of is None and from_solver_s is None:
            of = family.dataset if isinstance(family, SharedMesh) else self.open_dataset(place)
            nearest, away = next(iter(of.distances(parameters).items()))
            start_of, other = of[nearest], "; --from-solver has the solver make one of its own"
            if fields_by is None:
                warn_caller(
                    f"the rollout starts from the state at {problem.start(start_of):g} s of the"
                    f" nearest solved case, {nearest}, whose design differs by {100 * away:.2g} %"
                    + ("" if isinstance(family, SharedMesh) else other)
                )
        is_whole = self.step_s is None  # whether the solver ends where those of the cases did
        if self.step_s is None:
            if from_solver_s is not None or steps is not None:
                raise InputError("a steady model takes no start and no steps")
        elif start_of is not None:
            begin, steps = problem.start(start_of), problem.steps(steps)
        else:
            assert from_solver_s is not None and not isinstance(family, SharedMesh)
            begin, known_s = from_solver_s, settings[family.horizon]
            if problem.input_times(begin)[0] < 0:
                raise InputError(
                    f"the model reads {problem.input_steps} states {self.step_s:g} s apart, and the"
                    " solver starts at 0 s: let it run for"
                    f" {(problem.input_steps - 1) * self.step_s:g} s or longer"
                )
            if begin > known_s:
                raise InputError(f"the model knows no state after {known_s:g} s, where cases end")
            every = settings.get(family.snapshot_interval, self.step_s)
            if abs(begin / every - round(begin / every)) > TIME_TOLERANCE:
                raise InputError(
                    f"--from-solver {begin:g}: the solver stores a state every {every:g} s; give a"
                    " multiple of that"
                )
            left = max(1, int((known_s - begin) / self.step_s + TIME_TOLERANCE))
            steps = min(problem.steps(None), left) if steps is None else problem.steps(steps)
            end = begin + steps * self.step_s if verify else begin
            point = family.point(parameters, {**settings, family.horizon: end})
            is_whole = bool(np.isclose(end, known_s))
            if verify and not is_whole:
                warn_caller(
                    f"the solver's quantities are of times to {end:g} s, those predicted to"
                    f" {known_s:g} s: {left} steps compare the same"
                )
        known_geometry, measured = False, dict[str, float]()
        if isinstance(family, SharedMesh):
            cloud, seconds, known_geometry = family.cloud, Seconds(0.0), True
        elif from_solver_s is not None or (verify and start_of is None):
            cloud, seconds, measured = solve(point, scratch)
        else:
            cloud, seconds, known_geometry = mesh(point, max_points)
        if start_of is not None:
            cloud = transferred_state(problem, start_of, cloud)

        began = time.perf_counter()
        known = known_of_design(problem, point, cloud, begin)
        prepared = self.prepare(cloud.points, **known, steps=steps)
        times = None if begin is None else self.times(begin, steps)
        ends = start_of.time if start_of is not None else [settings.get("end_time", np.inf)]
        if times is not None and ends is not None and times[-1] > 1.0001 * ends[-1]:
            late = f"{times[-1]:g} s, after the {ends[-1]:g} s of the training's cases"
            warn_caller(f"the rollout goes to {late}")
        if fields_by is None:
            values = check_finite(self.predict_prepared(prepared))
        else:
            values = fields_by(cloud.points, point.parameters, times)
            values = values[0] if times is None else values
        seconds = replace(seconds, prediction=time.perf_counter() - began)
        why = ""
        if start_of is not None:
            away = self.scaled(start_of.parameters) - self.scaled(point.parameters)
            if abs(away).max() > 2 * SAME_DESIGN:
                why = "the rollout starts from another design's state"
        why = why if fields_by is None else "bands are of the network's fields alone"
        bands = self.bands_around(prepared, values, cloud.points, point.parameters, begin, none=why)
        usable = not bands.no_quantities
        channels = self.normaliser.channels
        solved, since_s = None, 0.0
        if times is None and cloud.fields:
            solved = by_channel(cloud.fields, channels)
        elif times is not None and cloud.time is not None and cloud.time[-1] > 0.999999 * times[-1]:
            solved = np.stack([solved_state(channels, cloud, at) for at in times.tolist()])
        boundary = None if cloud.boundary is None else replace(cloud.boundary, fields={})
        bare = replace(cloud, time=None, fields={}, boundary=boundary)
        wanted, reasons = obtainable(family.quantities, self.channels)
        if times is not None and self.step_s is not None:
            since_s = counted_from_s(family, settings, self.step_s, times)

        def quantities(of: np.ndarray) -> dict[str, float]:
            states = replace(bare, time=times, fields=by_field(of, channels))
            fields = CaseFields(point.parameters, point.settings, states)
            return quantities_from(wanted, fields, since_s)

        of_solver = {of.name: measured[of.name] for of in family.quantities if of.name in measured}
        of_fields, answers = quantities(values), self.answers
        columns = {name: np.array([value]) for name, value in of_fields.items()}
        design = self.scaled(point.parameters)[None]
        answered = {n: float(of[0]) for n, of in answers.at(design, columns, usable).items()}
        around = self.quantity_bands(design[0], answered, usable)
        grid = self.bands.grid if self.bands else {}
        return PredictedDesign(
            point=point,
            cloud=bare,
            values=values,
            times=times,
            quantities=answered,
            sources={name: answers.source(name, usable) for name in answered},
            of_fields=of_fields,
            not_predicted={name: why for name, why in reasons.items() if name not in answered},
            seconds=seconds,
            known_geometry=known_geometry,
            prepared=prepared,
            bands=replace(bands, quantities=around),
            fine={name: of.fine(answered[name]) for name, of in grid.items() if name in around},
            solved=solved,
            solved_quantities=None
            if solved is None
            else {**quantities(solved), **(of_solver if is_whole else {})},
        )

    def quantity_bands(
        self, design: np.ndarray, values: Mapping[str, float], usable: bool
    ) -> dict[str, banding.QuantityBand]:
        """Return `courant.prediction.bands.quantity_bands`; warn where they may be too narrow."""
        around = banding.quantity_bands(self.answers, self.bands, design, values, usable)
        left_out = any(of.kind == "left out" for of in around.values())
        if left_out and banding.is_remote(np.array(self.answers.designs), design):
            warn_caller(
                "this design is farther from all solved designs than any of these is from the"
                " others: its bands may be too narrow"
            )
        return around

    def scaled(self, parameters: Mapping[str, float]) -> np.ndarray:
        """Return (P,) design parameters, -1..1 over their ranges."""
        return scaled_in(self.space, parameters)

    def bands_around(
        self,
        prepared: Batch,
        values: np.ndarray,
        points: np.ndarray,
        parameters: Mapping[str, float],
        start_s: float | None = None,
        level: float = banding.LEVEL,
        bands: banding.Bands | None = None,
        none: str = "",
    ) -> banding.DesignBands:
        """Return the bands of a prediction from `prepared`, without those of quantities.

        values (T, N, C) of a rollout from `start_s`, or (N, C), at points (N, 3) m; `none` is a
        reason why no band of the fields holds.
        """
        design, outcomes = self.scaled(parameters), self.answers.outcomes
        unsolved = outcomes.unsolved_near(design) if outcomes else 0.0
        bands = bands or self.bands
        ranges = banding.known_ranges(self.answers, bands)
        beyond = banding.out_of_ranges(ranges, self.space, parameters)
        if bands is None:
            why = "the run is not calibrated" + (
                "" if self.answers.weights else ", nor evaluated (courant evaluate)"
            )
            # Nothing is known of which rollouts were compared with the solver's.
            of_fields = none or why * (start_s is not None)
            return banding.DesignBands(level, None, unsolved, beyond or none or why, of_fields)
        why = beyond
        if not why and len(bands.cases) < (least := banding.least_cases(level)):
            why = f"a level of {level:.0%} needs {least} calibration cases, the run has"
            why += f" {len(bands.cases)}"
        if why := why or none or bands.out_of_reach(self.pooled_latents(prepared)):
            return banding.DesignBands(level, None, unsolved, why, why)
        states, rollout, step_s = values.reshape(-1, *values.shape[-2:]), bands.rollout, self.step_s
        normaliser = self.normaliser.at(parameters)
        no_field, no_quantities, field = "", "", None
        if rollout is not None and start_s is not None and step_s is not None:
            away = abs(rollout.start_s - start_s)
            if away > TIME_TOLERANCE * step_s or rollout.steps != len(states):
                no_quantities = (
                    f"quantities are calibrated for rollouts of {rollout.steps} steps from"
                    f" {rollout.start_s:g} s"
                )
        if len(states) <= (calibrated := len(bands.field.scale.growth)):
            scales = bands.field.scale.at(points, normaliser.standardise(states))
            largest, designs = np.array(bands.field.largest), np.asarray(bands.designs)
            widths = banding.half_width(designs, largest, design, level) * scales
            field = (widths * np.asarray(normaliser.std)).reshape(values.shape)
        else:
            no_field = f"bands are calibrated for {calibrated} steps, {len(states)} were asked for"
        return banding.DesignBands(level, field, unsolved, no_field, no_quantities)

    def pooled_latents(self, prepared: Batch) -> np.ndarray | None:
        """Return the pooled latents (2 d,) of a request; None for a model without latents."""
        if not isinstance(self.model, field_model.Encodes):
            return None
        inputs, _ = prepared.for_model(self.model.config)
        with torch.inference_mode():
            return banding.pooled(self.model.encode(inputs)[0].float().cpu().numpy())

    def check_evolves(self) -> field_model.Evolves:
        """Return the model; InputError for one that is steady or has no latents."""
        if self.step_s is None or not isinstance(self.model, field_model.Evolves):
            raise InputError(
                f"{self.url}: only a transient model with latents has a processor and long"
                f" rollouts, this is a {self.problem.kind} model of kind {self.model.config.kind}"
            )
        return self.model

    def rollout_latents(self, prepared: Batch) -> torch.Tensor:
        """Return the latents (T + 1, L, d) from Z(0) on; InputError as `check_evolves`."""
        model = self.check_evolves()
        inputs, _ = prepared.for_model(self.model.config)
        with torch.no_grad():
            encoded = model.encode(inputs)
            later = model.rollout(encoded, prepared.num_steps)
        return torch.cat([encoded[:, None], later], dim=1)[0]

    def rollout_quality(self, prepared: Batch) -> RolloutQuality:
        """Return whether a request's latents keep to the dynamics of the training, step by step.

        InputError without a calibrated monitor, and for a model without latents.
        """
        if self.monitor is None:
            raise InputError(
                f"{self.url} has no calibrated monitor for its weights; calibrate one with:"
                f" courant analyse monitor {self.url}"
            )
        latents = self.rollout_latents(prepared).float().cpu().numpy()
        return RolloutQuality(self.monitor.quality(latents), self.monitor.horizon)

    def decompose_case(self, case: StoredCase, **at: Any) -> CaseDecomposition:
        """Split the prediction of `predict_case` into an offset and one contribution per anchor.

        `start_s`, `steps` and `cells` as for `decomposition`. The contributions are as many fields
        as there are anchors: for a large case, name the cells that you need.
        """
        parts = self.decomposition(case, **at)
        normaliser = self.normaliser.at(case.parameters)
        with torch.inference_mode():
            contributions = parts.whole().contributions[0].cpu().numpy()
        contributions = contributions * np.asarray(normaliser.std, np.float32)
        offset = normaliser.restore(parts.offset.cpu().numpy())
        presented = self.problem.presented(contributions)
        return CaseDecomposition(offset, presented, self.places(parts.anchors))

    def export(self, folder: str | Path) -> list[Path]:
        """Write <part>.pt2 for each part of the model, which need torch alone, and normaliser.json.

        The second has the numbers that convert physical units to the model's. Returns the files.
        InputError for a model that cannot be exported, and a folder that cannot be written.
        """
        if not isinstance(self.model, field_model.Exports):
            raise InputError(f"a model of kind {self.model.config.kind} has no export to programs")
        place = Path(folder)
        try:
            programs = {place / f"{part}.pt2": each for part, each in self.model.export().items()}
            place.mkdir(parents=True, exist_ok=True)
            for file, program in programs.items():
                torch.export.save(program, file)
            (place / NORMALISER).write_text(json.dumps(self.normaliser.to_json(), indent=1))
        except (ValueError, OSError) as error:
            raise InputError(f"the model cannot be exported to {place}: {error}") from error
        return [*programs, place / NORMALISER]


def mesh(point: DesignPoint, max_points: int | None) -> tuple[PointCloud, Seconds, bool]:
    """Mesh a design, or read its known geometry; also return whether it was there."""
    from simgen.solving.unsolved import mesh_design

    began = time.perf_counter()
    cloud, known = mesh_design(point, cache_folder("geometry"))
    if max_points is not None and cloud.num_points > max_points:
        raise TooLargeError(
            f"the mesh of this design has {cloud.num_points} cells, {max_points} are allowed"
        )
    return cloud, Seconds(time.perf_counter() - began), known


def solve(
    point: DesignPoint, folder: str | Path | None
) -> tuple[PointCloud, Seconds, dict[str, float]]:
    """Solve a design in a folder below `folder`, and return the solver's figures as well.

    InputError where it is rejected or fails.
    """
    from simgen.solving.convert import convert
    from simgen.solving.solve_case import solve_case

    if folder is not None:
        Path(folder).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="design-", dir=folder) as scratch:
        result = solve_case(point, Path(scratch))
        if result.status != "accepted":
            raise InputError(f"the solver did not solve this design ({result.reason})")
        cloud = convert(SolvedCase(point, Path(scratch) / point.id))
    took = result.provenance["wall_time_s"]
    return cloud, Seconds(float(took["mesh"]), float(took["solve"])), result.provenance["figures"]


def transferred_state(problem: Problem, case: StoredCase, cloud: PointCloud) -> PointCloud:
    """Return a mesh's cloud with the states that a rollout of a case starts from.

    Each cell has those of the case's nearest cell: a body that lies elsewhere is not moved along.
    """
    begin = problem.start(case)
    assert begin is not None and case.time is not None
    moments, stored = problem.input_times(begin), np.asarray(case.time)
    frames = [int(np.abs(stored - moment).argmin()) for moment in moments.tolist()]
    nearest = point_tree(case.points).query(cloud.points)[1]
    fields = {}
    for name in {channel.field: None for channel in problem.normaliser.channels}:
        fields[name] = np.stack([np.asarray(case[name][frame]) for frame in frames])[:, nearest]
    return replace(cloud, time=moments, fields=fields)


def known_of_design(
    problem: Problem, point: DesignPoint, cloud: PointCloud, start_s: float | None
) -> dict[str, Any]:
    """Return arguments of `predict`; of a steady design's fields its boundary conditions alone."""
    normaliser = problem.normaliser
    known: dict[str, Any] = {"parameters": point.parameters} if normaliser.parameters else {}
    if normaliser.stored_kinds:
        columns = [cloud.measured_kinds.index(kind) for kind in normaliser.stored_kinds]
        assert cloud.distance is not None and cloud.direction is not None
        known["distance"] = (cloud.distance[:, columns], cloud.direction[:, columns])
    if start_s is not None:
        moments = problem.input_times(start_s).tolist()
        states = [solved_state(normaliser.channels, cloud, moment) for moment in moments]
        known["initial"] = states[0] if len(states) == 1 else np.stack(states)
    elif normaliser.has_boundary and cloud.boundary is not None:
        faces = cloud.boundary
        known["boundary"] = {"points": faces.points, "patch": faces.patch, **faces.fields}
    return known


def solved_state(channels: Sequence[Channel], cloud: PointCloud, at_s: float) -> np.ndarray:
    """Return (N, C) at a stored time; InputError where nothing is stored then."""
    stored = np.zeros(0) if cloud.time is None else cloud.time
    nearest = int(np.abs(stored - at_s).argmin()) if len(stored) else -1
    if nearest < 0 or abs(stored[nearest] - at_s) > time_tolerance(stored):
        raise InputError(f"the solver stores no state at {at_s:g} s")
    return by_channel({name: of[nearest] for name, of in cloud.fields.items()}, channels)


def quantities_from(
    quantities: Sequence[Quantity], fields: CaseFields, since_s: float
) -> dict[str, float]:
    """Compute quantities by name, of a transient case from `since_s` on; NaN without a state."""
    cloud = states_from(fields.cloud, since_s)
    if cloud.time is not None and not len(cloud.time):
        return dict.fromkeys((each.name for each in quantities), float("nan"))
    return compute(quantities, CaseFields(fields.parameters, fields.settings, cloud))


def by_channel(fields: Mapping[str, np.ndarray], channels: Sequence[Channel]) -> np.ndarray:
    """Stack the channels of fields (..., components) as (..., C)."""
    return np.stack([fields[each.field][..., each.column] for each in channels], axis=-1)


def by_field(values: np.ndarray, channels: Sequence[Channel]) -> dict[str, np.ndarray]:
    """Split (..., C) into fields (..., components); components that are not modelled are zero."""
    fields: dict[str, np.ndarray] = {}
    for name in dict.fromkeys(channel.field for channel in channels):
        columns = {each.column: c for c, each in enumerate(channels) if each.field == name}
        fields[name] = np.zeros((*values.shape[:-1], 1 + max(columns)), values.dtype)
        for column, place in columns.items():
            fields[name][..., column] = values[..., place]
    return fields


def counted_from_s(
    family: CaseFamily | SharedMesh, settings: Mapping[str, float], step_s: float, times: np.ndarray
) -> float:
    """Return the time from which predicted states count in quantities.

    It is that of the family in a rollout to the end of the dataset's cases; in others all count.
    """
    if isinstance(family, SharedMesh):
        return 0.0
    to_the_end = times[-1] > settings[family.horizon] - step_s * (1 - 1e-6)
    return family.settled_from_s(settings) if to_the_end else 0.0
