"""Load a trained model and predict in physical units, with checked input and one-line errors.

    surrogate = courant.load("demo-run/runs/cylinder-flow-demo-0123456789")
    surrogate.predict_case(dataset["b0159c13a91f"], start_s=200.0)  # (10, N, 2) m/s
    surrogate.predict(points, initial=u0, parameters={"radius": 2.0, ...}, steps=10)

    surrogate = courant.load("runs/branched-pipe-small-0123456789")
    surrogate.predict(points, parameters=..., boundary=..., distance=(distance, direction))
    surrogate.predict_design({"aperture": 30.0, ...}).quantities["pressure_loss"]

There is one way of a prediction: `prepare` (a user's arguments, or a design's mesh) or
`prepare_case` (a stored case) returns a `Batch` of one, and `predict_prepared` runs batches through
the model.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

import numpy as np
import torch

from courant.data.batch import Batch
from courant.data.geometry import DistanceField
from courant.data.normalisation import Normaliser, powers_of
from courant.data_config import SteadyData
from courant.experiment import Experiment, parse_experiment
from courant.field_model import (
    Decomposes,
    Encodes,
    Evolves,
    Exports,
    FieldDecomposition,
    FieldModel,
    Inputs,
    Queries,
)
from courant.prediction import design
from courant.prediction.bands import LEVEL, Bands, DesignBands, least_cases, pooled, read_bands
from courant.prediction.monitor import Monitor, MonitoredPrediction, RolloutQuality, read_monitor
from courant.problems import Problem, Space, problem_of
from courant.problems.problem import NotFiniteError, check_finite, warn_caller
from courant.problems.transient import TIME_TOLERANCE
from courant.runs.directory import RunDirectory
from courant.runs.record import (
    check_trained,
    open_recorded,
    read_dataset_record,
    warn_of_unfinished,
)
from courant.runs.weights import read_model
from simgen.cases import get_family
from simgen.design_space import Parameter
from simgen.design_space import scaled as scaled_in
from simgen.errors import InputError
from simgen.quantities import CaseFields, obtainable

if TYPE_CHECKING:
    from simgen.store.read import Dataset, StoredCase

QUERY_CHUNK = 65_536
"""Query points that go through the decoder at a time"""
NORMALISER = "normaliser.json"
FROM_ANOTHER = "it starts from the state of another design"
"""Why no band holds"""


class CaseDecomposition(NamedTuple):
    """A prediction in physical units: offset + contributions.sum(anchors) (Eq. exact-decomp)."""

    offset: np.ndarray
    """(C,)"""
    contributions: np.ndarray
    """(T, L, M, C) transient, (L, M, C) steady"""
    anchors: np.ndarray | None
    """(L, 3) m; None for anchors without positions"""


def load(url: str | Path, *, device: str | torch.device | None = None) -> Surrogate:
    """Load the trained model of a run directory (local path or s3://), by default on a GPU if any.

    The run may be somebody else's: every file is checked before anything is built, and no code in
    it runs. Raises InputError where there is no run or no weights yet, or where its files do not
    fit together; StoreError where it cannot be read.
    """
    run = RunDirectory(url)
    check_trained(run)
    experiment = parse_experiment(run.read_object("experiment.json"))
    problem, dataset = _read_problem(run, experiment), read_dataset_record(run)
    if dataset["family"] != experiment.family:
        raise InputError(
            f"{run.url}: experiment.json is for {experiment.family}, dataset.json for"
            f" {dataset['family']}; train again"
        )
    warn_of_unfinished(run, experiment.training.epochs)
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
        self.weights = weights
        """Digest of the file that the model came from; what was calibrated is of these weights"""
        self.dataset = dataset
        """url, version, snapshot_id and family of the dataset version of the training"""
        self.model = model.eval()
        self.device = next(model.parameters()).device
        self._space = Space(dataset["family"], dataset["parameters"])

    def __repr__(self) -> str:
        trained_on = f"{self.dataset['family']} {self.dataset['version']}"
        return (
            f"<{self.problem.kind} surrogate of {', '.join(self.channels)} on {trained_on}:"
            f" {self.url}>"
        )

    @property
    def experiment(self) -> Experiment:
        return self.problem.experiment

    @property
    def normaliser(self) -> Normaliser:
        return self.problem.normaliser

    @property
    def channels(self) -> tuple[str, ...]:
        return tuple(channel.name for channel in self.normaliser.channels)

    @property
    def step_s(self) -> float | None:
        """Time between predicted states; None for a steady model."""
        return self.problem.step_s

    @property
    def decomposes(self) -> bool:
        """Whether its predictions can be taken apart."""
        return isinstance(self.model, Decomposes)

    @cached_property
    def space(self) -> list[Parameter]:
        """The design parameters of the training's dataset."""
        return [Parameter(**each) for each in self.dataset["parameters"]]

    @cached_property
    def bands(self) -> Bands | None:
        """The errors of `courant calibrate`, as bands; None where the run is not calibrated."""
        return read_bands(RunDirectory(self.url), self.weights)

    @cached_property
    def monitor(self) -> Monitor | None:
        """The usual rollouts by `courant analyse monitor`; None where it is not calibrated."""
        return read_monitor(RunDirectory(self.url), self.weights)

    def times(self, start_s: float, steps: int | None = None) -> np.ndarray | None:
        """Return (T,) s, the times of a rollout's states from `start_s`; None if steady."""
        return self.problem.times(start_s, self.problem.steps(steps))

    def open_dataset(self, url: str | Path | None = None) -> Dataset:
        """Open the dataset version of the training, at `url` if it lies elsewhere by now.

        Its snapshot id is checked. InputError where it is another one, or found nowhere.
        """
        return open_recorded(self.url, self.dataset, None if url is None else str(url))

    @overload
    def predict(
        self,
        points: np.ndarray,
        *,
        initial: np.ndarray | None = None,
        parameters: Mapping[str, float] | None = None,
        boundary: Any = None,
        distance: DistanceField | None = None,
        queries: np.ndarray | None = None,
        query_distance: DistanceField | None = None,
        given: Mapping[str, Any] | None = None,
        query_given: Mapping[str, Any] | None = None,
        steps: int | None = None,
        monitor: Literal[False] = False,
    ) -> np.ndarray: ...
    @overload
    def predict(
        self, points: np.ndarray, *, monitor: Literal[True], **parts: Any
    ) -> MonitoredPrediction: ...
    def predict(
        self, points: np.ndarray, *, monitor: bool = False, **parts: Any
    ) -> np.ndarray | MonitoredPrediction:
        """Predict the fields of a design at points (N, 2 or 3) m.

        These are cell centres, or any scattered points that cover the domain.

        A transient model returns the states (T, M, C) after 1..T = `steps` times `step_s` seconds
        (None: as many as trained on). It takes `initial` (N, C), the state at the points, or
        (I, N, C), the states one step apart with the oldest first, where `data.input_steps` is more
        than one; `queries` (M, 2 or 3) m, where to predict (None = at `points`); and the geometry
        from `parameters` or from `distance` and `query_distance`.

        A steady model returns the fields (N, C). It takes `parameters`; `distance`; and `boundary`,
        the boundary's faces, as a stored case's `boundary` or a mapping {"points": (B, 3) m,
        "patch": (B,) kinds, "velocity": (B, 3) m/s where it is prescribed}. A model whose encoder
        reads the mesh takes `points` for its mesh.

        given: the dataset's given fields, such as a permeability, by name: (N, components) or (N,)
        at the points; for a transient model at the start. `query_given` is the same at the queries.

        parameters: the family's design parameters, by name. distance = (distance (N, K) m,
        direction (N, K, 3)) to every patch kind, as a stored case has them.

        monitor: also return, as `MonitoredPrediction`, whether the latents of the rollout keep to
        the dynamics of the training; after `courant analyse monitor`.

        Raises InputError for missing or superfluous arguments, wrong names, wrong shapes and values
        that are not finite; warns of parameters outside the design space and of points outside the
        domain of the training cases.
        """
        prepared = self.prepare(points, **parts)
        quality = self.rollout_quality(prepared) if monitor else None
        values = check_finite(self.predict_prepared([prepared])[0])
        return values if quality is None else MonitoredPrediction(values, quality)

    def prepare(self, points: np.ndarray, **parts: Any) -> Batch:
        """Check the arguments of `predict`; return a batch of one on the model's device."""
        return self._on_device(self.problem.prepare(self._space, points, **parts))

    def predict_case(
        self, case: StoredCase, *, start_s: float | None = None, steps: int | None = None
    ) -> np.ndarray:
        """Predict a stored case: (T, N, C) of a transient model, (N, C) of a steady one.

        The rollout starts from the stored snapshot at `start_s` (None: where training windows
        begin). A steady prediction starts from the case's geometry, boundary conditions and
        parameters.
        """
        prepared = self.prepare_case(case, start_s, steps)
        try:
            return check_finite(self.predict_prepared([prepared])[0])
        except NotFiniteError as error:
            raise NotFiniteError(f"{self.url}, case {case.id}: {error}") from None

    def predict_last(
        self, case: StoredCase, *, start_s: float | None = None, steps: int | None = None
    ) -> np.ndarray:
        """Return the last state alone of `predict_case`: (N, C) of either kind of model."""
        predicted = self.predict_case(case, start_s=start_s, steps=steps)
        return predicted.reshape(-1, *predicted.shape[-2:])[-1]

    def prepare_case(
        self, case: StoredCase, start_s: float | None = None, steps: int | None = None
    ) -> Batch:
        """Return the inputs of a stored case as a batch of one on the model's device."""
        return self._on_device(self.problem.case_inputs(case, start_s, steps))

    def predict_prepared(self, requests: Sequence[Batch]) -> list[np.ndarray]:
        """Predict each request; those of the same sizes go through the model as one batch."""
        groups: dict[tuple[Any, ...], list[int]] = {}
        for number, request in enumerate(requests):
            sizes = tuple((name, value.shape) for name, value in request.tensors.items())
            groups.setdefault(sizes, []).append(number)
        predicted: dict[int, np.ndarray] = {}
        for numbers in groups.values():
            values = self._run(Batch.joined([requests[number] for number in numbers]))
            predicted |= zip(numbers, map(self.problem.presented, values), strict=True)
        return [predicted[number] for number in range(len(requests))]

    def decomposition(
        self,
        case: StoredCase,
        *,
        start_s: float | None = None,
        steps: int | None = None,
        cells: np.ndarray | None = None,
    ) -> FieldDecomposition:
        """Take a prediction apart in the model's units; its `chunks` compute the contributions."""
        return self.decompose_prepared(self.prepare_case(case, start_s, steps), cells)

    def decompose_prepared(
        self, prepared: Batch, cells: np.ndarray | None = None
    ) -> FieldDecomposition:
        """Take the prediction of a request apart, at some of its points."""
        if not isinstance(self.model, Decomposes):
            raise InputError(
                f"{self.url}: a model of kind {self.model.config.kind} does not decompose its"
                " predictions"
            )
        inputs, queries = prepared.for_model(self.model.config)
        if cells is not None:
            queries = queries.part(torch.as_tensor(cells, device=self.device))
        with torch.inference_mode():
            return self.model.decompose(inputs, queries, prepared.num_steps)

    def model_inputs(
        self, case: StoredCase, start_s: float | None = None
    ) -> tuple[Inputs, Queries]:
        """Return what the model itself takes for a stored case, normalised, as a batch of one."""
        prepared = self.prepare_case(case, start_s)
        return prepared.for_model(self.model.config)

    def places(self, anchors: np.ndarray) -> np.ndarray:
        """Return (L, 3) m from (L, d) normalised; anchors of a 2D model have z = 0."""
        return self.normaliser.restore_points(np.pad(anchors, ((0, 0), (0, 3 - anchors.shape[1]))))

    def predict_design(
        self,
        parameters: Mapping[str, float],
        *,
        steps: int | None = None,
        from_solver_s: float | None = None,
        verify: bool = False,
        folder: str | Path | None = None,
        scratch: str | Path | None = None,
        max_points: int | None = None,
        start_of: StoredCase | None = None,
    ) -> design.PredictedDesign:
        """Predict a design that nobody has solved: the family meshes it.

        A transient model needs a state to start from: the solver runs `from_solver_s` seconds of
        the design, or the state of another design, `start_of`, is transferred to this mesh, and no
        band of the model holds. With `verify` the solver solves all of it, and the solution is
        beside the prediction.

        `folder` keeps known geometry (None: ~/.cache/courant/geometry), `scratch` is where a case
        is solved (None: the system's temporary folder), and `max_points` bounds the cells of a
        mesh. Raises InputError for a design outside the family's design space, one that cannot be
        meshed or solved, and where a transient model has no start.
        """
        family, settings = get_family(self.dataset["family"]), self.dataset["settings"]
        trained_on = self.dataset["family_revision"]
        if trained_on not in (None, family.revision):
            warn_caller(
                f"the model was trained on revision {trained_on} of {family.name}, this design is"
                f" meshed as revision {family.revision} does: generate the dataset anew and train"
                " on it"
            )
        point, begin = family.point(parameters, settings), None
        if self.step_s is None:
            if from_solver_s is not None or steps is not None:
                raise InputError(
                    "a steady model starts from no state: leave out the start and steps"
                )
        elif start_of is not None:
            begin, steps = self.problem.start(start_of), self.problem.steps(steps)
        elif from_solver_s is None:
            raise InputError(
                "a transient model needs a state to start from: name the seconds that the solver"
                " runs before it (--from-solver, from_solver_s in Python)"
            )
        else:
            begin, steps = from_solver_s, self.problem.steps(steps)
            if self.problem.input_times(begin)[0] < 0:
                raise InputError(
                    f"the model reads {self.problem.input_steps} states {self.step_s:g} s apart,"
                    " and the solver starts at 0 s: let it run for"
                    f" {(self.problem.input_steps - 1) * self.step_s:g} s or longer"
                )
            end = begin + steps * self.step_s if verify else begin
            point = family.point(parameters, {**settings, family.horizon: end})
        if from_solver_s is not None or (verify and start_of is None):
            start = design.solve(point, scratch)
        else:
            start = design.mesh(point, folder, max_points)
        cloud = start.cloud
        if start_of is not None:
            cloud = design.transferred_state(self.problem, start_of, cloud)

        began = time.perf_counter()
        known = design.known_of_design(self.problem, point, cloud, begin)
        prepared = self.prepare(cloud.points, **known, steps=steps)
        values = check_finite(self.predict_prepared([prepared])[0])
        seconds = replace(start.seconds, prediction=time.perf_counter() - began)
        bands = self.bands_around(prepared, values, cloud.points, point.parameters, begin)
        if bands is not None and start_of is not None:
            bands = replace(
                bands, quantities={}, field=None, no_field=FROM_ANOTHER, no_quantities=FROM_ANOTHER
            )

        times = None if begin is None else self.times(begin, steps)
        channels = self.normaliser.channels
        solved = design.solved_values(channels, cloud, times)
        boundary = None if cloud.boundary is None else replace(cloud.boundary, fields={})
        bare = replace(cloud, time=None, fields={}, boundary=boundary)
        wanted, reasons = obtainable(family.quantities, self.channels)
        since_s = design.counted_from_s(family, settings, self.step_s, times)

        def quantities(of: np.ndarray) -> dict[str, float]:
            states = replace(bare, time=times, fields=design.by_field(of, channels))
            fields = CaseFields(point.parameters, point.settings, states)
            return design.quantities_from(wanted, fields, since_s)

        predicted = quantities(values)
        # Meshes were studied where quantities were calibrated.
        studied = self.bands.grid if self.bands else {}
        grid = studied if bands and not bands.no_quantities else {}
        alone = bands.by_regression if bands else {}
        return design.PredictedDesign(
            point=point,
            cloud=bare,
            values=values,
            times=times,
            quantities=predicted,
            not_predicted=reasons,
            seconds=seconds,
            known_geometry=start.known_geometry,
            prepared=prepared,
            bands=bands,
            fine={name: of.fine(predicted[name]) for name, of in grid.items() if name in predicted},
            fine_by_regression={
                name: of.fine(alone[name][0]) for name, of in studied.items() if name in alone
            },
            solved=solved,
            solved_quantities=None if solved is None else quantities(solved),
        )

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
        level: float = LEVEL,
        bands: Bands | None = None,
    ) -> DesignBands | None:
        """Return the bands of a prediction from `prepared`; None where the run is not calibrated.

        values (T, N, C) of a transient model's rollout from `start_s`, (N, C) of a steady one, at
        points (N, 3) m. `bands` are others than the run's.
        """
        bands = bands or self.bands
        if bands is None:
            return None
        design, normaliser = self.scaled(parameters), self.normaliser.at(parameters)
        unsolved, alone = bands.outcomes.unsolved_near(design), bands.by_regression(design, level)
        none = self.no_band(prepared, parameters, bands)
        if not none and len(bands.cases) < least_cases(level):
            none = (
                f"a level of {level:.0%} needs {least_cases(level)} calibration cases, the run has"
                f" {len(bands.cases)}"
            )
        if none:
            return DesignBands(level, {}, None, unsolved, none, none, alone)
        states, rollout, step_s = values.reshape(-1, *values.shape[-2:]), bands.rollout, self.step_s
        no_field, no_quantities, field = "", "", None
        if rollout is not None and start_s is not None and step_s is not None:
            away = abs(rollout.start_s - start_s)
            if away > TIME_TOLERANCE * step_s or rollout.steps != len(states):
                no_quantities = (
                    f"quantities are calibrated for rollouts of {rollout.steps} steps from"
                    f" {rollout.start_s:g} s"
                )
        names = () if no_quantities else bands.quantities
        if len(states) <= (calibrated := len(bands.field.scale.growth)):
            widths = bands.field_widths(points, normaliser.standardise(states), design, level)
            field = (widths * np.asarray(normaliser.std)).reshape(values.shape)
        else:
            no_field = f"bands are calibrated for {calibrated} steps, {len(states)} were asked for"
        quantities = {name: bands.quantity(name, design, level) for name in names}
        return DesignBands(level, quantities, field, unsolved, no_field, no_quantities, alone)

    def no_band(self, prepared: Batch, parameters: Mapping[str, float], bands: Bands) -> str:
        """Return why no band holds for a request, by its parameters or its latents; else empty."""
        by_ranges = bands.out_of_ranges(self.space, parameters)
        return by_ranges or bands.out_of_reach(self.pooled_latents(prepared))

    def pooled_latents(self, prepared: Batch) -> np.ndarray | None:
        """Return the pooled latents (2 d,) of a request; None for a model without latents."""
        if not isinstance(self.model, Encodes):
            return None
        inputs, _ = prepared.for_model(self.model.config)
        with torch.inference_mode():
            return pooled(self.model.encode(inputs)[0].float().cpu().numpy())

    def bands_of_case(
        self, case: StoredCase, values: np.ndarray, start_s: float | None = None
    ) -> DesignBands | None:
        """Return the bands of `predict_case` from `start_s`; None without calibration."""
        begin = self.problem.start(case, start_s)
        prepared = self.prepare_case(case, begin)
        return self.bands_around(prepared, values, case.points, case.parameters, begin)

    def rollout_latents(self, prepared: Batch) -> np.ndarray:
        """Return the latents (T + 1, L, d) from Z(0) on; InputError for a model without them."""
        model = self.model
        if self.step_s is None or not isinstance(model, Evolves):
            raise InputError(
                f"{self.url}: only rollouts of a model with latents are monitored, this is a"
                f" {self.problem.kind} model of kind {model.config.kind}"
            )
        inputs, _ = prepared.for_model(model.config)
        with torch.inference_mode():
            encoded = model.encode(inputs)
            later = model.rollout(encoded, prepared.num_steps)
            states = torch.cat([encoded[:, None], later], dim=1)
        return np.asarray(states[0].float().cpu().numpy())

    def rollout_quality(self, prepared: Batch) -> RolloutQuality:
        """Watch the rollout of a request; InputError without a monitor, or latents."""
        if self.monitor is None:
            raise InputError(
                f"{self.url} has no calibrated monitor for its weights; calibrate one with:"
                f" courant analyse monitor {self.url}"
            )
        departure = self.monitor.quality(self.rollout_latents(prepared))
        return RolloutQuality(departure, self.monitor.horizon)

    def decompose_case(
        self,
        case: StoredCase,
        *,
        start_s: float | None = None,
        steps: int | None = None,
        cells: np.ndarray | None = None,
    ) -> CaseDecomposition:
        """Split the prediction of `predict_case` into an offset and one contribution per anchor.

        At some cells (None: at all). The contributions are as many fields as there are anchors: for
        a large case, name the cells that you need.
        """
        parts = self.decomposition(case, start_s=start_s, steps=steps, cells=cells)
        normaliser = self.normaliser.at(case.parameters)
        with torch.inference_mode():
            contributions = parts.whole().contributions[0].cpu().numpy()
        places = None if parts.anchors is None else parts.anchors[0].detach().cpu().numpy()
        return CaseDecomposition(
            offset=normaliser.restore(parts.offset.cpu().numpy()),
            contributions=self.problem.presented(
                contributions * np.asarray(normaliser.std, np.float32)
            ),
            anchors=None if places is None else self.places(places),
        )

    def export(self, folder: str | Path) -> list[Path]:
        """Write <part>.pt2 for each part of the model, which need torch alone, and normaliser.json.

        The second has the numbers that convert physical units to the model's. Returns the files.
        InputError for a model that cannot be exported, and a folder that cannot be written.
        """
        if not isinstance(self.model, Exports):
            raise InputError(f"a model of kind {self.model.config.kind} has no export to programs")
        try:
            programs = self.model.export()
        except ValueError as error:
            raise InputError(f"the model cannot be exported: {error}") from error
        place = Path(folder)
        try:
            place.mkdir(parents=True, exist_ok=True)
            for part, program in programs.items():
                torch.export.save(program, place / f"{part}.pt2")
            (place / NORMALISER).write_text(json.dumps(self.normaliser.to_json(), indent=1))
        except OSError as error:
            raise InputError(f"{place} cannot be written: {error.strerror}") from error
        return [*(place / f"{part}.pt2" for part in programs), place / NORMALISER]

    def _on_device(self, batch: Batch) -> Batch:
        return batch.map(lambda value: value.to(self.device))

    @torch.inference_mode()
    def _run(self, batch: Batch) -> np.ndarray:
        """Return (B, T, M, C) in physical units."""
        inputs, queries = batch.for_model(self.model.config)
        states = self.model.predict(inputs, queries, batch.num_steps, chunk=QUERY_CHUNK)
        values = self.normaliser.restore(states.cpu().numpy())
        return values if batch.scale is None else values * batch.scale.cpu().numpy()[:, None, None]


def _read_problem(run: RunDirectory, experiment: Experiment) -> Problem:
    """Raise InputError where the normalisation is invalid or not for the experiment's model."""
    try:
        normaliser = Normaliser.from_json(run.read_object("normaliser.json"))
        problem = problem_of(experiment, normaliser)
        wrong = problem.wrong_sizes()
        data = experiment.data
        scaled_by = data.scaled_by if isinstance(data, SteadyData) else {}
        # Predictions would have other units.
        if powers_of(scaled_by, normaliser.channels, normaliser.parameters) != normaliser.powers:
            wrong.append("data.scaled_by does not fit powers")
    except InputError as error:
        raise InputError(
            f"{run.url}/normaliser.json: {error}; the run is damaged, train it again"
        ) from error
    if wrong:
        raise InputError(
            f"{run.url}: experiment.json does not fit normaliser.json ({'; '.join(wrong)}); train"
            " again"
        )
    return problem
