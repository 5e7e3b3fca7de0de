"""Generate three public benchmarks: the same equations and parameters, solved here.

Darcy: flow through rock of two permeabilities, on the unit square. -div(a grad u) = 1 with u = 0 on
the edges; a is 12 where a Gaussian random field is positive and 3 elsewhere. The field has the
covariance (-Laplacian + 9)^-2 with zero normal derivative on the edges (Li et al., Fourier Neural
Operator, 2021). Solved on 421 x 421 points by the five-point scheme; every fifth point is kept, as
is usual. What differs from the published files: the random field is evaluated at the grid's own
points, where theirs is interpolated to them, and other seeds draw it.

Diffusion-sorption: a contaminant that soaks into soil (Takamoto et al., PDEBench, 2022).
u_t = D / R(u) u_xx on 0 < x < 1 m, 0 < t <= 500 s; u = 1 at x = 0, u = -D u_x at x = 1, and at
first u is the same everywhere, between 0 and 0.2; R(u) is Freundlich's retardation. Finite volumes
in space, implicit steps of variable order (LSODA, banded). The initial values of case n are the
published ones. What differs: boundary values hold on the outermost faces, where theirs hold half a
cell further out. That moves u by 0.2 % of its norm, and makes the scheme second-order at the edges.

Elasticity: stress around a random void in a stretched rubber square (Li et al., Geo-FNO, 2023). The
void has the radius r(angle) = 0.2 + 0.2 / (1 + exp(r')) about the middle, r' a Gaussian field on
the circle of covariance 4^2 (-d2/dangle2 + 3^2)^-1. The unit square is clamped at the bottom and
drawn up at the top by 100 N/m2; the material is incompressible (Rivlin-Saunders, C1 = 1.863e5,
C2 = 9.79e3 N/m2) in plane stress. Quadratic finite elements on rings of cells around the void; the
points are corners of cells, 36 around and 27 across, of a mesh twice as fine. The stress is von
Mises' of the Cauchy stress. What differs: the places of their points come from another mesher, the
field has ten waves here, which the mesh resolves, and other seeds draw it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sparse
from scipy.integrate import solve_ivp
from scipy.sparse.linalg import splu
from skfem import (
    Basis,
    BilinearForm,
    ElementQuad1,
    ElementQuad2,
    ElementVector,
    FacetBasis,
    LinearForm,
    MeshQuad,
    condense,
    solve,
)

from simgen.case import Field
from simgen.errors import CaseError, InputError
from simgen.imports import importing
from simgen.imports.importing import SourceCase, UnreadCase, grid_points
from simgen.store.schema import Schema, Source

VALIDATION_FROM = 100_000
"""The number of the first validation case: no published case has one as high"""


class Grid:
    """How finely a benchmark's cases are solved and stored; a frozen dataclass."""

    name: ClassVar[str]
    """The dataset's"""
    case_name: ClassVar[str]
    paper: ClassVar[str]
    solver: ClassVar[str]
    revision: ClassVar[int] = 1
    """Changes with what is solved"""
    fields: ClassVar[tuple[Field, ...]]
    num_train: ClassVar[int] = 1000
    """Of the published files, as `num_test`"""
    num_test: ClassVar[int] = 200
    test_from: ClassVar[int] = 50_000
    """The number of the first test case: training cases, however many, stay below it"""

    def form(self) -> tuple[str, dict[str, Any]]:
        """Describe the source; return it and what else the schema has."""
        raise NotImplementedError

    def solve(self, number: int) -> tuple[np.ndarray, Mapping[str, np.ndarray], np.ndarray | None]:
        """Return points, fields and times of case `number`."""
        raise NotImplementedError

    def schema(self) -> Schema:
        text, more = self.form()
        source = Source(text, self.paper, "as this dataset")
        return importing.imported_schema(self.name, fields=self.fields, source=source, **more)

    def case(self, number: int, split: str) -> SourceCase:
        provenance = {"solver": self.solver, "solver_version": str(self.revision)}
        name = self.case_name.format(number)
        return SourceCase(name, *self.solve(number), split=split, provenance=provenance)


def get_grid(name: str) -> Grid:
    """Return the published grid of the benchmark called `name`; InputError lists the known ones."""
    if name not in GRIDS:
        raise InputError(f"benchmark '{name}' is unknown; choose one of {', '.join(GRIDS)}")
    return GRIDS[name]


