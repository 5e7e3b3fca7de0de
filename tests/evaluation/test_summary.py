"""The report's verdict says what the numbers say."""

import pytest

from courant.evaluation.metrics import ALL
from courant.evaluation.report import summary_line


def evaluation(model, persistence, mean):
    steps = {"model": model, "persistence": persistence, "training mean": mean}
    return {
        "split": "test",
        "overall": {name: {"nmae": sum(values) / len(values)} for name, values in steps.items()},
        "nmae": {name: {ALL: values} for name, values in steps.items()},
        "beats": {
            name: [a < b for a, b in zip(model, steps[name], strict=True)] for name in ("persistence", "training mean")
        },
    }


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ([0.1, 0.1, 0.1, 0.1], "beats persistence at every rollout step."),
        ([0.9, 0.9, 0.9, 0.9], "does not beat persistence at any rollout step yet."),
        ([0.3, 0.1, 0.1, 0.3], "It beats persistence at steps 2-3, and not yet at 1 and 4."),
    ],
)
def test_the_verdict_names_the_steps_won_and_lost(model, expected):
    assert expected in summary_line(evaluation(model, [0.2] * 4, [0.5] * 4))


def test_the_verdict_does_not_hide_a_model_worse_than_the_mean():
    assert "80% above the training mean's 0.500" in summary_line(evaluation([0.9] * 2, [0.2] * 2, [0.5] * 2))
