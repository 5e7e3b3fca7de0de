"""What the panels of a report are made from, each computed once, and the style of all figures.

The steps of colour maps look alike everywhere: equal distances in OKLab. Of values around zero
matplotlib's light-centred maps change up to six times as fast in one place as in another, which
shows edges that the field does not have; its even ones have a dark centre, so that most of a
picture would be black. Here each half is a straight line in OKLab (Ottosson, 2020) from white to a
colour, and both colours are equally dark: equal magnitudes of either sign look alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, ListedColormap
from matplotlib.figure import Figure

from courant.analysis.case_dynamics import CaseDynamics, follow_case
from courant.analysis.case_scores import CaseScores, score_case
from courant.data.normalisation import Channel
from courant.evaluation.record import MODEL, Evaluation
from courant.field_model import FieldDecomposition
from courant.prediction.surrogate import Surrogate, load
from courant.problems.transient import is_spatial
from courant.report.page import channel_label, component_name
from courant.runs.directory import RunDirectory
from courant.runs.record import STATUS, EpochRecord, RunStatus, read_records, read_status
from simgen.design_space import with_unit
from simgen.errors import StoreError
from simgen.publish.figures import Layer, Triangles, layer
from simgen.store.read import Dataset, StoredCase

TOP_ANCHORS = 8
MAX_VALUES = 1 << 24
"""Numbers of contributions in memory at once, 64 MiB; computing them takes a few times as much"""


@dataclass(frozen=True)
class Ranking:
    """The contributions of L anchors to a case's field."""

    norms: np.ndarray  # (L,) over all cells and components, in standard deviations
    offset: np.ndarray  # (C,) in physical units
    anchors: np.ndarray | None  # (L, 3) m; None for anchors without positions
    deviation: float  # the largest of the sum from the prediction, in standard deviations

    @property
    def largest(self) -> np.ndarray:
        """Return the numbers of the anchors that contribute most, in order."""
        return np.argsort(-self.norms, kind="stable")[:TOP_ANCHORS]

    @property
    def energy_share(self) -> str:
        """Format how much of all fields' energy the strongest have."""
        energies = np.square(self.norms)
        share = energies[self.largest].sum() / (float(energies.sum()) or 1.0)
        number = len(self.largest)
        return f"These {number} of {len(energies)} anchors have {share:.0%} of the fields' energy"


@dataclass(frozen=True)
class ShownCase:
    """A case whose prediction is drawn: the last state of a rollout, or the one field."""

    surrogate: Surrogate
    label: str  # such as "median error"
    case: StoredCase
    start_s: float | None  # of the rollout; None in steady problems
    end_s: float | None

    @property
    def slug(self) -> str:
        return self.label.replace(" ", "_")

    @cached_property
    def layer(self) -> Layer:
        """What is drawn of the case."""
        return layer(self.case)

    @property
    def place(self) -> str:
        """`the layer of cells at y = 0.5 m`; empty for 1D and 2D cases."""
        if self.case.dataset.schema.dimension < 3 or not isinstance(self.layer, Triangles):
            return ""
        return f"the layer of cells at {self.layer.plane}"

    @property
    def inside(self) -> str:
        """`, in the layer of cells at y = 0.5 m`; empty for 1D and 2D cases."""
        return f", in {self.place}" if self.place else ""

    @cached_property
    def truth(self) -> np.ndarray:
        """(N, C), in physical units."""
        truth = self.surrogate.problem.solution(self.case, self.end_s)
        if truth is None:
            raise StoreError(
                f"case {self.case.id} has no snapshot at {self.end_s:g} s to compare with"
            )
        return truth

    @cached_property
    def predicted(self) -> np.ndarray:
        """(N, C), in physical units."""
        return self.surrogate.predict_last(self.case, start_s=self.start_s)

    @property
    def deviations(self) -> np.ndarray:
        """(C,) standard deviations that the model predicts the case in, in physical units."""
        return np.asarray(self.surrogate.normaliser.at(self.case.parameters).std)

    @cached_property
    def ranking(self) -> Ranking:
        """The norms of all contributions over the field, and the deviation of their sum."""
        std, parts = self.deviations, self._decomposition(None)
        normaliser = self.surrogate.normaliser
        offset = normaliser.at(self.case.parameters).restore(parts.offset.cpu().numpy())
        squares: np.ndarray | float = 0.0
        deviation = 0.0
        for cells, fields in _chunks(parts):
            squares = squares + np.square(fields).sum(axis=(1, 2))
            missed = offset + (fields * std).sum(axis=0) - self.predicted[cells]
            deviation = max(deviation, float((np.abs(missed) / std).max()))
        places = None if parts.anchors is None else parts.anchors[0].detach().cpu().numpy()
        anchors = None if places is None else self.surrogate.places(places)
        return Ranking(np.sqrt(squares), offset, anchors, deviation)

    def contributions(self, cells: np.ndarray, anchors: np.ndarray) -> np.ndarray:
        """Return (A, M, C): contributions of some anchors at some cells, in physical units."""
        found = [fields[anchors] for _, fields in _chunks(self._decomposition(cells))]
        return np.concatenate(found, axis=1) * self.deviations

    def _decomposition(self, cells: np.ndarray | None) -> FieldDecomposition:
        return self.surrogate.decomposition(self.case, start_s=self.start_s, cells=cells)


