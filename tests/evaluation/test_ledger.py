"""What a surrogate is worth: intervals of few values, and when it breaks even."""

import math
from pathlib import Path

import pytest

import simgen
from bench.synthetic_cases import publish_cases
from courant.evaluation.ledger import Interval, Ledger, SolverTimes, solver_times
from courant.problems import open_problem
from simgen.case import CaseResult
from simgen.design_space import DesignPoint
from tests.world import SCHEMA, SPACE, duct, tiny_steady


def test_the_interval_of_few_values_is_students_and_has_the_digits_of_its_mean() -> None:
    two, three = Interval.of([1.0, 3.0]), Interval.of([1.0, 2.0, 3.0])
    # Quantiles of 97.5 %: 12.706 with one degree of freedom, 4.303 with two.
    assert (two.mean, two.half_width) == (2.0, pytest.approx(12.706, rel=1e-4))
    assert three.half_width == pytest.approx(4.303 / math.sqrt(3), rel=1e-3)
    assert (three.low + three.high) / 2 == 2.0
    assert Interval(0.12345, 0.0046, 3).text() == "0.123 ± 0.005"


def ledger(solver_s: float, spread: float | None = None, **parts: float | None) -> Ledger:
    """1,000 s of solves, 90 s of training, 10 s of search, 1 s a prediction."""
    spent = parts.get("spent_s", 1000.0)
    solver = SolverTimes(10, spent, Interval(solver_s, spread, 5))
    return Ledger(solver, Interval(90.0, 10.0, 3), parts.get("tuning_s", 10.0), 1.0)


def test_it_breaks_even_where_the_savings_reach_the_cost() -> None:
    even = ledger(12.0, 1.0).break_even
    assert even is not None
    assert even.expected == 1100 / 11
    assert (even.low, even.high) == (math.ceil(1090 / 12), 1110 / 10)
    assert even.text() == "100 (91 to 111)"
    assert ledger(12.0, 1.0, tuning_s=None).spent_s == 1090


def test_a_solver_that_is_as_fast_is_never_replaced_at_a_gain_nor_before_a_prediction() -> None:
    even = ledger(1.0, 0.5).break_even
    assert even is not None and even.text() == "never" and even.low == 1090 / 0.5
    perhaps = ledger(2.0, 1.5).break_even
    assert perhaps is not None and perhaps.text() == "1,100 (436 to never)"
    # Of two seeds Student's t makes an interval that reaches below nothing.
    solver = SolverTimes(1, 10.0, Interval(5.0, 1.0, 2))
    even = Ledger(solver, Interval(90.0, 400.0, 2), 10.0, 1.0).break_even
    assert even is not None and even.low == 0 and even.text().startswith("28 (0 to ")
    unknown = Ledger(SolverTimes(3, None, None), Interval(90.0, None, 1), None, 1.0)
    assert unknown.break_even is None and unknown.saved_s is None


def test_calibration_and_test_designs_are_no_cost_of_training(tmp_path: Path) -> None:
    """Neither those that were accepted nor those that were tried for these splits in vain."""
    asked: list[str | None] = [None] * 8 + ["train", "calibration", "test"]
    times, cases = {"wall_time_s": {"mesh": 1.0, "solve": 10.0}}, []
    for number, parameters in enumerate(SPACE.sample(2 * len(asked), "sobol", 1)):
        point = DesignPoint("branched-pipe", 1, parameters, {"mesh_size": 0.1})
        ended = ("accepted", "") if number % 2 else ("rejected", "no steady state")
        result = CaseResult(point, *ended, provenance=times, split=asked[number // 2])
        cases.append((result, duct(60, parameters, seed=number) if number % 2 else None))
    dataset = simgen.open_dataset(publish_cases(str(tmp_path / "branched-pipe"), SCHEMA, cases))
    problem = open_problem(tiny_steady(), dataset)
    found = solver_times(dataset, problem, dataset.cases("test"))
    accepted = len(dataset.cases("train")) + len(dataset.cases("validation"))
    # Rejected: 8 that were asked for no split, and one for training.
    assert found.num_solved == accepted + 9
    assert found.spent_s == pytest.approx(11.0 * found.num_solved)
    assert len(dataset.design) == 22 and len(dataset.cases("calibration")) == 1
