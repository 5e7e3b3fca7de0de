"""Are designs rejected that are unlike those of training and calibration, where bands are wrong?

Of OUT/pipe/branched-pipe, 160 Sobol designs of the pipe, those within a box are trained on and
calibrated; `courant coverage RUN --inside` then takes those outside of it. Make the dataset first:

    courant generate branched-pipe --cases 160 --store validation-out/pipe

or let COURANT_PIPES name another place of it. The cases are copied, nothing is solved again.
"""

import os
from collections.abc import Iterator
from itertools import starmap
from pathlib import Path

import simgen
from bench.report import publish
from bench.synthetic_cases import publish_cases
from courant.evaluation.calibrate import calibrate
from courant.evaluation.coverage import is_inside, measure_coverage
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
    found = measure_coverage(run.url, "test", inside=BOX)
    rows = [
        {
            "band of": name,
            "outside": score.num_cases,
            "error exceeds it": score.exceeding,
            "refused by ranges": score.by_ranges,
            "by latents": score.by_latents,
            "by either": score.by_either,
        }
        for name, score in found.outside.items()
    ]
    publish(
        out,
        "outside",
        rows,
        training_cases=len(narrow.cases("train")),
        calibration_cases=len(narrow.cases("calibration")),
    )


def _copied(dataset: Dataset, url: str) -> None:
    """Copy the cases within the box into splits of their own, and the others as the test split.

    One case within the box stays a test case: coverage is measured on cases inside.
    """
    family, revision = dataset.schema.family, dataset.schema.family_revision

    def copied(case: StoredCase, split: str) -> tuple[CaseResult, PointCloud]:
        point = DesignPoint(family, revision, case.parameters, case.settings)
        result = CaseResult(point, "accepted", split=split, provenance=case.provenance)
        return result, _cloud(case)

    cases = starmap(copied, _with_splits(dataset))
    publish_cases(url, dataset.schema, cases, "a part of the design space for training")


def _with_splits(dataset: Dataset) -> Iterator[tuple[StoredCase, str]]:
    cases = [dataset[case] for case in dataset.cases()]
    within = [case for case in cases if is_inside(BOX, case.parameters)]
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