def _chunks(parts: FieldDecomposition) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield some query points at a time with the last contributions there (L, m, C), in std."""
    with torch.inference_mode():
        size = max(1, MAX_VALUES // next(parts.chunks(1)).contributions.numel())
        for part in parts.chunks(size):
            yield part.queries, part.contributions[0, -1].float().cpu().numpy()


@dataclass(frozen=True)
class Context:
    """A trained run, its dataset version and its evaluation."""

    run: RunDirectory
    surrogate: Surrogate
    dataset: Dataset
    evaluation: Evaluation
    records: tuple[EpochRecord, ...]
    status: RunStatus | None

    @property
    def channels(self) -> tuple[Channel, ...]:
        return self.surrogate.normaliser.channels

    @cached_property
    def shown(self) -> tuple[ShownCase, ...]:
        """The cases of median and of largest error; of fewer than three only the latter."""
        ranked, problem = ranked_cases(self.evaluation), self.surrogate.problem
        chosen = {"largest error" if len(ranked) > 1 else "only case": ranked[-1]}
        if len(ranked) > 2:
            chosen = {"median error": ranked[len(ranked) // 2], **chosen}
        shown = []
        for label, name in chosen.items():
            case = self.dataset[name]
            start = problem.shown_start(case)
            times = None if start is None else self.surrogate.times(start)
            end = None if times is None else float(times[-1])
            shown.append(ShownCase(self.surrogate, label, case, start, end))
        return tuple(shown)

    @cached_property
    def scores(self) -> CaseScores:
        """The scores of the first shown case's decomposition; for models that decompose."""
        return score_case(self.surrogate, self.shown[0].case)

    @cached_property
    def dynamics(self) -> CaseDynamics | None:
        """The rhythm of the first shown case's rollout; None where there is none."""
        return follow_case(self.surrogate, self.shown[0].case)


def open_context(
    run: RunDirectory, evaluation: Evaluation, dataset_url: str | None = None
) -> Context:
    """Load the run and open the dataset version that it was trained on.

    `dataset_url` is where that lies by now, if it was moved. StoreError where the evaluation is of
    another model or dataset.
    """
    status, surrogate = read_status(run) if run.exists(STATUS) else None, load(run.url)
    dataset = surrogate.open_dataset(dataset_url)
    unknown = set(evaluation.cases) - set(dataset.cases(evaluation.split))
    steps = surrogate.problem.num_steps
    if evaluation.components != surrogate.channels or evaluation.num_steps != steps or unknown:
        raise StoreError(
            f"{run.url}/evaluation.json is of another model or dataset version; remove it and"
            " evaluate again"
        )
    return Context(run, surrogate, dataset, evaluation, tuple(read_records(run)), status)


def ranked_cases(evaluation: Evaluation) -> list[str]:
    """List the ids of the cases, the best predicted first."""
    return sorted(evaluation.cases, key=lambda case: evaluation.cases[case].overall[MODEL].nmae)


