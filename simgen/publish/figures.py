"""Draw figures of cases and of dataset versions; each is a function that returns a Figure.

Fields on a point cloud are filled triangles in 2D, the middle plane of 3D, a line in 1D. Triangles
connect cell centres and the boundary, but never across a body.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import matplotlib.tri as tri
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from simgen.design_space import Parameter, with_unit
from simgen.point_cloud import PointCloud, point_tree
from simgen.publish.colours import SIGNED, VALUES, colour_map
from simgen.quantities import StatedQuantity
from simgen.regression import Sensitivity, sobol_indices
from simgen.store.read import Dataset, StoredCase
from simgen.store.split import RATIOS, SPLITS, counts_of

#: The longest side of a triangle in a middle plane, in cells.
LONGEST_SIDE = 3.0
SLENDER = 0.15  # Height over width, below which a domain is stretched
TURN = np.radians(2)  # From which angle on a boundary has a corner
FLOWN_THROUGH = ("inlet", "outlet", "farfield")  # kinds of patches that are no edge of the fluid
ABOUT_AS_MUCH = 0.9  # of the variation, from which on a larger picture is chosen
#: Where no boundary is known, a triangle's size is compared with a point's distance to this
#: neighbour: the nearest ones may all lie in one direction, across a boundary layer.
NEIGHBOUR = 8


@dataclass(frozen=True)
class Raster:
    """A regular grid over triangles, the lowest row first."""

    x: np.ndarray  # (X,) m
    y: np.ndarray  # (Y,) m
    inside: np.ndarray  # (Y, X), whether a pixel lies in a triangle
    cells: np.ndarray  # (P, 3), the cells of its corners
    weights: np.ndarray  # (P, 3)

    def image(self, values: np.ndarray) -> np.ndarray:
        """Return values (N,) of the cells, linear between the corners: (Y, X), NaN outside."""
        found = np.full(self.inside.shape, np.nan)
        found[self.inside] = (values[self.cells] * self.weights).sum(axis=1)
        return found


@dataclass(frozen=True)
class Triangles:
    """A triangulation of a case's cell centres and boundary faces."""

    triangulation: tri.Triangulation
    cell: np.ndarray  # The cell from which each corner takes its value
    axes: tuple[int, int] = (0, 1)  # The coordinates that run across and up
    position: float = 0.0  # Position of the plane on the third axis, in m
    window: np.ndarray | None = None
    """(2, 2) m, low and high corner of what is shown of an external flow; None: all of it"""

    @property
    def plane(self) -> str:
        """Format as `y = 0.025 m`."""
        # + 0.0 removes the sign of a negative zero.
        return f"{'xyz'[3 - sum(self.axes)]} = {round(self.position, 9) + 0.0:.3g} m"

    @property
    def whole(self) -> np.ndarray:
        """(2, 2) m, low and high corner of all of it"""
        corners = np.stack([self.triangulation.x, self.triangulation.y], axis=1)
        return np.array([corners.min(axis=0), corners.max(axis=0)])

    @property
    def box(self) -> np.ndarray:
        """(2, 2) m, low and high corner of what is shown"""
        return self.whole if self.window is None else self.window

    @property
    def stretch(self) -> float:
        """By how much a picture of a slender domain is stretched upward; 1 for others"""
        width, height = self.box[1] - self.box[0]
        return max(1.0, SLENDER * float(width / height))

    @property
    def aspect(self) -> float:
        """Height over width of the picture"""
        width, height = self.box[1] - self.box[0]
        return float(height / width) * self.stretch

    @property
    def drawn(self) -> np.ndarray:
        """The numbers of the cells that are shown"""
        (left, low), (right, high) = self.box
        x, y = self.triangulation.x, self.triangulation.y
        return np.unique(self.cell[(x >= left) & (x <= right) & (y >= low) & (y <= high)])

    @cached_property
    def pixels(self) -> Raster | None:
        """The places of a map; None for triangles that overlap, as in a grid around a body."""
        try:
            return self.raster(min(1200, int(np.sqrt(PIXELS / self.aspect))))
        except RuntimeError:  # matplotlib's
            return None

    def raster(self, columns: int) -> Raster:
        """Lay a grid of so many columns over what is shown, its pixels about square."""
        (left, low), (right, high) = self.box
        ways = (left, right, columns), (low, high, max(8, round(columns * self.aspect)))
        x, y = (a + (b - a) * (np.arange(n) + 0.5) / n for a, b, n in ways)
        places, shape = np.stack(np.meshgrid(x, y), axis=-1), self.triangulation
        found = np.asarray(shape.get_trifinder()(places[..., 0], places[..., 1]))
        inside = found >= 0
        corners = shape.triangles[found[inside]]
        first, *others = np.stack([shape.x, shape.y], axis=1)[corners].transpose(1, 2, 0)
        (a, b), (c, d), (u, v) = (each - first for each in (*others, places[inside].T))
        second, third = (u * d - v * c) / (a * d - b * c), (a * v - b * u) / (a * d - b * c)
        weights = np.stack([1 - second - third, second, third], axis=1)
        return Raster(x, y, inside, self.cell[corners], weights)


