"""A few of the cases that `python -m bench.foam_fuzz` draws."""

from __future__ import annotations

from collections import Counter

import pytest

from bench import foam_fuzz

pytestmark = pytest.mark.openfoam


def test_drawn_cases_have_the_values_of_two_other_readers() -> None:
    outcomes = foam_fuzz.run(range(32), seed=1, judged=8)
    assert [each for each in outcomes if not each.is_good] == []
    verdicts = Counter(each.verdict for each in outcomes)
    assert verdicts["equal"] > len(outcomes) / 2, "most have a value to compare"
    assert "agrees" in {each.judged for each in outcomes}
