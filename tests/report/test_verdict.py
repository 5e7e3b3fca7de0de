"""The report's verdict says what the numbers say."""

from collections.abc import Sequence

import pytest

from courant.evaluation.metrics import ALL
from courant.evaluation.record import (
    CaseErrors,
    EvaluatedDataset,
    Evaluation,
    QuantityScore,
    Score,
    Timing,
)
from courant.report.report import main_figure, summary_line


def evaluation(step_s: float | None = 1.0, **nmae: Sequence[float]) -> Evaluation:
    """Of one component and one case, from NMAE at each step by predictor."""
    names = {name: name.replace("_", " ") for name in nmae}
    overall = {
        names[name]: Score(nmae=sum(values) / len(values), relative_l2=0.5, rae=0.8, maximum=0.9)
        for name, values in nmae.items()
    }
    steps = {names[name]: {ALL: tuple(v), "depth.h": tuple(v)} for name, v in nmae.items()}
    return Evaluation(
        run="run",
        fingerprint="0",
        date="2025-01-01",
        split="test",
        task="steady" if step_s is None else "transient",
        dataset=EvaluatedDataset(url="lake", version="v1", family="lake"),
        components=("depth.h",),
        step_s=step_s,
        num_windows=1,
        cases={"a": CaseErrors(windows=1, overall=overall, nmae=steps)},
        overall=overall,
        by_component={name: {"depth.h": score} for name, score in overall.items()},
        nmae=steps,
        relative_l2=steps,
        timing=Timing(
            prediction_s=1.0,
            prediction_total_s=1.0,
            prediction_processor_s=1.0,
            prediction_device="CPU",
            prediction_threads=1,
            solver_s=None,
            solver_host="unknown",
        ),
    )


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ([0.1, 0.1, 0.1, 0.1], "The model beats persistence at every rollout step."),
        ([0.9, 0.9, 0.9, 0.9], "It does not beat persistence at any rollout step yet."),
        ([0.3, 0.1, 0.1, 0.3], "It beats persistence at steps 2-3, and not yet at 1 and 4."),
        ([0.1, 0.3, 0.1, 0.1], "It beats persistence at steps 1 and 3-4, and not yet at 2."),
    ],
)
def test_the_verdict_names_the_steps_won_and_lost(model: list[float], expected: str) -> None:
    found = evaluation(model=model, persistence=[0.2] * 4, training_mean=[0.5] * 4)
    assert summary_line(found).endswith(expected)


def test_the_verdict_does_not_hide_a_model_worse_than_the_mean() -> None:
    line = summary_line(evaluation(model=[0.9] * 2, persistence=[0.2] * 2, training_mean=[0.5] * 2))
    assert "350% above persistence's 0.200 and 80% above the training mean's 0.500" in line


def test_the_first_words_say_where_the_parameters_alone_tell_more() -> None:
    lost, won = (
        QuantityScore(
            unit="m",
            meaning="",
            truth={},
            predicted={},
            error=error,
            rank_correlation=None,
            null_error=0.2,
        )
        for error in (0.3, 0.1)
    )
    found = evaluation(None, model=[0.1], nearest_design=[0.2], training_mean=[0.5])
    quantities = {"shaft_power": lost, "head": won}
    line = summary_line(found.model_copy(update={"quantities": quantities}))
    assert line.startswith(
        "A regression on the design parameters alone predicts shaft power better than the model"
        " does. NMAE 0.100"
    )


def test_without_steps_the_verdict_counts_cases() -> None:
    found = evaluation(None, model=[0.1], nearest_design=[0.2], training_mean=[0.5])
    assert summary_line(found) == (
        "NMAE 0.100 on the test split, 50% below the nearest design's 0.200 and 80% below the "
        "training mean's 0.500. Over the variation of the fields (RAE) the error is 0.800. The "
        "model is better than the nearest design on 1 of 1 cases."
    )
    assert main_figure(found) == "errors_by_case.png"