def generate_benchmark(
    name: str,
    url: str,
    num_train: int,
    num_test: int,
    *,
    num_validation: int = 0,
    grid: Grid | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> importing.Imported:
    """Solve the cases that the dataset at `url` lacks, and publish them as a version.

    Run it again after an interruption, or with larger numbers. Validation cases, which the
    published benchmarks do not have, are further ones.
    """
    of = grid or get_grid(name)
    most_test = VALIDATION_FROM - of.test_from
    if not (1 <= num_train <= of.test_from and 0 <= num_test <= most_test and num_validation >= 0):
        raise InputError(
            f"{num_train} training, {num_validation} validation and {num_test} test cases: expected"
            f" 1 to {of.test_from}, 0 or more, and 0 to {most_test}"
        )
    files = f"revision {of.revision}, {of}"
    cases = [
        UnreadCase(of.case_name.format(number), files, partial(of.case, number, split))
        for split, first, size in (
            ("train", 0, num_train),
            ("validation", VALIDATION_FROM, num_validation),
            ("test", of.test_from, num_test),
        )
        for number in range(first, first + size)
    ]
    return importing.import_cases(
        url,
        of.schema(),
        cases,
        message=f"{name}: {num_train} training, {num_validation} validation and {num_test} test"
        " cases, generated",
        on_progress=lambda done, _: on_progress(done, len(cases)),
    )


# Darcy

HIGH, LOW = 12.0, 3.0
TAU, ALPHA = 3.0, 2.0
#: Waves of the random field along each axis; the amplitude of the last is 1e-5 of the first's.
ROCK_MODES = 256


@dataclass(frozen=True)
class DarcyGrid(Grid):
    """So many points along each axis, of which every n-th is kept."""

    size: int = 421
    every: int = 5
    name = "darcy-flow"
    case_name = "darcy-{:05d}"
    paper = "https://arxiv.org/abs/2010.08895"
    solver = "five-point scheme"
    fields = (Field("permeability", "1", ("a",), role="given"), Field("pressure", "1", ("u",)))

    @property
    def axis(self) -> np.ndarray:
        return np.linspace(0.0, 1.0, self.size)[:: self.every]

    def form(self) -> tuple[str, dict[str, Any]]:
        source = f"Darcy flow, generated ({self.size} points, every {self.every}th)"
        return source, {"dimension": 2, "grid_shape": (len(self.axis), len(self.axis))}

    def solve(self, number: int) -> tuple[np.ndarray, Mapping[str, np.ndarray], None]:
        a, kept = permeability(number, self.size), (slice(None, None, self.every),) * 2
        fields = {"permeability": a[kept], "pressure": pressure(a)[kept]}
        return grid_points(self.axis, self.axis), fields, None


def permeability(number: int, size: int) -> np.ndarray:
    """Return a (size, size) on the grid's points; the same field whatever the size."""
    waves = np.arange(ROCK_MODES)
    square = np.pi**2 * (waves[:, None] ** 2 + waves[None, :] ** 2) + TAU**2
    amplitude = np.random.default_rng(number).normal(size=square.shape) * square ** (-ALPHA / 2)
    # Of unit length on the square: 1 for the mean, sqrt(2) cos(pi k x) for each wave.
    length = np.where(waves > 0, np.sqrt(2), 1)
    amplitude *= length[:, None] * length
    amplitude[0, 0] = 0.0
    basis = np.cos(np.pi * np.linspace(0.0, 1.0, size)[:, None] * waves)
    return np.where(basis @ amplitude @ basis.T >= 0, HIGH, LOW)


def pressure(a: np.ndarray, source: np.ndarray | float = 1.0) -> np.ndarray:
    """Return u of -div(a grad u) = source by the five-point scheme, a averaged between points."""
    size = len(a)
    inner = size - 2
    across = [0.5 * (a[1:, 1:-1] + a[:-1, 1:-1]), 0.5 * (a[1:-1, 1:] + a[1:-1, :-1])]
    number = np.arange(inner * inner).reshape(inner, inner)
    diagonal = across[0][1:] + across[0][:-1] + across[1][:, 1:] + across[1][:, :-1]
    pairs = [
        (number[1:], number[:-1], across[0][1:-1]),
        (number[:, 1:], number[:, :-1], across[1][:, 1:-1]),
    ]
    rows = [number, *(part for one, other, _ in pairs for part in (one, other))]
    columns = [number, *(part for one, other, _ in pairs for part in (other, one))]
    values = [diagonal, *(-weight for _, _, weight in pairs for _ in range(2))]
    entries = [np.concatenate([each.ravel() for each in of]) for of in (values, rows, columns)]
    matrix = sparse.csc_matrix((entries[0], (entries[1], entries[2])))
    right = np.broadcast_to(source, a.shape)[1:-1, 1:-1].ravel() / (size - 1) ** 2
    return np.pad(symmetric(matrix).solve(right).reshape(inner, inner), 1)


def symmetric(matrix: Any) -> Any:
    """Factorise a matrix with its unknowns in an order for symmetric ones: 3.6 times as fast."""
    return splu(matrix.tocsc(), permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True})