@dataclass(frozen=True)
class PlottedField:
    """What a picture shows: a component, or the magnitude of a vector."""

    label: str  # such as "velocity x (m/s)"
    columns: tuple[int, ...]

    def of(self, values: np.ndarray) -> np.ndarray:
        """Return the field (...) of values (..., C)."""
        if len(self.columns) == 1:
            return values[..., self.columns[0]]
        return np.asarray(np.linalg.norm(values[..., list(self.columns)], axis=-1))


def plotted_fields(channels: Sequence[Channel]) -> list[PlottedField]:
    """List the magnitudes of the modelled vectors, and then all components."""
    vectors: dict[str, list[int]] = {}
    for number, channel in enumerate(channels):
        if len(channel.component) == 1 and is_spatial(channel.component):
            vectors.setdefault(channel.field, []).append(number)
    magnitudes = [
        PlottedField(
            with_unit(f"|{component_name(name)}|", channels[columns[0]].unit), tuple(columns)
        )
        for name, columns in vectors.items()
        if len(columns) > 1
    ]
    components = [PlottedField(channel_label(each), (n,)) for n, each in enumerate(channels)]
    return magnitudes + components


MAGNITUDES = "magma_r"
"""Of values from zero on"""
VALUES = "viridis"
"""Of values without a natural zero"""

# From OKLab to long, middle and short cones, and from these to linear sRGB: OKLab's definition.
_TO_CONES = np.array(
    [
        [1.0, 0.3963377774, 0.2158037573],
        [1.0, -0.1055613458, -0.0638541728],
        [1.0, -0.0894841775, -1.2914855480],
    ]
)
_TO_LINEAR = np.array(
    [
        [4.0767416621, -3.3077115913, 0.2309699292],
        [-1.2684380046, 2.6097574011, -0.3413193965],
        [-0.0041960863, -0.7034186147, 1.7076147010],
    ]
)


def _around_zero(
    name: str, low: tuple[float, float, float], high: tuple[float, float, float]
) -> ListedColormap:
    """Return a map from one colour in OKLab over white to another."""
    half, white = np.linspace(0.0, 1.0, 256)[:, None], np.array((0.98, 0.0, 0.0))
    down, up = (white + half * (np.array(end) - white) for end in (low, high))
    lab = np.concatenate([down[::-1], up[1:]])
    linear = np.clip((lab @ _TO_CONES.T) ** 3 @ _TO_LINEAR.T, 0.0, 1.0)
    rgb = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return ListedColormap(rgb, name)


#: Blue below zero, red above.
SIGNED = _around_zero("signed", (0.40, -0.03, -0.135), (0.40, 0.135, 0.055))
#: Purple below zero, brown above: errors, so that they are not mistaken for a field.
ERRORS = _around_zero("errors", (0.40, 0.055, -0.135), (0.40, 0.065, 0.080))
#: The model's colour and its references', in order.
PALETTE = ("#0b5fa5", "#d9822b", "#7a7a7a", "#1a7f37", "#8250df")
MODEL_COLOR = PALETTE[0]
GOOD_COLOR = "#1a7f37"
LIMIT_COLOR = "#b3261e"
Style = dict[str, Any]
"""Keyword arguments of matplotlib"""
CLOUD: Style = {"color": "#c9ced4", "zorder": 0}
"""Points of the domain, behind what is shown in it"""
WIDTH = 13.5
"""Inches"""


def colors(predictors: Sequence[str]) -> dict[str, str]:
    """Return a colour for each predictor, the model first."""
    return {name: PALETTE[place % len(PALETTE)] for place, name in enumerate(predictors)}


def height_of(aspect: float, per_aspect: float, low: float, high: float) -> float:
    """Return the height in inches of a picture with this aspect, within bounds."""
    return float(np.clip(per_aspect * aspect + 0.3, low, high))


