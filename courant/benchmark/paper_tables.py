"""Hold the errors that the paper prints, by dataset and model.

tab:bench-unstr, tab:bench-str, and tab:feature_ablation_nmae for Courant's variants; all three are
captioned NMAE.
"""

from __future__ import annotations

from dataclasses import dataclass

ABLATIONS: dict[str, tuple[float | None, float | None, float | None]] = {
    "Baseline": (0.097, 0.18, 0.17),
    "GWA (enc + dec)": (0.11, 0.17, None),
    "GWA in decoder only": (0.10, 0.17, None),
    "GWA in encoder only": (0.10, 0.18, None),
    "Learned anchors": (0.089, 0.16, 0.19),
    "Abstract learned queries": (0.094, 0.16, 0.19),
    "No shared coord emb.": (0.096, 0.18, 0.19),
    "No distance field": (0.19, 0.22, 0.21),
    "No global data": (0.10, 0.18, None),
    "No boundary PC (full-mesh)": (0.096, 0.19, None),
    "MLP ODE integrator": (None, None, 0.18),
}
"""Rows of tab:feature_ablation_nmae: branched pipe, pump, cylinder; fig:ablations has no numbers"""
FAMILIES = ("branched-pipe", "centrifugal-pump", "cylinder-flow")
"""The paper's own cases, in the order of these columns"""
VARIANTS = {
    "courant-gwa": "GWA (enc + dec)",
    "courant-learned-anchors": "Learned anchors",
    "courant-abstract-queries": "Abstract learned queries",
}
"""Rows of the ablations, by the contender that they are"""
MODELS: dict[str, dict[str, float]] = {
    "branched-pipe": {"mgn": 0.22, "transolver": 0.086, "upt": 0.31, "courant": 0.096},
    "centrifugal-pump": {"transolver": 0.29, "upt": 0.41, "courant": 0.17},
    "cylinder-flow": {"enf": 0.23, "mgn": 0.13, "transolver": 0.13, "upt": 0.28, "courant": 0.17},
    "elasticity": {"transolver": 0.0057, "upt": 0.013, "courant": 0.021},
    "darcy-flow": {
        "fno": 0.0085,
        "factformer": 0.0042,
        "transolver": 0.0049,
        "upt": 0.016,
        "courant": 0.0057,
    },
    "airfoil": {
        "fno": 0.0021,
        "factformer": 0.0032,
        "transolver": 0.0019,
        "upt": 0.050,
        "courant": 0.014,
    },
    "pipe": {
        "fno": 0.0022,
        "factformer": 0.0013,
        "transolver": 0.0018,
        "upt": 0.0059,
        "courant": 0.014,
    },
    "diffusion-sorption": {
        "enf": 0.0049,
        "fno": 0.0039,
        "transolver": 0.0039,
        "upt": 0.019,
        "courant": 0.0038,
    },
    "compressible-flow-3d": {
        "enf": 0.038,
        "fno": 0.019,
        "transolver": 0.018,
        "upt": 0.017,
        "courant": 0.017,
    },
}
"""tab:bench-unstr, where elasticity stands too, and tab:bench-str, by dataset"""
DESIGNS = {"branched-pipe": 300, "centrifugal-pump": 300, "cylinder-flow": 200}
"""tab:dataset-details"""


@dataclass(frozen=True)
class Benchmark:
    """How large a community benchmark is in tab:courant-training and the text below it."""

    num_train: int
    num_test: int
    num_points: int
    """At the resolution of the paper"""


BENCHMARKS = {
    "elasticity": Benchmark(1000, 200, 972),
    "darcy-flow": Benchmark(1000, 200, 85 * 85),
    "airfoil": Benchmark(1000, 200, 221 * 51),
    "pipe": Benchmark(1000, 200, 129 * 129),
    "diffusion-sorption": Benchmark(9000, 1000, 1024),
    "compressible-flow-3d": Benchmark(1000, 200, 16**3),
}


def number(family: str, name: str, is_ablation: bool) -> float | None:
    """Return the error of a contender; both tables have Courant's own, rounded apart.

    `family` is one of `MODELS`; None where the paper has no such row.
    """
    if name in MODELS[family] and (not is_ablation or family not in FAMILIES):
        return MODELS[family][name]
    row = ABLATIONS.get("Baseline" if name == "courant" else VARIANTS.get(name, name))
    return row[FAMILIES.index(family)] if row and family in FAMILIES else None