# Diffusion-sorption

DIFFUSION = 5e-4
POROSITY, DENSITY, FREUNDLICH, EXPONENT = 0.29, 2880.0, 3.5e-4, 0.874
SOLUBILITY, MOST_AT_FIRST = 1.0, 0.2
#: Keeps the retardation finite where there is nothing.
SMALL = 1e-6
END_S = 500.0
RELATIVE, ABSOLUTE = 1e-6, 1e-9


@dataclass(frozen=True)
class SorptionGrid(Grid):
    cells: int = 1024
    times: int = 101
    name = "diffusion-sorption"
    case_name = "sorption-{:05d}"
    paper = "https://arxiv.org/abs/2210.07182"
    solver = "finite volumes, LSODA"
    fields = (Field("concentration", "1", ("u",)),)
    num_train, num_test, test_from = 9000, 1000, 9000

    def form(self) -> tuple[str, dict[str, Any]]:
        source = f"PDEBench diffusion-sorption, generated ({self.cells} cells)"
        return source, {"dimension": 1, "transient": True, "grid_shape": (self.cells,)}

    def solve(self, number: int) -> tuple[np.ndarray, Mapping[str, np.ndarray], np.ndarray]:
        fields = {"concentration": concentration(first_value(number), self)}
        points = (np.arange(self.cells) + 0.5) / self.cells
        return points, fields, np.linspace(0.0, END_S, self.times)


def first_value(number: int) -> float:
    """Return the initial value that PDEBench draws with this seed."""
    return float(np.random.RandomState(number).uniform(0, MOST_AT_FIRST))


def concentration(first: float, grid: SorptionGrid) -> np.ndarray:
    """Return u (times, cells); CaseError where the integration fails."""
    width = 1.0 / grid.cells

    def change(_: float, u: np.ndarray) -> np.ndarray:
        """Return u_t from the fluxes through the cells' faces."""
        half = 0.5 * width
        # On the last face: u_face = -D (u_face - u) / half.
        last = u[-1] * DIFFUSION / (half + DIFFUSION)
        slope = np.concatenate(
            [[(u[0] - SOLUBILITY) / half], np.diff(u) / width, [(last - u[-1]) / half]]
        )
        sorbed = (1 - POROSITY) / POROSITY * DENSITY * FREUNDLICH * EXPONENT
        retardation = 1 + sorbed * (np.maximum(u, 0.0) + SMALL) ** (EXPONENT - 1)
        return DIFFUSION / retardation * np.diff(slope) / width

    solved = solve_ivp(
        change,
        (0.0, END_S),
        np.full(grid.cells, first),
        method="LSODA",
        t_eval=np.linspace(0.0, END_S, grid.times),
        rtol=RELATIVE,
        atol=ABSOLUTE,
        lband=1,
        uband=1,
    )
    if not solved.success:
        raise CaseError(f"diffusion-sorption from {first:g}: {solved.message}")
    return np.asarray(solved.y.T)


# Elasticity

C1, C2 = 1.863e5, 9.79e3
TRACTION = 100.0
LEAST_RADIUS, MORE_RADIUS = 0.2, 0.2
DEVIATION, INVERSE_LENGTH, VOID_MODES = 4.0, 3.0, 10
#: Cells are narrower at the void, where the stress changes fastest.
GRADING = 1.5
MOST_STEPS, TOLERANCE = 20, 1e-9


