"""An importer of transient cases in 1D: heat in a rod; one design parameter, drawn splits."""

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
    """(T, N) of a rod with insulated ends, from three random waves."""
    x, time = np.linspace(0.0, 1.0, SIZE), INTERVAL_S * np.arange(SNAPSHOTS)
    waves = np.pi * np.arange(1, 4)[:, None]
    weights = 20 * np.random.default_rng(seed).normal(size=3)
    return 300 + (weights * np.exp(-diffusivity * waves**2 * time).T) @ np.cos(waves * x)


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
