"""Splits that never move a case; statistics that do not depend on how the data was cut up."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simgen.store.split import RATIOS, SPLITS, assign_splits
from simgen.store.statistics import Moments, combine, moments

ids = st.lists(st.text("0123456789abcdef", min_size=4, max_size=6), min_size=1, max_size=60, unique=True)


@given(ids, st.integers(0, 60))
def test_growing_a_dataset_moves_no_case(cases, first):
    before = assign_splits(cases[:first], {})
    after = assign_splits(cases, before)
    assert set(after) == set(cases)
    assert {case: after[case] for case in before} == before


@given(ids)
def test_the_assignment_depends_on_the_cases_and_not_on_their_order(cases):
    assert assign_splits(cases, {}) == assign_splits(list(reversed(cases)), {})


@given(ids)
def test_small_sets_have_a_test_case_and_then_a_validation_case(cases):
    counts = {split: list(assign_splits(cases, {}).values()).count(split) for split in SPLITS}
    assert counts["train"] >= 1
    assert counts["test"] >= (len(cases) >= 2)
    assert counts["validation"] >= (len(cases) >= 3)


def test_eight_cases_are_split_six_one_one():
    counts = list(assign_splits([f"case{n}" for n in range(8)], {}).values())
    assert [counts.count(split) for split in SPLITS] == [6, 1, 1]


@pytest.mark.parametrize("batches", [1, 7])
def test_many_cases_approach_the_ratios(batches):
    cases, members = [f"{n:04x}" for n in range(500)], {}
    for batch in np.array_split(cases, batches):
        members = assign_splits([*members, *batch.tolist()], members)
    for split, ratio in RATIOS.items():
        assert list(members.values()).count(split) == pytest.approx(500 * ratio, abs=1)


@settings(max_examples=25)
@given(st.integers(1, 5), st.integers(0, 2**32 - 1), st.floats(-1e4, 1e4))
def test_streamed_moments_equal_numpys(num_blocks, seed, offset):
    generator = np.random.default_rng(seed)
    blocks = [generator.normal(offset, 0.1, (generator.integers(1, 50), 7, 3)) for _ in range(num_blocks)]
    streamed = Moments.empty(3)
    for block in blocks:
        streamed.add(block)
    values = np.concatenate([block.reshape(-1, 3) for block in blocks])
    assert streamed.count == len(values)
    np.testing.assert_allclose(streamed.mean, values.mean(axis=0), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(streamed.to_record()["std"], values.std(axis=0), rtol=1e-6, atol=1e-10)
    np.testing.assert_array_equal(streamed.low, values.min(axis=0))
    np.testing.assert_array_equal(streamed.high, values.max(axis=0))


def test_cases_combine_from_their_records():
    generator = np.random.default_rng(1)
    cases = [generator.normal(n, 1 + n, (20 + n, 2)) for n in range(4)]
    together = combine([moments(case).to_record() for case in cases])
    values = np.concatenate(cases)
    np.testing.assert_allclose(together.mean, values.mean(axis=0))
    np.testing.assert_allclose(together.to_record()["std"], values.std(axis=0))