@dataclass(frozen=True)
class CellGrid(Grid):
    """The points' cells around the void and across to the edges, and how much finer it is solved.

    Multiples of 4 around meet the corners of the square.
    """

    around: int = 36
    across: int = 26
    refined: int = 2
    name = "elasticity"
    case_name = "elasticity-{:05d}"
    paper = "https://arxiv.org/abs/2207.05209"
    solver = "scikit-fem, quadratic"
    fields = (Field("stress", "N/m2", ("mises",)),)

    def form(self) -> tuple[str, dict[str, Any]]:
        number = self.around * (self.across + 1)
        return f"Elasticity, generated ({number} points)", {"dimension": 2}

    def solve(self, number: int) -> tuple[np.ndarray, Mapping[str, np.ndarray], None]:
        points, stress = cell_stress(lambda angle: void_radius(number, angle), self)
        return points, {"stress": stress}, None


def cell_stress(
    radius: Callable[[np.ndarray], np.ndarray], grid: CellGrid
) -> tuple[np.ndarray, np.ndarray]:
    """Return the points (N, 2) and the stress there (N,) of a square with such a void."""
    around, across = grid.around * grid.refined, grid.across * grid.refined
    mesh = unit_cell(radius, around, across)
    stress = mises_stress(mesh, stretched(mesh, TRACTION))
    corners = np.arange((across + 1) * around).reshape(across + 1, around)
    kept = corners[:: grid.refined, :: grid.refined].ravel()
    return mesh.p.T[kept], stress[kept]


def void_radius(number: int, angle: np.ndarray) -> np.ndarray:
    """Return the void's radius of case `number` at these angles."""
    waves = np.arange(1, VOID_MODES + 1)
    mean, *rest = np.random.default_rng(number).normal(size=1 + 2 * VOID_MODES)
    size = DEVIATION / np.sqrt(np.pi * (waves**2 + INVERSE_LENGTH**2))
    cosine, sine = size * np.reshape(rest, (2, VOID_MODES))
    turned = np.asarray(angle)[..., None] * waves
    field = mean * DEVIATION / np.sqrt(2 * np.pi) / INVERSE_LENGTH
    field = field + np.cos(turned) @ cosine + np.sin(turned) @ sine
    return LEAST_RADIUS + MORE_RADIUS / (1 + np.exp(field))


def unit_cell(radius: Callable[[np.ndarray], np.ndarray], around: int, across: int) -> MeshQuad:
    """Mesh the square around the void: rings of corners from the void to the edges."""
    angle = np.pi / 4 + 2 * np.pi * np.arange(around) / around
    ray = np.stack([np.cos(angle), np.sin(angle)])
    edge = 0.5 / np.abs(ray).max(axis=0)
    inner = radius(angle)
    part = np.linspace(0, 1, across + 1)[:, None] ** GRADING
    away = inner + part * (edge - inner)
    points = 0.5 + (ray[:, None, :] * away).reshape(2, -1)
    ids = np.arange(away.size).reshape(away.shape)
    following = np.roll(ids, -1, axis=1)
    cells = np.stack([ids[:-1], ids[1:], following[1:], following[:-1]]).reshape(4, -1)
    return MeshQuad(points, cells)


def stretched(
    mesh: MeshQuad, traction: float, *, clamped: Callable[[Basis], np.ndarray] | None = None
) -> np.ndarray:
    """Return the displacement of the mesh under a pull at its top, by Newton's method.

    `clamped` chooses the degrees of freedom that stay where they are; default: the bottom's.
    """
    basis = displacements(mesh)
    top = mesh.facets_satisfying(lambda x: x[1] > x[1].max() - 1e-9, boundaries_only=True)
    pull = LinearForm(lambda v, w: traction * v[1]).assemble(
        FacetBasis(mesh, basis.elem, facets=top, intorder=4)
    )
    fixed = basis.get_dofs(lambda x: x[1] < 1e-9).all() if clamped is None else clamped(basis)
    moved = np.zeros(basis.N)
    for _ in range(MOST_STEPS):
        gradient = _deformation(basis, moved)
        stiffness = _stiffness(gradient)
        nominal = _nominal(gradient)
        matrix = BilinearForm(
            lambda u, v, w, A=stiffness: np.einsum("ijkl...,kl...,ij...", A, u.grad, v.grad)
        ).assemble(basis)
        inside = LinearForm(lambda v, w, P=nominal: np.einsum("ij...,ij...", P, v.grad)).assemble(
            basis
        )
        system = condense(matrix, pull - inside, D=fixed)
        change = solve(*system, solver=lambda matrix, right: symmetric(matrix).solve(right))
        moved += change
        if np.abs(change).max() <= TOLERANCE * max(np.abs(moved).max(), 1e-300):
            return moved
    raise CaseError(f"elasticity: Newton's method has not converged in {MOST_STEPS} steps")


