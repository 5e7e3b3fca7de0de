"""Mutants are what they say, of code alone, and every area has its files and tests."""

import ast

import pytest

from bench.mutate import AREAS, ROOT, draw, files, mutants

SOURCE = b'''
"""A module of 3 lines."""
LEVEL = 0.9
def share(part: float | None, whole: float = 1) -> float:
    if not part and (whole) > 0:
        raise ValueError(f"{part + 1} is not")
    logger.info("%d", 1 + 1)
    check(part)
    return -abs(part) / whole  # \xc3\xa9
'''


def test_every_operator_number_condition_and_error_is_broken_and_nothing_else() -> None:
    found = [(SOURCE[each.start : each.end].decode(), each.text) for each in mutants("x", SOURCE)]
    assert found == [
        ("0.9", "1.8"),
        ("1", "2"),
        ("not", ""),
        ("not part and (whole) > 0", "(not (not part and (whole) > 0))"),
        ("and", "or"),
        (">", "<="),
        (">", ">="),
        ("0", "1"),
        ('raise ValueError(f"{part + 1} is not")', "pass"),
        ("check(part)", "pass"),
        ("-", ""),
        ("abs", ""),
        ("/", "*"),
    ]
    for each in mutants("x", SOURCE):
        ast.parse(each.apply(SOURCE))


@pytest.mark.parametrize("area", AREAS)
def test_an_area_has_mutants_that_python_can_read_and_tests(area: str) -> None:
    paths, tests = map(files, AREAS[area])
    assert paths and tests
    for each in draw(area, 20, 1):
        assert each.path in paths
        ast.parse(each.apply((ROOT / each.path).read_bytes()))
    assert draw(area, 5, 1) == draw(area, 5, 1) != draw(area, 5, 2)
