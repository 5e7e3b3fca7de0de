"""The parts of the benchmark of campaigns: its model of the driver, and its grown datasets."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import simgen
from bench.bench_campaign import Costs, grow, simulate
from bench.synthetic_cases import FAMILY, SCHEMA
from flows.solving import COMMIT_SHARE as SHARE
from simgen.store.write import DatasetWriter

pytestmark = pytest.mark.nightly

FREE = Costs(submit_s=0.0, commit_base_s=0.0, commit_slope_s=0.0)


def test_without_costs_workers_are_idle_at_the_end_alone() -> None:
    found = simulate(FREE, cases=1000, workers=10, case_s=20.0)
    assert 0.98 < found.utilisation <= 1.0
    assert found.wall_s == pytest.approx(1000 * 20.0 / 10, rel=0.03)


def test_a_driver_that_is_too_slow_sets_the_pace() -> None:
    slow = dataclasses.replace(FREE, submit_s=1.0)
    found = simulate(slow, cases=500, workers=100, case_s=20.0)
    assert found.wall_s == pytest.approx(500 + 20, rel=0.03)
    assert found.driver_busy > 0.95
    assert found.utilisation < 0.25


def test_commits_of_any_size_take_their_part_of_the_time_and_no_more() -> None:
    costs = dataclasses.replace(FREE, commit_slope_s=1e-3)
    small, large = (simulate(costs, cases, workers=50, case_s=10.0) for cases in (1000, 4000))
    for found in (small, large):
        assert found.driver_busy < 1.3 * SHARE
    assert large.num_commits < 3 * small.num_commits, "not one for each case"


def test_a_grown_dataset_is_one_that_can_be_written_to_and_read(tmp_path: Path) -> None:
    url = str(tmp_path / SCHEMA.family)
    values = FAMILY.settings("trial", {"end_time": 6})
    points = [FAMILY.point(each, values) for each in FAMILY.design_space.sample(4)]
    grow(url, points[:3], 6)
    grow(url, points, 6)
    writer = DatasetWriter.open(url, SCHEMA)
    assert set(writer.known()) == {point.id for point in points}
    writer.publish()
    dataset = simgen.open_dataset(url)
    assert len(dataset) == 4
    first, second = (dataset[point.id]["velocity"][:] for point in points[:2])
    assert np.array_equal(first, second) and first.shape[0] == 6