@dataclass(frozen=True)
class Line:
    """The points of a 1D case, or of one that spans no area, from left to right."""

    x: np.ndarray  # (N,) m along the first of the axes, in order
    cell: np.ndarray  # (N,), the index of each point in the case
    axes: tuple[int, int] = (0, 1)
    aspect: float = 0.6  # Height over width of the picture
    stretch: float = 1.0

    @property
    def drawn(self) -> np.ndarray:
        """The numbers of the cells that are shown"""
        return self.cell


Layer = Triangles | Line


def layer(case: StoredCase) -> Layer:
    """Choose what is drawn of a stored case; of a transient one by its last snapshot."""
    schema, cloud = case.dataset.schema, case.cloud({})
    cloud = replace(cloud, grid_shape=case.grid_shape, mesh=case.mesh)
    fields = [last_state(case, each.name) for each in schema.fields if schema.dimension == 3]
    return layer_of_cloud(cloud, schema.dimension, fields)


def last_state(case: StoredCase, field: str) -> np.ndarray:
    """Return a field (N, c) of a steady case, or at the last snapshot."""
    return np.asarray(case[field][-1] if case.dataset.schema.transient else case[field])


def layer_of_cloud(
    cloud: PointCloud, dimension: int, fields: Sequence[np.ndarray] = (), axis: int | None = None
) -> Layer:
    """Choose what is drawn: a 1D or 2D cloud, a 3D one's middle plane; a line without area.

    The plane lies across `axis` if given, else it is that in which the fields (N, c) vary most.
    """
    points = cloud.points.astype(float)
    try:
        if dimension == 3:
            return middle_plane(cloud, fields, axis)
        if dimension == 2 and cloud.grid_shape is not None:
            return grid_triangles(points, cloud.grid_shape)
        if dimension == 2:
            return triangulate(cloud)
    except (ValueError, RuntimeError):  # matplotlib's: fewer than three corners, or all in line
        pass
    # Along the axis on which they reach furthest.
    axis = int(np.argmax(np.ptp(points, axis=0)))
    order = np.argsort(points[:, axis], kind="stable")
    return Line(points[order, axis], order, (axis, (axis + 1) % 3))


