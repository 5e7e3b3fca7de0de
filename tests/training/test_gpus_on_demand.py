"""A cluster whose GPU nodes come on demand: training asks for them while there is none."""

import pytest
import ray

from courant.ray_session import GPUS_ON_DEMAND as VARIABLE
from courant.sweeps.ray_trials import Share
from courant.training.ray_train import use_gpus
from courant.training.workers import device_of
from simgen.errors import InputError
from tests.world import tiny_experiment


@pytest.fixture
def cluster_of_cores(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A cluster that has cores alone at this moment."""
    node = {"Alive": True, "Resources": {"CPU": 8.0}}
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 8.0})
    monkeypatch.setattr(ray, "nodes", lambda: [node])
    monkeypatch.delenv(VARIABLE, raising=False)
    return monkeypatch


def test_a_cluster_that_does_not_grow_is_taken_as_it_is(cluster_of_cores) -> None:
    assert use_gpus("auto", workers=1) is False
    with pytest.raises(InputError, match="asks for 1 GPUs, Ray has 0"):
        use_gpus(True, workers=1)
    with pytest.raises(InputError, match="a trial asks for 0 CPUs and 1 GPUs"):
        Share.of(tiny_experiment(), 0, 1)


def test_gpus_that_come_on_demand_are_asked_for(cluster_of_cores) -> None:
    cluster_of_cores.setenv(VARIABLE, "2")
    assert use_gpus("auto", workers=2) is True
    assert use_gpus(True, workers=2) is True
    assert use_gpus("auto", workers=3) is False
    assert Share.of(tiny_experiment(), 0, 1) == Share(0, 1)
    with pytest.raises(InputError, match="3 GPUs"):
        Share.of(tiny_experiment(), 0, 3)

    cluster_of_cores.setenv(VARIABLE, "two")
    with pytest.raises(InputError, match="COURANT_GPUS_ON_DEMAND is 'two'"):
        use_gpus("auto", workers=1)


@pytest.mark.parametrize(
    ("nodes", "on_demand", "asked", "share"),
    [
        ([{"CPU": 14.0}], 2.0, None, Share(0.0, 1.0)),
        ([{"CPU": 14.0}], 0.0, None, Share(1.0, 0.0)),
        ([{"CPU": 8.0, "GPU": 1.0}], 2.0, None, Share(1.0, 1.0)),
        ([{"CPU": 14.0}], 2.0, 4.0, Share(4.0, 1.0)),
    ],
)
def test_a_trial_asks_for_no_core_of_a_node_that_comes_with_its_gpu(
    monkeypatch: pytest.MonkeyPatch,
    nodes: list[dict[str, float]],
    on_demand: float,
    asked: float | None,
    share: Share,
) -> None:
    """Such nodes have no core for others: the trial would wait for ever."""
    module = "courant.sweeps.ray_trials"
    alive = [{"Alive": True, "Resources": each} for each in nodes]
    there = max(each.get("GPU", 0.0) for each in nodes)
    monkeypatch.setattr(f"{module}.ray.nodes", lambda: alive)
    monkeypatch.setattr(f"{module}.gpus_on_demand", lambda: on_demand)
    monkeypatch.setattr(f"{module}.available_gpus", lambda: max(there, on_demand))
    assert Share.of(tiny_experiment(), asked, None) == share


def test_processes_of_this_machine_train_on_its_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    training = tiny_experiment().training
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(InputError, match="asks for 1 GPUs, this machine has 0"):
        device_of(training.model_copy(update={"use_gpu": True}))
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    for asked, expected in ((False, "cpu"), (True, "cuda"), ("auto", "cuda")):
        assert device_of(training.model_copy(update={"use_gpu": asked})) == expected
