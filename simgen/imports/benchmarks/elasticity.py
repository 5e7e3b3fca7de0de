"""Generate the elasticity benchmark: stress around a random void in a stretched rubber square.

The unit square has a void of radius r(angle) = 0.2 + 0.2 / (1 + exp(r')) about its middle, r' a
Gaussian field on the circle of covariance 4^2 (-d2/dangle2 + 3^2)^-1. It is clamped at the bottom
and drawn up at the top by 100 N/m2; the material is incompressible (Rivlin-Saunders, C1 = 1.863e5,
C2 = 9.79e3 N/m2) in plane stress (Li et al., Geo-FNO, 2023). 972 points.

Quadratic finite elements on rings of cells around the void; the points are corners of cells, 36
around and 27 across, of a mesh twice as fine. The stress is von Mises' of the Cauchy stress. What
differs from the published files: the places of their points come from another mesher, the field has
ten waves here, which the mesh resolves, and other seeds draw it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
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
from simgen.errors import CaseError
from simgen.imports.importing import SourceCase, imported_schema
from simgen.store.schema import Schema, Source

C1, C2 = 1.863e5, 9.79e3
TRACTION = 100.0
LEAST_RADIUS, MORE_RADIUS = 0.2, 0.2
DEVIATION, INVERSE_LENGTH, MODES = 4.0, 3.0, 10
#: Cells are narrower at the void, where the stress changes fastest.
GRADING = 1.5
MOST_STEPS, TOLERANCE = 20, 1e-9


@dataclass(frozen=True)
class CellGrid:
    """The points' cells around the void and across to the edges, and how much finer it is solved.

    Multiples of 4 around meet the corners of the square.
    """

    around: int = 36
    across: int = 26
    refined: int = 2
    name: ClassVar[str] = "elasticity-{:05d}"
    revision: ClassVar[int] = 1

    def schema(self) -> Schema:
        return imported_schema(
            "elasticity",
            dimension=2,
            fields=(Field("stress", "N/m2", ("mises",)),),
            source=Source(
                f"Elasticity, generated ({self.around * (self.across + 1)} points)",
                "https://arxiv.org/abs/2207.05209",
                "as this dataset",
            ),
        )

    def case(self, number: int, split: str) -> SourceCase:
        points, stress = cell_stress(lambda angle: void_radius(number, angle), self)
        return SourceCase(
            self.name.format(number),
            points=points,
            fields={"stress": stress},
            split=split,
            provenance={"solver": "scikit-fem, quadratic", "solver_version": str(self.revision)},
        )


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
    waves = np.arange(1, MODES + 1)
    mean, *rest = np.random.default_rng(number).normal(size=1 + 2 * MODES)
    size = DEVIATION / np.sqrt(np.pi * (waves**2 + INVERSE_LENGTH**2))
    cosine, sine = size * np.reshape(rest, (2, MODES))
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
        # This order of unknowns suits symmetric matrices: 3.6 times as fast.
        change = solve(
            *condense(matrix, pull - inside, D=fixed),
            solver=lambda matrix, right: splu(
                matrix.tocsc(), permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True}
            ).solve(right),
        )
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
