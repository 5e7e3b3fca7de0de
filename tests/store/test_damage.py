"""A short campaign of damage: `python -m tests.store.damage_campaign` runs thousands of trials."""

import pytest

from tests.store.damage_campaign import BAD, make_store, run_trials


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("damage"))


def test_each_read_of_a_damaged_store_gives_the_right_data_or_one_right_line(store):
    trials = run_trials(store, seed=7, numbers=range(120))
    assert [trial for trial in trials if trial.outcome in BAD] == []
    assert {trial.outcome for trial in trials} == {"right data", "one line"}
