"""Assess a trained trial: errors on the test split, and the time of predictions by their size.

The errors are those of `courant evaluate`, in the run's own evaluation.json. Times are in
assessment.json, of the same weights, and are not taken twice.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from statistics import median
from typing import Any

import torch
from torch import Tensor

from courant.data_config import SteadyData
from courant.evaluation.evaluate import evaluate
from courant.evaluation.ledger import solver_times
from courant.evaluation.record import fingerprint, read_evaluation
from courant.field_model import Inputs, Queries
from courant.prediction.surrogate import QUERY_CHUNK, NotFiniteError, Surrogate, load
from courant.runs.directory import RunDirectory

ASSESSMENT, FAILED = "assessment.json", "failed"
NUM_POINTS = (1_000, 10_000, 100_000)
REPEATS = 3
MOST_S = 60.0  # A size is left out where the one below it, a tenth of it, takes a tenth of this
_JITTER = 1e-3  # standard deviation, normalised, by which repeated points are moved apart


def assess(run_url: str, dataset_url: str) -> None:
    """Evaluate a trial on the test split and time its predictions, if that is not on record.

    A model that predicts values that are not finite has failed, which is on record as well: other
    trials go on.
    """
    run = RunDirectory(run_url)
    try:
        evaluate(run_url, "test", dataset_url)
    except NotFiniteError as error:
        run.write_json(ASSESSMENT, {"fingerprint": fingerprint(run, "test"), FAILED: str(error)})
        return
    if read_assessment(run):
        return
    surrogate = load(run_url)
    dataset = surrogate.open_dataset(dataset_url)
    cases = dataset.cases("test")
    content = {
        "fingerprint": fingerprint(run, "test"),
        "prediction_processor_s": prediction_times(surrogate, cases[0], dataset_url),
        "solver": asdict(solver_times(dataset, surrogate.problem, cases)),
    }
    run.write_json(ASSESSMENT, content)


def read_assessment(run: RunDirectory) -> dict[str, Any]:
    """Read times and costs, or why they `failed`; empty unless of the run's present weights."""
    if not run.exists(ASSESSMENT):
        return {}
    content = run.read_object(ASSESSMENT)
    return content if content.get("fingerprint") == fingerprint(run, "test") else {}


def is_assessed(run: RunDirectory) -> bool:
    """Whether nothing is left to measure of the run's present weights."""
    found = read_assessment(run)
    # `courant evaluate --split validation` puts another evaluation in its place.
    return FAILED in found or (bool(found) and read_evaluation(run, "test") is not None)


def prediction_times(
    surrogate: Surrogate, case: str, dataset_url: str | None = None
) -> dict[str, float | None]:
    """Return the processor time of a prediction by its number of points; None if left out.

    A size is left out that takes too long or more memory than there is, and all beyond it. The
    cloud is a case's own, thinned or made denser. A model that reads the mesh reads as many points
    as it predicts; a transient one predicts a whole window.
    """
    inputs, queries = surrogate.model_inputs(surrogate.open_dataset(dataset_url)[case])
    data = surrogate.experiment.data
    reads_mesh = not isinstance(data, SteadyData) or data.encoder == "mesh"
    times: dict[str, float | None] = dict.fromkeys(map(str, NUM_POINTS))
    generator = torch.Generator().manual_seed(0)

    def spread(points: Tensor, num: int) -> tuple[Tensor, Tensor]:
        """Choose `num` points, with what moves those that come twice apart."""
        count, numbers = points.shape[1], torch.arange(num)
        again = (numbers >= count)[:, None]
        moved = _JITTER * torch.randn(num, points.shape[-1], generator=generator) * again
        chosen = numbers * count // num if num <= count else numbers % count
        return chosen.to(points.device), moved.to(points.device, points.dtype)

    for num in NUM_POINTS:
        chosen, apart = spread(queries.points, num)
        asked = queries.part(chosen)
        asked = asked._replace(points=asked.points + apart)
        given = inputs
        if reads_mesh:
            chosen, apart = spread(inputs.points, num)
            # Such a cloud is no mesh: a model of its edges looks for neighbours instead.
            given = inputs._replace(
                points=inputs.points[:, chosen] + apart,
                features=inputs.features[:, chosen],
                mask=None,
                neighbours=None,
            )
        try:
            times[str(num)] = seconds = _time(surrogate, given, asked)
        except (MemoryError, torch.OutOfMemoryError):
            break
        if 10 * seconds > MOST_S:
            break
    return times


@torch.inference_mode()
def _time(surrogate: Surrogate, inputs: Inputs, queries: Queries) -> float:
    """Return the median of a few predictions, after one that does not count."""
    steps, on_gpu = surrogate.problem.num_steps, surrogate.device.type == "cuda"
    clock = time.perf_counter if on_gpu else time.process_time
    taken: list[float] = []
    for number in range(1 + REPEATS):
        began = clock()
        surrogate.model.predict(inputs, queries, steps, chunk=QUERY_CHUNK)
        if on_gpu:
            torch.cuda.synchronize(surrogate.device)
        taken.append(clock() - began)
        if number and sum(taken) > MOST_S / REPEATS:
            break
    return median(taken[1:])
