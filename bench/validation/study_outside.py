"""Are designs rejected that are unlike those of training and calibration, where bands are wrong?

Of OUT/pipe/branched-pipe, 160 Sobol designs of the pipe, those within a box are trained on and
calibrated; then those outside of it are predicted, with the bands that they would have had. Make
the dataset first:

    courant generate branched-pipe --cases 160 --store validation-out/pipe

or let COURANT_PIPES name another place of it. The cases are copied, nothing is solved again.
"""

import os
from collections.abc import Iterator, Sequence
from itertools import starmap
from pathlib import Path
from typing import Any

import simgen
from bench.report import publish
from bench.synthetic_cases import publish_cases
from courant.evaluation.calibrate import calibrate
from courant.evaluation.coverage import compare_case
from courant.evaluation.quantities import solved_and_predicted
from courant.prediction.bands import LEVEL, out_of_ranges
from courant.prediction.surrogate import Surrogate, load
from courant.recipes import get_recipe
from courant.runs.directory import RunDirectory
from courant.training.train import fit
from simgen.case import CaseResult
from simgen.design_space import DesignPoint
from simgen.point_cloud import BoundaryCloud, PointCloud
from simgen.store.read import Dataset, StoredCase

BOX = {"aperture": (20.0, 32.0), "inlet_velocity": (3.0, 8.0)}
RECIPE, EPOCHS = "branched-pipe-all-fields-demo", 15
#: Of the cases within the box, in the order of publication.
SHARES = {"train": 0.5, "validation": 0.1, "calibration": 0.4}


def main(out: Path, short: bool) -> None:
    dataset = simgen.open_dataset(os.environ.get("COURANT_PIPES", out / "pipe" / "branched-pipe"))
    url = str(out / "outside" / "branched-pipe")
    if not (out / "outside").exists():
        _copied(dataset, url)
    narrow = simgen.open_dataset(url)
    run = RunDirectory(out / "outside" / "run")
    recipe = get_recipe(RECIPE).derive(training={"epochs": 1 if short else EPOCHS})
    fit(recipe, narrow, run)
    calibrate(run.url)
    surrogate, cases = load(run.url), map(narrow.__getitem__, narrow.cases("test"))
    rows = _scored(surrogate, narrow, [case for case in cases if not is_inside(case)])
    publish(
        out,
        "outside",
        rows,
        training_cases=len(narrow.cases("train")),
        calibration_cases=len(narrow.cases("calibration")),
    )


def is_inside(case: StoredCase) -> bool:
    return all(low <= case.parameters[name] <= high for name, (low, high) in BOX.items())


def _scored(
    surrogate: Surrogate, dataset: Dataset, beyond: Sequence[StoredCase]
) -> list[dict[str, Any]]:
    """Count cases by band, as if none were withheld, and what would withhold it."""
    bands = surrogate.bands
    assert bands is not None
    unguarded = bands.model_copy(update={"reach": None, "ranges": ()})
    found: dict[str, list[tuple[bool, bool, bool]]] = {}
    for case in beyond:
        pair = solved_and_predicted(surrogate, dataset, case)
        held, _ = compare_case(surrogate, unguarded, dataset, case, pair, LEVEL)
        prepared = surrogate.prepare_case(case, surrogate.problem.shown_start(case))
        by_ranges = bool(out_of_ranges(bands.ranges, surrogate.space, case.parameters))
        by_latents = bool(bands.out_of_reach(surrogate.pooled_latents(prepared)))
        for name, each in held.items():
            found.setdefault(name, []).append((each.error > each.width, by_ranges, by_latents))
    return [
        {
            "band of": name,
            "outside": len(of),
            "error exceeds it": sum(wrong for wrong, _, _ in of),
            "refused by ranges": sum(wrong and by_ranges for wrong, by_ranges, _ in of),
            "by latents": sum(wrong and by_latents for wrong, _, by_latents in of),
            "by either": sum(wrong and (one or other) for wrong, one, other in of),
        }
        for name, of in found.items()
    ]


def _copied(dataset: Dataset, url: str) -> None:
    """Copy the cases within the box into splits of their own, and the others as the test split."""
    family, revision = dataset.schema.family, dataset.schema.family_revision

    def copied(case: StoredCase, split: str) -> tuple[CaseResult, PointCloud]:
        point = DesignPoint(family, revision, case.parameters, case.settings)
        result = CaseResult(point, "accepted", split=split, provenance=case.provenance)
        return result, _cloud(case)

    cases = starmap(copied, _with_splits(dataset))
    publish_cases(url, dataset.schema, cases, "a part of the design space for training")


def _with_splits(dataset: Dataset) -> Iterator[tuple[StoredCase, str]]:
    cases = [dataset[case] for case in dataset.cases()]
    within = [case for case in cases if is_inside(case)]
    splits = ["test"]
    for split, share in SHARES.items():
        splits += [split] * round(share * len(within))
    for number, case in enumerate(within):
        yield case, splits[number] if number < len(splits) else "train"
    chosen = {case.id for case in within}
    yield from ((case, "test") for case in cases if case.id not in chosen)


def _cloud(case: StoredCase) -> PointCloud:
    faces, fields = case.boundary, [field.name for field in case.dataset.schema.fields]
    return PointCloud(
        points=case.points,
        volumes=case.volumes,
        distance=case.distance,
        direction=case.direction,
        patch_kinds=tuple(case.patch_kinds),
        time=None,
        fields=case.read(*fields),
        boundary=BoundaryCloud(
            points=faces.points,
            normals=faces.normals,
            areas=faces.areas,
            patch=faces.patch,
            fields={name: faces[name][:] for name in fields},
        ),
        mesh=case.mesh,
    )
