"""Experiments: complete, frozen, and strict about what they hold."""

import pytest

from courant.experiment import parse_experiment
from courant.recipes import get_recipe
from simgen.errors import InputError


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"training": {"epoch": 3}}, "TrainingConfig has no field epoch; did you mean epo"),
        ({"model": {"anchors": 3}}, "no field anchors"),
        ({"model": {"num_anchors": 0}}, "num_anchors must be a whole number from 1 to"),
        ({"training": {"learning_rate": -1}}, r"training\.learning_rate: .*greater than 0"),
        ({"name": "Über run"}, "name: String should match"),
    ],
)
def test_wrong_values_are_named_in_one_line(changes: dict, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        get_recipe("cylinder-flow").derive(**changes)
    assert "\n" not in str(caught.value)


def test_no_time_of_one_family_stands_in_for_a_missing_one() -> None:
    content = get_recipe("cylinder-flow").model_dump(mode="json")
    del content["data"]["step_s"], content["data"]["stride_s"]
    with pytest.raises(InputError, match=r"data\.step_s: Field required; data\.stride_s: Field"):
        parse_experiment(content)


def test_the_run_id_depends_on_every_value_and_on_the_dataset_snapshot() -> None:
    experiment = get_recipe("cylinder-flow")
    ids = {
        experiment.run_id("A"),
        experiment.run_id("B"),
        experiment.derive(training={"seed": 43}).run_id("A"),
        experiment.derive(model={"bandwidth": 2.0}).run_id("A"),
        experiment.derive(data={"stride_s": 2.0}).run_id("A"),
    }
    assert len(ids) == 5
    of_the_machine = {"data": {"resident_gb": 0.0}, "training": {"cuda_graphs": True}}
    assert experiment.derive(**of_the_machine).run_id("A") == experiment.run_id("A")
    assert all(run_id.startswith("cylinder-flow-") for run_id in ids)
    assert parse_experiment(experiment.model_dump_json()).run_id("A") == experiment.run_id("A")