def axes_grid(
    num: int,
    most_columns: int,
    size: Callable[[int, int], tuple[float, float]],
    share_y: bool = False,
) -> tuple[Figure, list[Axes], int]:
    """Return a figure of `size(columns, rows)` inches, its `num` axes, and the columns' number."""
    columns = min(most_columns, num)
    rows = -(-num // columns)
    figure = Figure(figsize=size(columns, rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharey=share_y).ravel().tolist()
    for axis in axes[num:]:
        axis.set_visible(False)
    return figure, axes[:num], columns


def legend_above(figure: Figure, axes: Sequence[Axes], columns: int | None = None) -> None:
    """Draw one legend of all axes; side by side unless there is a number of columns."""
    handles = {
        label: handle
        for axis in axes
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    beside = len(handles) if columns is None else columns
    figure.legend(
        handles.values(), handles.keys(), loc="outside upper center", ncols=beside, frameon=False
    )


def mark_anchor(axis: Axes, anchors: np.ndarray | None, anchor: int, plane: Layer) -> None:
    """Draw a circle at an anchor's place, or a cross at the nearest edge for one outside.

    Nothing where anchors (L, 3) have no places. An anchor that is outside by 2 % of the picture's
    longer side, as on a wall, counts as inside.
    """
    if anchors is None:
        return
    where = anchors[anchor, list(plane.axes)]
    low, high = np.array([axis.get_xlim(), axis.get_ylim()]).T
    shown = np.clip(where, low, high)
    is_inside = np.allclose(shown, where, rtol=0, atol=0.02 * float((high - low).max()))
    marker = "o" if is_inside else "x"
    axis.plot(*shown, marker, ms=6, mfc="none", mec=GOOD_COLOR, mew=1.6, clip_on=False)


def top_limits(values: np.ndarray) -> tuple[float, float]:
    """Return limits from zero that hold all values but the largest fifth of a percent."""
    return 0.0, float(np.quantile(values, 0.998)) or 1.0


NO_FLUID = (200, 200, 200)


@dataclass(frozen=True)
class Raster:
    """Where a regular grid of Y rows and X columns lies in a triangulation, the lowest row first.

    Built once for a layer; each field then takes three products.
    """

    x: np.ndarray  # (X,) m
    y: np.ndarray  # (Y,) m
    cells: np.ndarray  # (Y, X, 3), the cells at the corners of the triangle of each grid point
    weights: np.ndarray  # (Y, X, 3), one in sum; NaN outside the fluid

    @classmethod
    def of(cls, plane: Triangles, columns: int) -> Raster:
        """Lay a grid of so many columns over a layer, its pixels about square."""
        shape = plane.triangulation
        rows = max(8, round(columns * plane.aspect))
        x = np.linspace(shape.x.min(), shape.x.max(), columns)
        y = np.linspace(shape.y.min(), shape.y.max(), rows)
        across, up = np.meshgrid(x, y)
        found = np.asarray(shape.get_trifinder()(across, up))
        corners = shape.triangles[np.maximum(found, 0)]
        # Barycentric coordinates.
        ax, bx, cx = np.moveaxis(shape.x[corners], -1, 0)
        ay, by, cy = np.moveaxis(shape.y[corners], -1, 0)
        area = (by - cy) * (ax - cx) + (cx - bx) * (ay - cy)
        area = np.where(area == 0, 1.0, area)
        first = ((by - cy) * (across - cx) + (cx - bx) * (up - cy)) / area
        second = ((cy - ay) * (across - cx) + (ax - cx) * (up - cy)) / area
        weights = np.stack([first, second, 1 - first - second], axis=-1)
        weights[found < 0] = np.nan
        return cls(x, y, plane.cell[corners], weights)

    def sample(self, field: np.ndarray) -> np.ndarray:
        """Interpolate values (N, ...) of the cells linearly: (Y, X, ...), NaN outside the fluid."""
        corners = field[self.cells]
        weights = self.weights.reshape(*self.weights.shape, *(1,) * (field.ndim - 1))
        return np.asarray((weights * corners).sum(axis=2))

    def color(
        self, field: np.ndarray, limits: tuple[float, float], cmap: str | Colormap
    ) -> np.ndarray:
        """Return a picture (Y, X, 3) of 8 bits, the highest row first; grey outside the fluid."""
        low, high = limits
        values = self.sample(field)[::-1]
        chosen = colormaps[cmap] if isinstance(cmap, str) else cmap
        pixels = chosen((values - low) / ((high - low) or 1.0), bytes=True)[..., :3]
        return np.where(np.isfinite(values)[..., None], pixels, np.array(NO_FLUID, np.uint8))