def crossings(cloud: PointCloud, axis: int, position: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the lines (S, 2, 3) m in which the boundary crosses a plane, and their faces (S,).

    Of a flat case the plane is in the middle of its mesh, which is one cell thick, around the
    points or beside them. Nothing is returned of a case without a mesh.
    """
    if cloud.mesh is None or cloud.boundary is None:
        return np.zeros((0, 2, 3)), np.zeros(0, np.int64)
    if np.ptp(cloud.points[:, axis]) == 0:
        places = cloud.mesh.points[:, axis]
        position = float(places.min() + places.max()) / 2
    return cloud.mesh.cut(cloud.num_points, len(cloud.boundary.points), axis, position)


def _rim(cloud: PointCloud, axis: int, position: float) -> tuple[np.ndarray, np.ndarray | None]:
    """Return (E, 3) m, corners on these lines, each once, and the window around a body.

    They are the lines' middles, and the ends at which the boundary turns or stops. A middle is at
    the height of its cell, so that long thin cells beside it make no triangles across others.
    """
    lines, faces = crossings(cloud, axis, position)
    ends, step = lines.reshape(-1, 3), 1e-6 * float(np.ptp(cloud.points, axis=0).max())
    kinds = np.array(cloud.patch_kinds)[cloud.boundary.patch[faces]] if cloud.boundary else faces
    window = body_window(np.delete(lines, axis, axis=2), kinds, step) if len(lines) else None
    along = lines[:, 1] - lines[:, 0]
    along /= np.maximum(np.linalg.norm(along, axis=1, keepdims=True), 1e-300)
    _, first, number = np.unique(
        np.round(ends / step), axis=0, return_index=True, return_inverse=True
    )
    away = np.zeros((len(first), 3))  # Where a line goes straight on, its sides' directions cancel
    np.add.at(away, number.ravel(), np.stack([along, -along], axis=1).reshape(-1, 3))
    turns = np.linalg.norm(away, axis=1) > 2 * np.sin(TURN / 2)
    corners = np.concatenate([lines.mean(axis=1), ends[first[turns]]])
    return corners[np.unique(np.round(corners / step), axis=0, return_index=True)[1]], window


def body_window(lines: np.ndarray, kinds: np.ndarray, step: float) -> np.ndarray | None:
    """Return low and high corner (2, 2) m of a window around the bodies in an external flow.

    Bodies are those of the boundary's lines (S, 2, 2) m, of patch kinds (S,), that hang together,
    by ends closer than a step, and nowhere reach the edge of the domain. The window is wider than
    they are by their length on either side, and by more around bluff ones. None without a body,
    between walls on opposite sides, as in a channel, and where it would show half of the domain.
    """
    low, high = lines.min(axis=(0, 1)), lines.max(axis=(0, 1))
    numbers = np.arange(2 * len(lines)).reshape(-1, 2)
    near = point_tree(lines.reshape(-1, 2)).query_pairs(step, output_type="ndarray")
    joined = np.concatenate([numbers, near])
    graph = coo_array((np.ones(len(joined)), joined.T), shape=2 * (numbers.size,))
    part = connected_components(graph, directed=False)[1][::2]
    at_ends = [np.abs(lines - end).max(axis=1) <= step for end in (low, high)]  # (S, 2) each
    touches = np.abs(lines[..., None] - np.stack([low, high], axis=1)).min(axis=(1, 2, 3)) <= step
    inside = ~np.isin(part, part[touches]) & ~np.isin(kinds, FLOWN_THROUGH)
    is_wall = ~np.isin(kinds, (*FLOWN_THROUGH, "open", "symmetry"))
    between = np.all([of[is_wall].any(axis=0) for of in at_ends], axis=0)
    if between.any() or not inside.any():
        return None
    bodies = lines[inside].reshape(-1, 2)
    first, last = bodies.min(axis=0), bodies.max(axis=0)
    size = last - first
    margin = max(2.5 * np.sqrt(size.prod()), size.max())
    window = np.array([np.maximum(first - margin, low), np.minimum(last + margin, high)])
    return window if np.ptp(window, axis=0).prod() < 0.5 * (high - low).prod() else None


def _is_outside(cloud: PointCloud, centroids: np.ndarray) -> np.ndarray:
    """Return which places (T, k) lie beyond the nearest boundary face, along its outward normal.

    Baffles, which have a face on either side at one place, bound nothing.
    """
    assert cloud.boundary is not None
    both, number = (cloud.boundary.points, cloud.boundary.normals), centroids.shape[1]
    faces, normals = (of[:, :number].astype(float) for of in both)
    if len(faces) > 1:
        beside, _ = point_tree(faces).query(faces, 2)
        single = beside[:, 1] > 1e-6 * np.ptp(faces, axis=0).max()
        faces, normals = faces[single], normals[single]
    if not len(faces):
        return np.zeros(len(centroids), dtype=bool)
    _, nearest = point_tree(faces).query(centroids)
    return np.asarray(np.einsum("ij,ij->i", centroids - faces[nearest], normals[nearest]) > 0)


def grid_triangles(points: np.ndarray, shape: tuple[int, ...]) -> Triangles:
    """Split each cell of a regular grid of points (N, 3), last axis fastest, into two triangles."""
    number = np.arange(len(points)).reshape(shape)
    low, right, up, far = number[:-1, :-1], number[1:, :-1], number[:-1, 1:], number[1:, 1:]
    triangles = np.stack([low, right, far, low, far, up], axis=-1).reshape(-1, 3)
    return Triangles(tri.Triangulation(points[:, 0], points[:, 1], triangles), number.ravel())


def open_triangles(points: np.ndarray) -> Triangles:
    """Triangulate points (N, 3) in the plane; triangles much larger than their spacing are out."""
    plane = points[:, :2]
    triangulation = tri.Triangulation(plane[:, 0], plane[:, 1])
    _mask_long(triangulation, plane, _spacing(plane))
    return Triangles(triangulation, np.arange(len(points)))


def _mask_long(triangulation: tri.Triangulation, points: np.ndarray, sizes: np.ndarray) -> bool:
    """Mask triangles with sides beyond their corners' sizes (N,); return if half or more stay."""
    corners = points[triangulation.triangles]
    longest = np.linalg.norm(corners - np.roll(corners, 1, axis=1), axis=-1).max(axis=1)
    mask = longest > LONGEST_SIDE * sizes[triangulation.triangles].max(axis=1)
    triangulation.set_mask(mask)
    return bool(mask.mean() <= 0.5)


def _spacing(points: np.ndarray, neighbour: int = NEIGHBOUR) -> np.ndarray:
    """Return (N,), the distance of each point (N, 2 or 3) to its n-th neighbour."""
    near, _ = point_tree(points).query(points, k=min(neighbour + 1, len(points)))
    return np.asarray(near[:, -1])


def triangulate(cloud: PointCloud) -> Triangles:
    """Triangulate by Delaunay, and mask triangles outside the domain.

    The boundary's middles and turns, or its faces' centres without a mesh, are corners too, with
    their nearest cell's value.
    """
    cells, boundary = cloud.points[:, :2].astype(float), cloud.boundary
    if boundary is None:
        return open_triangles(cloud.points.astype(float))
    rim, window = _rim(cloud, 2, 0.0)
    edges = rim[:, :2] if len(rim) else boundary.points[:, :2].astype(float)
    points = np.concatenate([cells, edges])
    triangulation = tri.Triangulation(points[:, 0], points[:, 1])
    centroids = points[triangulation.triangles].mean(axis=1)
    triangulation.set_mask(_is_outside(cloud, centroids))
    cell = np.concatenate([np.arange(len(cells)), point_tree(cells).query(edges)[1]])
    return Triangles(triangulation, cell, window=window)


def middle_plane(
    cloud: PointCloud, fields: Sequence[np.ndarray] = (), axis: int | None = None
) -> Triangles:
    """Return the layer of cells around the middle plane in which fields (N, c) vary most.

    Of planes with about as much of the whole variation it is that across the thinnest axis, and of
    two such axes across the later: the largest picture, and rather one of x and y.
    """
    points = cloud.points.astype(float)
    middle, extents = np.sort(points, axis=0)[len(points) // 2], np.ptp(points, axis=0)
    seen = np.abs(points - middle) <= 0.5 * _cell_sizes(cloud)[:, None] + 1e-9
    shares = np.zeros(3)
    for of in fields:
        whole = float(of.var(axis=0).sum()) or 1.0
        parts = [of[each].var(axis=0).sum() if each.any() else 0.0 for each in seen.T]
        shares += np.minimum(1.0, np.array(parts) / whole)
    if axis is None:
        varied = np.flatnonzero(shares >= ABOUT_AS_MUCH * shares.max()).tolist()
        axis = min(varied, key=lambda of: (round(extents[of] / (extents.max() or 1.0), 3), -of))
    return section(cloud, axis, float(middle[axis]))


def _cell_sizes(cloud: PointCloud) -> np.ndarray:
    """Return (N,) m: the width of the cells, or the distance to the nearest point."""
    if cloud.volumes is not None:
        return np.asarray(np.cbrt(cloud.volumes.astype(float)))
    return _spacing(cloud.points.astype(float), 1)


def section(cloud: PointCloud, axis: int, position: float) -> Triangles:
    """Return the layer of cells around a plane across an axis, and of the boundary.

    A cell belongs to it within half its size of the centre next to the plane: between layers of
    cells that are higher than wide the plane itself misses some. Triangles with a side of more than
    three cells reach across a body or out of the domain, and are masked. Where that would be most
    of them, cells are stretched: then their spacing in the plane counts. ValueError for a plane
    with fewer than three cells, or outside of the domain.
    """
    points, sizes = cloud.points.astype(float), _cell_sizes(cloud)
    across, up = (each for each in range(3) if each != axis)
    places, half = points[:, axis], 0.5 * sizes + 1e-9
    nearest = float(places[np.abs(places - position).argmin()])
    cell = np.flatnonzero(np.abs(places - nearest) <= half)
    beyond = max(places.min() - position, position - places.max())
    if len(cell) < 3 or beyond > half.max():
        raise ValueError(f"no cells around {'xyz'[axis]} = {position:g} m")
    corners, num_inside = points[cell], len(cell)
    rim, window = _rim(cloud, axis, nearest)
    if len(rim):
        corners = np.concatenate([corners, rim])
        cell = np.concatenate([cell, cell[point_tree(points[cell]).query(rim)[1]]])
    triangulation = tri.Triangulation(corners[:, across], corners[:, up])
    if not _mask_long(triangulation, corners, sizes[cell]):
        plane = corners[:, [across, up]]
        if not _mask_long(triangulation, plane, _spacing(plane)):
            triangulation.set_mask(None)
    if len(rim):
        outside = _is_outside(cloud, corners[triangulation.triangles].mean(axis=1))
        outside &= (triangulation.triangles >= num_inside).all(axis=1)
        mask = triangulation.mask
        triangulation.set_mask(outside if mask is None else mask | outside)
    return Triangles(triangulation, cell, (across, up), position, window)


def draw_field(
    axes: Axes,
    triangles: Layer,
    values: np.ndarray,
    *,
    limits: tuple[float, float],
    cmap: str | Colormap,
) -> ScalarMappable | None:
    """Fill the triangles with values (N,), and return the artist; or draw the line."""
    if isinstance(triangles, Line):
        axes.plot(triangles.x, values[triangles.cell], lw=1.2, color="#0b5fa5")
        axes.set(ylim=_with_margin(*limits), xlabel=f"{'xyz'[triangles.axes[0]]} (m)")
        axes.grid(alpha=0.25)
        return None
    shape, low, high = triangles.triangulation, *limits
    across, up = triangles.box.T
    style: dict[str, Any] = {"cmap": cmap, "vmin": low, "vmax": high}
    artist: ScalarMappable
    if triangles.pixels is None:
        style |= {"shading": "gouraud", "rasterized": True}
        artist = axes.tripcolor(shape, values[triangles.cell], **style)
    else:  # Agg widens each triangle by half a pixel, which makes combs of long thin ones
        style |= {"origin": "lower", "extent": (*across, *up)}
        artist = axes.imshow(triangles.pixels.image(values), **style)
    axes.set(aspect=triangles.stretch, xlim=across, ylim=up, xticks=[], yticks=[])
    if triangles.stretch > 1:
        axes.set_ylabel(f"{'xyz'[triangles.axes[1]]} × {triangles.stretch:.2g}", fontsize=8)
    return artist


def symmetric(values: np.ndarray) -> tuple[float, float]:
    """Return limits around zero that hold all values but the outermost half percent."""
    bound = float(np.quantile(np.abs(values), 0.995)) or 1.0
    return -bound, bound


def spanning(values: np.ndarray) -> tuple[float, float]:
    """Return limits that hold all values but the outermost half percent at either end.

    What varies by less than a ten-thousandth is constant but for rounding, and fills no scale.
    """
    low, high = map(float, np.quantile(values, (0.005, 0.995)))
    least = 1e-4 * max(-low, high)
    return (low, high) if high - low > least else (low - (least or 1.0), high + (least or 1.0))


DPI, PIXELS = 110, 500_000  # of a figure, and of a map at most


def png_bytes(figure: Figure, dpi: float = DPI) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    return buffer.getvalue()


# A dataset version.

SPLIT_COLORS = dict(zip(SPLITS, ("#0b5fa5", "#d9822b", "#b3261e", "#6a4c93"), strict=True))
MAX_PAIRS = 6
COLUMNS = 3
MAX_HISTOGRAM_CASES, HISTOGRAM_SNAPSHOTS = 12, 8


def axes_grid(
    num: int, most_columns: int, width: float, height: float, share_y: bool = False
) -> tuple[Figure, list[Axes]]:
    """Return a figure and its `num` axes, each of a size in inches."""
    columns = min(most_columns, num)
    rows = -(-num // columns)
    size = max(5.0, width * columns), height * rows + 0.4
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharey=share_y).ravel().tolist()
    for axis in axes[num:]:
        axis.set_visible(False)
    return figure, axes[:num]


def designs(dataset: Dataset) -> Figure:
    """Draw every design in the planes of its parameters, or along a single one, by split.

    Crosses mark designs that were not accepted.
    """
    table, parameters = dataset.design, dataset.schema.parameters
    pairs: Sequence[tuple[Parameter, ...]] = list(combinations(parameters, 2))[:MAX_PAIRS]
    pairs = pairs or [(parameter,) for parameter in parameters]
    figure, axes = axes_grid(len(pairs), COLUMNS, 3.6 if len(pairs) > 1 else 7.0, 3.0)
    groups = {
        split: (table[table["split"] == split], color, "o") for split, color in SPLIT_COLORS.items()
    }
    groups["not accepted"] = (table[table["status"] != "accepted"], "k", "x")
    shown = {name: group for name, group in groups.items() if len(group[0]) or name in RATIOS}
    for axis, (across, *up) in zip(axes, pairs, strict=False):
        for height, (name, (cases, color, marker)) in enumerate(shown.items()):
            values = cases[up[0].name] if up else [height] * len(cases)
            label = f"{name} ({len(cases)})"
            axis.scatter(cases[across.name], values, s=24, color=color, marker=marker, label=label)
        limits = _with_margin(across.low, across.high)
        axis.set(xlabel=with_unit(_plain(across.name), across.unit), xlim=limits)
        for each in up:
            axis.set(
                ylabel=with_unit(_plain(each.name), each.unit),
                ylim=_with_margin(each.low, each.high),
            )
        if not up:
            axis.set_yticks(range(len(shown)), list(shown))
            axis.invert_yaxis()
        axis.grid(alpha=0.25)
    handles = axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper center", ncols=5, frameon=False, fontsize=9)
    return figure


def _plain(name: str) -> str:
    return name.replace("_", " ")


def _with_margin(low: float, high: float) -> tuple[float, float]:
    margin = 0.05 * (high - low)
    return low - margin, high + margin


def sample_cases(cases: Sequence[StoredCase], field: str) -> Figure:
    """Draw a field, or its magnitude, at the last snapshot of each case, all on one scale."""
    schema = cases[0].dataset.schema
    of = next(candidate for candidate in schema.fields if candidate.name == field)
    is_scalar = len(of.components) == 1
    layers = [layer(case) for case in cases]
    height = float(np.clip(3.6 * max(each.aspect for each in layers) + 0.3, 1.0, 4.0))
    figure, axes = axes_grid(len(cases), COLUMNS, 12 / min(COLUMNS, len(cases)), height)
    last = [last_state(case, field) for case in cases]
    shown = [each[:, 0] if is_scalar else np.linalg.norm(each, axis=-1) for each in last]
    low, high = zip(*map(spanning, shown), strict=True)
    limits, colours = (min(low) if is_scalar else 0.0, max(high)), colormaps[VALUES]
    if is_scalar:
        colours = colour_map(*cases[0].dataset.usual_ends[field][:, 0])
    if colours is SIGNED:
        limits = (-max(map(abs, limits)), max(map(abs, limits)))
    # Frames of one size, at one scale.
    boxes = [each.box for each in layers if isinstance(each, Triangles)]
    size = np.max([box[1] - box[0] for box in boxes], axis=0) if boxes else np.zeros(2)
    stretch = max(1.0, SLENDER * float(size[0] / (size[1] or 1.0)))
    for axis, case, triangles, values in zip(axes, cases, layers, shown, strict=False):
        artist = draw_field(axis, triangles, values, limits=limits, cmap=colours)
        if isinstance(triangles, Triangles):
            middle = triangles.box.mean(axis=0)
            across, up = np.stack([middle - size / 2, middle + size / 2], axis=1)
            axis.set(xlim=across, ylim=up, aspect=stretch)
        title = [case.id, case.split or ""]
        for each in schema.parameters[:1]:
            title.append(each.stated(case.parameters[each.name]))
        axis.set_title("  ".join(title), fontsize=8, loc="left")
    label = with_unit(_plain(field) if is_scalar else f"|{_plain(field)}|", of.unit)
    if artist is None:  # a line has its own axis
        figure.supylabel(label, fontsize=9)
    else:
        figure.colorbar(artist, ax=axes, label=label, shrink=0.8, pad=0.01)
    return figure


def distributions(dataset: Dataset) -> Figure:
    """Draw histograms of every field's components over snapshots of some training cases."""
    cases = [dataset[case] for case in dataset.cases("train")[:MAX_HISTOGRAM_CASES]]
    fields = dataset.schema.fields
    figure, axes = axes_grid(sum(len(each.components) for each in fields), COLUMNS, 3.6, 2.7)
    remaining = iter(axes)
    for field in fields:
        blocks = []
        for array in (case[field.name] for case in cases):
            steps = np.unique(np.linspace(0, array.shape[0] - 1, HISTOGRAM_SNAPSHOTS).astype(int))
            transient = dataset.schema.transient
            blocks += [np.asarray(array[n]) for n in steps] if transient else [np.asarray(array)]
        values, statistics = np.concatenate(blocks), dataset.statistics[field.name]
        for number, component in enumerate(field.components):
            axis, of = next(remaining), values[:, number]
            mean, std = statistics["mean"][number], statistics["std"][number]
            axis.hist(
                of, 100, range=spanning(of), density=True, color=SPLIT_COLORS["train"], alpha=0.85
            )
            axis.axvline(mean, color="k", lw=1)
            axis.axvspan(mean - std, mean + std, color="k", alpha=0.08, lw=0)
            name = f"{field.name} {component}" if len(field.components) > 1 else field.name
            axis.set(xlabel=with_unit(name, field.unit), yticks=[])
    axes[0].set_ylabel("density of values")
    return figure


def histograms(dataset: Dataset) -> Figure:
    """Draw how each quantity is distributed over the accepted cases, stacked by split."""
    shown, table = shown_quantities(dataset), dataset.design
    colors = {split: SPLIT_COLORS[split] for split in counts_of(dataset.cases)}
    figure, axes = axes_grid(len(shown), COLUMNS, 3.6, 2.7)
    for axis, quantity in zip(axes, shown, strict=False):
        known = table[np.isfinite(table[quantity.name].astype(float))]
        values = [known[quantity.name][known["split"] == split] for split in colors]
        axis.hist(values, bins=20, stacked=True, color=[*colors.values()])
        axis.set(xlabel=with_unit(_plain(quantity.name), quantity.unit))
    for axis in axes[::COLUMNS]:
        axis.set_ylabel("cases")
    handles = [Patch(color=color) for color in colors.values()]
    figure.legend(handles, [*colors], loc="outside upper center", ncols=4, frameon=False)
    return figure


def shown_quantities(dataset: Dataset) -> tuple[StatedQuantity, ...]:
    """Return the stated quantities that some case has."""
    table = dataset.design
    return tuple(each for each in dataset.schema.quantities if table[each.name].notna().any())


def sensitivities(dataset: Dataset) -> dict[str, Sensitivity]:
    """Return the Sobol indices of quantities from the solved designs, as far as there are any."""
    table, parameters = dataset.design.loc[dataset.cases()], dataset.schema.parameters
    designs: Any = table[[each.name for each in parameters]].to_dict("records")
    names = [each.name for each in shown_quantities(dataset)]
    found = {n: sobol_indices(parameters, designs, table[n].to_numpy(float)) for n in names}
    return {name: of for name, of in found.items() if of is not None}
