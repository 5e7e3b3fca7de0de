"""A short campaign of damage: `python -m bench.damage` runs thousands of trials."""

import pytest

from bench.damage import BAD, make_store, run_trials
from tests.trials import trials

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("damage"))


def test_each_read_of_a_damaged_store_gives_the_right_data_or_one_right_line(store):
    tried = run_trials(store, seed=7, numbers=range(trials(50)))
    assert [trial for trial in tried if trial.outcome in BAD] == []
    assert {trial.outcome for trial in tried} == {"right data", "one line"}