def mises_stress(mesh: MeshQuad, moved: np.ndarray) -> np.ndarray:
    """Return von Mises' stress (points,), each component projected on the mesh's corners."""
    basis = displacements(mesh)
    gradient = _deformation(basis, moved)
    # The material is incompressible, so that Cauchy's stress is P F'.
    cauchy = np.einsum("ik...,jk...->ij...", _nominal(gradient), gradient)
    corners = Basis(mesh, ElementQuad1(), quadrature=basis.quadrature)
    xx, yy, xy = (corners.project(cauchy[i, j]) for i, j in ((0, 0), (1, 1), (0, 1)))
    return np.sqrt(np.maximum(xx**2 + yy**2 - xx * yy + 3 * xy**2, 0.0))


def displacements(mesh: MeshQuad) -> Basis:
    """Return the quadratic elements in which displacements are sought."""
    return Basis(mesh, ElementVector(ElementQuad2()), intorder=4)


def _deformation(basis: Basis, moved: np.ndarray) -> np.ndarray:
    """Return F = I + grad u, (2, 2, cells, points of quadrature)."""
    return np.asarray(basis.interpolate(moved).grad) + np.eye(2)[:, :, None, None]


def _nominal(gradient: np.ndarray) -> np.ndarray:
    """Return the nominal stress P = F S in force per reference area, S = 2 dW/dC."""
    return np.einsum("ik...,kj...->ij...", gradient, _stress(gradient)[0])


def _stress(F: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return S, the inverse of C = F'F, and the derivatives of W = C1 (I1 - 3) + C2 (I2 - 3).

    In plane stress C33 = 1 / D with D = det C: I1 = tr C + 1 / D, I2 = D + tr C / D.
    """
    C = np.einsum("ki...,kj...->ij...", F, F)
    D = C[0, 0] * C[1, 1] - C[0, 1] ** 2
    trace = C[0, 0] + C[1, 1]
    inverse = np.array([[C[1, 1], -C[0, 1]], [-C[0, 1], C[0, 0]]]) / D
    of_trace = C1 + C2 / D
    of_inverse = -C1 / D + C2 * D - C2 * trace / D
    unit = np.eye(2)[:, :, None, None]
    return 2 * (of_trace * unit + of_inverse * inverse), inverse, D, trace


def _stiffness(F: np.ndarray) -> np.ndarray:
    """Return dP/dF, (2, 2, 2, 2, cells, points): one direction of F after the other."""
    S, inverse, D, trace = _stress(F)
    unit = np.eye(2)[:, :, None, None]
    of_inverse = -C1 / D + C2 * D - C2 * trace / D
    A = np.empty((2, 2, *F.shape))
    for k in range(2):
        for m in range(2):
            step = np.zeros_like(F)
            step[k, m] = 1.0
            half = np.einsum("ki...,kj...->ij...", F, step)
            dC = half + half.swapaxes(0, 1)
            dD = D * np.einsum("ij...,ij...", inverse, dC)
            d_trace = dC[0, 0] + dC[1, 1]
            d_of_trace = -C2 / D**2 * dD
            d_of_inverse = (C1 / D**2 + C2 + C2 * trace / D**2) * dD - C2 / D * d_trace
            d_inverse = -np.einsum("ia...,ab...,bj...->ij...", inverse, dC, inverse)
            dS = 2 * (d_of_trace * unit + d_of_inverse * inverse + of_inverse * d_inverse)
            A[:, :, k, m] = np.einsum("ik...,kj...->ij...", step, S) + np.einsum(
                "ik...,kj...->ij...", F, dS
            )
    return A


GRIDS: dict[str, Grid] = {
    "darcy": DarcyGrid(),
    "diffusion-sorption": SorptionGrid(),
    "elasticity": CellGrid(),
}
"""The published ones"""
