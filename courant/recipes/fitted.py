"""Fit an experiment to a dataset without a recipe: sizes and times come from the data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from courant.experiment import Experiment, SteadyData, TrainingConfig, TransientData
from courant.model import CourantConfig
from simgen.errors import InputError

if TYPE_CHECKING:
    from simgen.store.read import Dataset

CHANNELS_PER_PATCH_KIND = 4
MOST_ANCHORS, MOST_POINTS, MOST_STEPS = 64, 1024, 10
BUDGET_S = 180.0  # Of a training for which no other time is given


def fitted_recipe(dataset: Dataset) -> Experiment:
    """Return a small Courant that learns the solved fields from all that is known of a case.

    A case's geometry comes from its points, so no boundary condition has to be named. A rollout
    takes one step per snapshot. InputError for a dataset without training cases or varying fields.
    """
    schema = dataset.schema
    ids = dataset.required("train")
    solved, given = (
        sum(len(dataset.varying(field.name)) for field in schema.of_role(role))
        for role in ("solved", "given")
    )
    distance = CHANNELS_PER_PATCH_KIND * len(schema.measured_kinds)
    known = solved if schema.transient or schema.boundary else 0
    points = [dataset.records[case]["num_points"] for case in ids]
    drawn = MOST_POINTS if max(points) > MOST_POINTS else None
    return Experiment(
        name=f"{schema.family}-fitted",
        family=schema.family,
        task="transient" if schema.transient else "steady",
        model=CourantConfig(
            num_features=known + given + distance or schema.dimension,
            num_outputs=solved,
            num_query_features=given + distance,
            num_parameters=len(schema.parameters),
            dimension=schema.dimension,
            transient=schema.transient,
            num_anchors=max(1, min(MOST_ANCHORS, min(points))),
            decoder_depth=2,
        ),
        data=_data(dataset, drawn),
        training=TrainingConfig(
            epochs=240,
            budget_s=BUDGET_S,
            patience=80,
            batch_size=4,
            samples_per_epoch=120,
            optimiser="muon",  # This, its rate and the decoder: docs/accuracy.md has the errors
            learning_rate=3e-3,
            warmup_steps=100,
            validate_every=10,
            checkpoint_every=10,
        ),
    )


def _data(dataset: Dataset, drawn: int | None) -> SteadyData | TransientData:
    solved = [field.name for field in dataset.schema.of_role("solved")]
    fields = tuple(name for name in solved if dataset.varying(name))
    if not fields:
        raise InputError(f"{dataset.url} {dataset.version}: no field varies, nothing is to learn")
    if not dataset.schema.transient:
        return SteadyData(
            fields=fields, encoder="mesh", points_per_sample=drawn, queries_per_sample=drawn
        )
    # A case with fewer snapshots than a window has would never be seen.
    ids = [*dataset.cases("train"), *dataset.cases("validation")]
    shortest = min(ids, key=lambda case: dataset.records[case]["num_snapshots"])
    least = dataset.records[shortest]["num_snapshots"]
    if least < 2:
        raise InputError(f"{dataset.url}: case {shortest} has a single snapshot; there is no step")
    interval = float(np.diff(np.asarray(dataset[shortest].time)).mean())
    return TransientData(
        fields=fields,
        window_steps=min(MOST_STEPS, least - 1),
        step_s=interval,
        stride_s=interval,
        points_per_sample=drawn,
        queries_per_sample=drawn,
    )
