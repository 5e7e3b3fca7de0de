"""Read the dataset, load the model and predict, as somebody's own program does; print JSON."""

from __future__ import annotations

import json
import sys

import numpy as np

import courant
import simgen


def main(store: str, run: str) -> None:
    """Use neither Prefect nor Ray: only what the three lines of the README use."""
    dataset = simgen.open_dataset(f"{store}/cylinder-flow")
    case = dataset[dataset.cases("test")[0]]
    assert case.time is not None
    surrogate = courant.load(run)
    predicted = surrogate.predict_case(case, start_s=20, steps=3)
    needless = {"prefect", "ray"} & sys.modules.keys()
    found = {
        "version": dataset.version,
        "cases": dataset.design["status"].value_counts().to_dict(),
        "splits": dataset.splits,
        "points": len(case.points),
        "snapshots": len(case.time),
        "predicted": list(predicted.shape),
        "finite": bool(np.isfinite(predicted).all()),
        "needless": sorted(needless),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
