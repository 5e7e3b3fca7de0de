"""A few of the cases that `python -m bench.foam_fuzz` draws."""

from __future__ import annotations

import pytest

from bench import foam_fuzz

pytestmark = pytest.mark.openfoam


def test_drawn_cases_have_the_values_of_openfoam() -> None:
    outcomes = foam_fuzz.run(range(16), seed=1)
    assert [each for each in outcomes if not each.is_good] == []
    assert sum(each.verdict == "equal" for each in outcomes) > 4
