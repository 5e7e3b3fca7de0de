"""An importer of transient cases in 1D: heat in a rod, by finite differences in a few lines of
numpy; one design parameter, drawn splits.
"""

from collections.abc import Iterator

import numpy as np

from simgen.imports import Field, Imported, Parameter, Source, SourceCase, import_cases
from simgen.imports import imported_schema as schema_of

SIZE, SNAPSHOTS, INTERVAL_S = 24, 6, 0.025
SCHEMA = schema_of(
    "heat-rod",
    dimension=1,
    transient=True,
    fields=(Field("temperature", "K", ("value",)),),
    parameters=(Parameter("diffusivity", "m2/s", 0.1, 1.0),),
    splits="drawn",
    source=Source("Heat in a rod", "https://example.org/heat", "CC0"),
)


def solve(diffusivity: float, seed: int) -> np.ndarray:
    """(T, N) of explicit Euler with insulated ends, from three random waves."""
    x, steps = np.linspace(0.0, 1.0, SIZE), 50
    weights = np.random.default_rng(seed).normal(size=3)
    u = 300 + 20 * sum(w * np.cos(np.pi * k * x) for k, w in enumerate(weights, start=1))
    courant = diffusivity * INTERVAL_S / steps * (SIZE - 1) ** 2
    assert courant < 0.5
    states = [u]
    for _ in range(SNAPSHOTS - 1):
        for _ in range(steps):
            padded = np.pad(u, 1, mode="edge")
            u = u + courant * (padded[2:] - 2 * u + padded[:-2])
        states.append(u)
    return np.stack(states)


def read_cases(num: int) -> Iterator[SourceCase]:
    for number, diffusivity in enumerate(np.linspace(0.1, 1.0, num)):
        yield SourceCase(
            name=f"rod-{number:03d}",
            points=np.linspace(0.0, 1.0, SIZE),
            time=INTERVAL_S * np.arange(SNAPSHOTS),
            fields={"temperature": solve(diffusivity, number)},
            parameters={"diffusivity": diffusivity},
        )


def import_heat(url: str, num_cases: int = 12) -> Imported:
    return import_cases(url, SCHEMA, read_cases(num_cases))
